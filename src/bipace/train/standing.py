"""Where a run stands: iterations done, validations, and which of them was the best."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bipace.core.radius import Radius
from bipace.train.config import ConfigError

__all__ = ["Standing"]


@dataclass
class Standing:
    """What a run's checkpoint remembers beside weights and optimizer.

    Attributes:
        iteration: iterations completed.
        best: best success of a validation that was due (the first, every `run.validate_every`), -1 before the
            first.
        best_iteration: the iteration of its checkpoint, None before the first.
        final_best: True where the last iteration's validation, which a longer run would not have made, is
            better.
        skipped: mini-batches that were skipped because a number was not finite.
        validations: panel -> iteration -> success, interval and families.
    """

    iteration: int = 0
    best: float = -1.0
    best_iteration: int | None = None
    final_best: bool = False
    skipped: int = 0
    validations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def take_up(self, state: dict[str, Any], checkpoint: Path) -> tuple[Radius | None, int | None]:
        """Go on from a checkpoint's state; returns the radius and the layer that were chosen.

        Raises:
            ConfigError: a key is missing or of another kind.
        """
        try:
            self.iteration, self.skipped = state["iteration"], state["skipped"]
            self.validations = state["validations"]
            self.best, self.best_iteration = state["best"], state["best_iteration"]
            self.final_best = state.get("final_best", False)
            radius = tuple(state["radius"]) if state["radius"] else None
            return radius, state.get("layer")
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"{checkpoint}: trainer_state.json is damaged ({error}); put an undamaged copy there"
            ) from error

    def state(self, radius: Radius | None, layer: int | None) -> dict[str, Any]:
        """What `take_up` reads, as JSON."""
        return {
            "iteration": self.iteration,
            "best": self.best,
            "best_iteration": self.best_iteration,
            "final_best": self.final_best,
            "skipped": self.skipped,
            "radius": radius,
            "layer": layer,
            "validations": self.validations,
        }

    def note_best(self, panel: str, due: bool) -> bool:
        """Take this iteration's validation into account; True where it is the best so far."""
        best = self.better(panel)
        if best and due:
            self.best, self.best_iteration = self._latest(panel), self.iteration
        self.final_best = best and not due
        return best

    def better(self, panel: str) -> bool:
        """True where this iteration's validation on the panel is better than any before that was due."""
        return self._latest(panel) > self.best

    @property
    def kept(self) -> tuple[int, ...]:
        """Iterations whose checkpoints stay although no link points at them."""
        return () if self.best_iteration is None else (self.best_iteration,)

    def _latest(self, panel: str) -> float:
        return self.validations.get(panel, {}).get(str(self.iteration), {}).get("success", -1.0)
