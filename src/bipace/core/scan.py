"""The pair of layer and radius, chosen once from one batch of rollouts: BiPACE's calibration, without labels.

The paper takes both from one scan in the first iteration and keeps them (arXiv 2606.25556). `scan` tries
every layer, number of removed directions and radius of a grid, says what the clusters of each look like, and
takes the pair with the largest held-out agreement (`bipace.core.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core.advantages import Recipe, advantages
from bipace.core.agreement import Agreement, HeldOut
from bipace.core.calibrate import GRID, hold
from bipace.core.diagnostics import batch_diagnostics, cluster_diagnostics, degenerate_clusters
from bipace.core.features import Features
from bipace.core.steps import StepBatch

__all__ = ["RADII", "Pair", "Scan", "check_scannable", "scan"]

RADII = tuple(eps for eps in GRID if eps)
"""Radii tried by default.

Not 0: "the same vector" is a matter of rounding, and changes with the batch it came in.
"""

CLUSTER_COLUMNS = ("clusters", "singleton_rate", "lone_step_share", "cluster_size_mean", "cluster_size_max")


@dataclass(frozen=True, eq=False)
class Pair:
    """One point of the grid.

    Attributes:
        layer: the features' name.
        whiten: leading principal directions removed.
        eps: cosine radius.
        agreement: held-out agreement of the recipe at this point.
        clusters: what its clusters look like (`cluster_diagnostics`).
        behind: how far its agreement is behind the best one of the grid.
        error: the standard error of that.
    """

    layer: str
    whiten: int
    eps: float
    agreement: Agreement
    clusters: Mapping[str, float]
    behind: float = 0.0
    error: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        shape = {name: self.clusters[name] for name in (*CLUSTER_COLUMNS, "largest_share")}
        return {
            "layer": int(self.layer) if self.layer.isdigit() else self.layer,
            "whiten": self.whiten, "eps": self.eps,
            "agreement": self.agreement.value, "behind": self.behind, "error": self.error, **shape,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Scan:
    """A grid and the pair that is taken.

    Attributes:
        pairs: every point, in grid order (layer, whiten, eps).
        chosen: the one that is taken.
        warning: what is wrong with the chosen clusters, or "".
    """

    pairs: tuple[Pair, ...]
    chosen: Pair
    warning: str

    @property
    def level(self) -> int:
        """Points of the grid that one batch does not tell apart from the best: within one standard error."""
        return sum(pair.behind <= pair.error for pair in self.pairs)

    def why(self) -> str:
        """One sentence: what was taken and on what grounds."""
        shape = self.chosen.clusters
        return (
            f"Layer {self.chosen.layer} at eps {self.chosen.eps:g} (whiten {self.chosen.whiten}): of the "
            f"{self.level} of {len(self.pairs)} points whose held-out agreement is within one standard error "
            f"of the best, the one with the smallest radius; {100 * shape['singleton_rate']:.0f} % of its "
            f"clusters hold one step, the mean cluster {shape['cluster_size_mean']:.1f}, the largest "
            f"{shape['cluster_size_max']:.0f}."
        )


def check_scannable(batch: StepBatch) -> None:
    """Refuse rollouts from which no pair can be chosen.

    Raises:
        ValueError: no rollouts; one trajectory a group; no reward anywhere; every trajectory solved its task,
            or no prompt group has trajectories with different returns.
    """
    shape = batch_diagnostics(batch)
    if not shape["groups"]:
        raise ValueError(
            "rollouts: none was played to its end, so no layer and eps can be chosen; look at the errors"
        )
    if shape["lone_groups"] == shape["groups"]:
        raise ValueError(
            "rollout.group_size: every prompt group holds one trajectory, so a step has nobody to be "
            "compared with and no layer and eps can be chosen; use rollout.group_size=8"
        )
    if not batch.reward.any():
        raise ValueError(
            f"rollouts: none of {shape['trajectories']:.0f} trajectories earned any reward, so no layer and "
            "eps can be chosen; take an actor that sometimes succeeds, easier tasks (env.split), or give "
            "credit.eps and features.layer yourself"
        )
    if shape["flat_groups"] == shape["groups"]:
        raise ValueError(
            "rollouts: in every prompt group all trajectories earned the same (an actor that always wins?), "
            "so no layer and eps can be chosen; take harder tasks (env.split), or give credit.eps and "
            "features.layer yourself"
        )


def scan(
    batch: StepBatch,
    layers: Mapping[str, Features],
    gradients: NDArray[np.float32],
    recipe: Recipe,
    *,
    grid: Sequence[float] = RADII,
    directions: Sequence[int] = (0,),
    gamma: float = 0.95,
) -> Scan:
    """Judge a recipe at every layer, whitening and radius, and take the best pair.

    Taken is the smallest radius among the points whose agreement one batch does not tell apart from the best
    (within one standard error, by jackknife over prompt groups); of points with that radius, the one with the
    larger agreement. Where the evidence is level, a smaller cluster errs on the side of noise, which the
    gradient averages out, and not of bias, which it keeps.

    Args:
        batch: N steps; its own features are not read.
        layers: name -> [N, D] features.
        gradients: [N, W] vectors whose inner products are those of the steps' policy gradients.
        recipe: what is calibrated; its clustering must leave the radius open (eps="calibrate" or "auto").
        grid: radii.
        directions: numbers of leading principal directions removed.
        gamma: discount.

    Raises:
        ValueError: what `check_scannable` refuses; an empty grid; a radius outside [0, 2]; no layer; a recipe
            whose radius is fixed.
    """
    if not len(layers) or not len(grid) or not len(directions) or not all(0.0 <= eps <= 2.0 for eps in grid):
        raise ValueError(
            f"grid: {tuple(layers)} x {tuple(directions)} x {tuple(grid)}, expected at least one layer, one "
            "number of directions and one radius in [0, 2]"
        )
    if hold(recipe, 0.0, 0) == recipe:
        raise ValueError(
            f'recipe {recipe.name}: its radius is fixed, nothing is left to choose; give it eps="calibrate"'
        )
    check_scannable(batch)
    batch = replace(batch, penalty=None)  # a fine for form is no credit, and the same at every point
    judge = HeldOut(batch, gradients, gamma)
    pairs: list[Pair] = []
    for layer, features in layers.items():
        table = replace(batch, features=features)
        for whiten in directions:
            for eps in grid:
                made = hold(recipe, eps, whiten)
                pairs.append(Pair(layer, whiten, float(eps), judge.judge(table, made), _shape(table, made)))
    return _chosen(pairs)


def _shape(table: StepBatch, made: Recipe) -> dict[str, float]:
    steps = [outcome for outcome in advantages(table, made).outcomes if outcome.term.unit == "step"]
    return cluster_diagnostics(table, steps[-1])


def _chosen(pairs: Sequence[Pair]) -> Scan:
    best = max(pairs, key=lambda pair: pair.agreement.value).agreement
    judged = [
        replace(p, behind=gap, error=error) for p in pairs for gap, error in (p.agreement.behind(best),)
    ]
    level = [pair for pair in judged if pair.behind <= pair.error]
    chosen = min(level, key=lambda pair: (pair.eps, pair.behind))
    return Scan(tuple(judged), chosen, degenerate_clusters(chosen.clusters))
