"""What a shard is asked for: rollouts of its prompt groups, or the gradient of its part of a mini-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bipace.policies.hf import Actor
from bipace.rollout.collect import Collector, Decoder
from bipace.rollout.records import Trajectory
from bipace.train.config import Config
from bipace.train.gradient import Objective, Part

__all__ = ["Play", "Work"]


@dataclass(frozen=True)
class Play:
    """Episodes to play.

    Attributes:
        tasks: prompt groups.
        copies: episodes of each.
        temperature: of sampling.
        seed: of the random stream.
        layer: index of the hidden state to keep, or None.
    """

    tasks: Sequence[str]
    copies: int
    temperature: float
    seed: int
    layer: int | None


@dataclass
class Work:
    """One process's own copy of what computes shards.

    Attributes:
        config: the run.
        actor: the policy.
        decoder: plays episodes.
        collector: how they are played.
    """

    config: Config
    actor: Actor
    decoder: Decoder
    collector: Collector

    def do(self, request: Play | Part) -> Any:
        """Trajectories for a `Play`, a `Gradient` for a `Part`."""
        return self._play(request) if isinstance(request, Play) else self._gradient(request)

    def _play(self, request: Play) -> list[Trajectory]:
        if not request.tasks:
            return []
        collector = self.collector
        if collector.layer != request.layer:
            collector = replace(collector, layer=request.layer)
        return collector.collect(
            self.decoder,
            request.tasks,
            request.copies,
            temperature=request.temperature,
            generator=torch.Generator(device=self.actor.device).manual_seed(request.seed),
        )

    def _gradient(self, part: Part) -> Any:
        config = self.config
        objective = Objective(self.actor, config.update, config.rollout.temperature, config.actor.autocast)
        with self.actor.checkpointing(config.actor.checkpointing):
            return objective.gradient(part)
