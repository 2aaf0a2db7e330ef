"""What one generation batch leaves behind while TRL's own method runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from bipace.integrations.trl.listening import Heard
from bipace.integrations.trl.turns import Rollout

__all__ = ["Batch"]


@dataclass
class Batch:
    """What one generation batch leaves behind on this process while TRL's own method runs.

    Attributes:
        examples: rows of the data set.
        heard: what environments said after each call.
        prompts: token ids, by row.
        completions: token ids, by row.
        rollouts: turns by row.
        told: True where turns carry rewards.
        totals: TRL's weighted reward of every rollout of all processes, NaN where nobody scored it.
        picked: states from TRL's first forward of the policy, in the rows' order.
    """

    examples: list[dict[str, Any]]
    heard: list[Heard] = field(default_factory=list[Heard])
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    completions: list[list[int]] = field(default_factory=list[list[int]])
    rollouts: list[Rollout] = field(default_factory=list[Rollout])
    told: bool = False
    totals: list[float] = field(default_factory=list[float])
    picked: torch.Tensor | None = None

    def places(self, offsets: list[int]) -> list[list[int]]:
        """Positions of the tokens before each turn, where a row's completion begins at its offset."""
        return [
            [offset + turn.start - 1 for turn in rollout.turns]
            for rollout, offset in zip(self.rollouts, offsets, strict=True)
        ]
