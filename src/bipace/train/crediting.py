"""From an iteration's rollouts to one value per response token: table, radius, advantages, diagnostics."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from bipace.core.advantages import Recipe, advantages
from bipace.core.calibrate import hold, open_directions
from bipace.core.diagnostics import DegenerateClustersWarning, credit_diagnostics, degenerate_clusters
from bipace.core.features import Features
from bipace.core.radius import Radius, at_radius
from bipace.core.rows import Rows
from bipace.core.steps import StepBatch
from bipace.policies.hf import Actor
from bipace.rollout.records import TokenSequence, Trajectory
from bipace.rollout.table import to_rows
from bipace.train.calibration import scan_metrics, scan_rollouts
from bipace.train.config import Config
from bipace.train.update import token_values

__all__ = ["Crediting"]


@dataclass
class Crediting:
    """A run's recipe with what its choice of layer and radius has come to.

    Attributes:
        config: the run.
        recipe: what is computed.
        layer: index of the hidden state that is compared, or None where the recipe reads none.
        radius: (eps, whiten) that eps="auto" or "calibrate" chose last; None before the first choice.
        warned: True once degenerate clusters were told of.
    """

    config: Config
    recipe: Recipe
    layer: int | None
    radius: Radius | None = None
    warned: bool = False

    def __call__(
        self, actor: Actor, kept: Sequence[Trajectory], features: Features | None, iteration: int
    ) -> tuple[list[torch.Tensor], dict[str, float]]:
        """Credit one iteration.

        Args:
            actor: the policy that played; eps="calibrate" reads its layers.
            kept: trajectories with a step that no fault ended.
            features: one row a step, or None.
            iteration: iterations completed.

        Returns:
            Per sequence, one value per response token; and what to log.

        Raises:
            ValueError: what the recipe and the calibration refuse.
        """
        config = self.config
        sequences = [s for t in kept for s in t.sequences]
        rows = to_rows(
            kept,
            features=features,
            action_key=config.features.action_key,
            refused_actions=config.features.refused_actions,
            reward_scale=config.env.reward_scale,
            success_only=config.env.reward == "success",
            invalid_action_penalty=config.update.invalid_action_penalty,
        )
        batch, made, chosen = self._calibrated(actor, rows, sequences, iteration)
        found = advantages(batch, made)
        diagnosed = credit_diagnostics(batch, found)
        self._warn(diagnosed, iteration)
        return token_values(sequences, rows.scatter(found.values)), {**diagnosed, **chosen}

    def _calibrated(
        self, actor: Actor, rows: Rows, sequences: Sequence[TokenSequence], iteration: int
    ) -> tuple[StepBatch, Recipe, dict[str, float]]:
        """The table, the recipe at its radius, and what to log.

        With eps="calibrate" layer and radius are chosen here, once.
        """
        if self.radius is not None or open_directions(self.recipe) is None:
            every = self.config.features.calibrate_every
            recipe, self.radius, metrics = at_radius(
                self.recipe, rows.batch, self.radius, every=every, iteration=iteration
            )
            return rows.batch, recipe, metrics
        found, layers = scan_rollouts(actor, sequences, rows, self.recipe, self.config)
        self.radius = found.chosen.eps, found.chosen.whiten
        if self.layer is not None:
            self.layer = int(found.chosen.layer)
        batch = replace(rows.batch, features=layers[found.chosen.layer])
        metrics = {f"credit/{name}": value for name, value in scan_metrics(found).items()}
        return batch, hold(self.recipe, *self.radius), metrics

    def _warn(self, diagnosed: dict[str, float], iteration: int) -> None:
        """Say once that clusters compare hardly anything, or everything."""
        shape = {name.removeprefix("cluster/"): value for name, value in diagnosed.items()}
        said = degenerate_clusters(shape) if self.layer is not None and "clusters" in shape else ""
        if said and not self.warned:
            self.warned = True
            warnings.warn(f"iteration {iteration + 1}: {said}", DegenerateClustersWarning, stacklevel=3)
