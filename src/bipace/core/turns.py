"""Turns: the k-th steps of a group's trajectories are compared; one that has ended earns 0 there.

A baseline over those alone that are still playing would depend on when they stopped, which the policy
decides: its gradient would be biased by a bonus on every further turn
(https://github.com/verl-project/verl/issues/7244).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bipace.core import segments
from bipace.core.baselines import Peers
from bipace.core.graph import next_rows
from bipace.core.returns import discounted
from bipace.core.steps import Floats, Ints, StepBatch

__all__ = ["TurnsToGo", "by_turn", "mean_with_absent", "outcome"]


def by_turn(batch: StepBatch) -> Ints:
    """Peers are the steps of one index t in one prompt group."""
    return segments.pair(batch.task, batch.t)


def outcome(batch: StepBatch) -> Floats:
    """[N] the reward of the trajectory's last step, on all its rows."""
    last = (next_rows(batch) < 0) * batch.reward
    return segments.total(last, segments.compact(batch.trajectory))


@dataclass(frozen=True)
class TurnsToGo:
    """sum_{l >= t} gamma^(l - t) r_l / (sigma_l + delta), sigma_l over the group's trajectories at l.

    Attributes:
        gamma: discount.
        divided: with the division; else sigma_l + delta is 1.
        outcome: "trajectory" leaves the last step's reward out, as another term compares it; "turn" keeps it.
        delta: added to the deviation.

    Raises:
        ValueError: gamma outside [0, 1].
    """

    gamma: float = 1.0
    divided: bool = True
    outcome: Literal["trajectory", "turn"] = "trajectory"
    delta: float = 1e-6
    name: ClassVar[str] = "turns_to_go"

    def __call__(self, batch: StepBatch) -> Floats:
        """[N] float64 in units of the deviation, or of reward."""
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma: {self.gamma}, expected a discount in [0, 1]")
        reward = batch.reward if self.outcome == "turn" else np.where(next_rows(batch) < 0, 0.0, batch.reward)
        if self.divided:
            turn, number = by_turn(batch), _trajectories(batch.task, batch.trajectory)
            mean = _over_all(reward, turn, number)
            squares = segments.total((reward - mean) ** 2, turn) + (number - segments.count(turn)) * mean**2
            scaled = reward / (np.sqrt(squares / np.maximum(number - 1, 1)) + self.delta)
            # Where all earned the same, the deviation is 0, and rounding divided by delta would be a reward.
            alike = segments.constant(reward, turn) & (segments.count(turn) == number)
            reward = np.where(alike, 0.0, scaled)
        return discounted(batch, reward, self.gamma)


def mean_with_absent(peers: Peers) -> Floats:
    """V = sum over the cluster / trajectories of the group: those without a step in it count as 0.

    Raises:
        ValueError: peers whose members are trajectories.
    """
    if peers.group is None or peers.trajectory is None:
        raise ValueError('peers: no trajectories; mean_with_absent is for step terms (unit="step")')
    return _over_all(peers.returns, peers.cluster, _trajectories(peers.group, peers.trajectory))


def _over_all(values: Floats, labels: Ints, number: Ints) -> Floats:
    """Sum over each row's segment divided by `number`; exactly the value where all of `number` hold it."""
    return segments.mean(values, labels) * (segments.count(labels) / number)


def _trajectories(task: Ints, trajectory: Ints) -> Ints:
    """[N] trajectories of the row's prompt group."""
    group = segments.compact(task)
    first = segments.first_rows(segments.compact(trajectory))
    return np.bincount(group[first], minlength=1)[group] if len(group) else np.zeros(0, np.int64)
