"""The radius of `eps="auto"` from one batch to the next: chosen where its turn has come, held in between."""

from __future__ import annotations

from bipace.core.advantages import Recipe
from bipace.core.calibrate import calibration_metrics, choose, hold
from bipace.core.steps import StepBatch

__all__ = ["Radius", "at_radius"]

Radius = tuple[float, int]
"""(eps, whiten)."""


def at_radius(
    recipe: Recipe, batch: StepBatch, held: Radius | None, *, every: int, iteration: int
) -> tuple[Recipe, Radius | None, dict[str, float]]:
    """The recipe at the radius of `eps="auto"`, chosen anew on this batch where its turn has come.

    An empty table chooses nothing: it would take the first point of the grid, and `every=0` would keep it for
    ever.

    Args:
        recipe: one without a clustering that calibrates itself comes back as it is, unless a radius is held.
        batch: the table.
        held: the radius chosen last, or None before the first choice.
        every: batches between two choices; 0 chooses once.
        iteration: batches before this one.

    Returns:
        The recipe with its radius fixed, the radius to hold, and what to log (`credit/eps`, `credit/whiten`
        and, where one was chosen, the error of every point of the grid).

    Raises:
        ValueError: what `bipace.core.calibrate.calibrate` refuses.
    """
    due = held is None or (every > 0 and iteration % every == 0)
    found = choose(batch, recipe.terms) if due and len(batch) else None
    radius = held if found is None else (found.eps, found.whiten)
    if radius is None:
        return recipe, None, {}
    metrics = {"eps": radius[0], "whiten": float(radius[1])} if found is None else calibration_metrics(found)
    return hold(recipe, *radius), radius, {f"credit/{name}": value for name, value in metrics.items()}
