"""Returns: what a step is said to have earned, before any baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bipace.core import segments
from bipace.core.steps import Floats, StepBatch

__all__ = ["LessPenalty", "Return", "ReturnToGo", "discounted", "return_to_go", "trajectory_return"]

Return = Callable[[StepBatch], Floats]


def trajectory_return(batch: StepBatch) -> Floats:
    """R(tau) = sum_t r_t, undiscounted, on every row of the trajectory (GRPO's outcome).

    Returns:
        [N] float64 in units of reward; the table's own column `whole` where an engine has computed it.

    Examples:
        >>> from bipace.core.returns import trajectory_return
        >>> from bipace.core.sample import sample_batch
        >>> trajectory_return(sample_batch()).tolist()
        [1.0, 1.0, 0.0, 0.0]
    """
    if batch.whole is not None:
        return batch.whole
    return segments.total(batch.reward, segments.compact(batch.trajectory))


def return_to_go(batch: StepBatch, gamma: float = 0.95) -> Floats:
    """R_t = r_t + gamma R_{t+1} over the trajectory's own later steps; R_T = r_T at the last one.

    No bootstrap at a truncated end: a trajectory method has no value function (BiPACE section 2, GiGPO Eq.
    5).

    Args:
        batch: the table; the step index orders the steps, not the row order.
        gamma: discount in [0, 1].

    Returns:
        [N] float64 in units of reward; the table's own column `to_go` where an engine has computed it,
        whatever gamma.

    Raises:
        ValueError: gamma outside [0, 1].

    Examples:
        >>> from bipace.core.returns import return_to_go
        >>> from bipace.core.sample import sample_batch
        >>> return_to_go(sample_batch(), gamma=0.5).tolist()
        [0.5, 1.0, 0.0, 0.0]
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma: {gamma}, expected a discount in [0, 1]")
    if batch.to_go is not None:
        return batch.to_go
    return discounted(batch, batch.reward, gamma)


def discounted(batch: StepBatch, values: Floats, decay: float) -> Floats:
    """S_t = x_t + decay S_{t+1} over the trajectory's own later steps, [N], of any values [N]."""
    order = np.lexsort((batch.trajectory, batch.t))  # by step index, so one pass serves all trajectories
    trajectory = segments.compact(batch.trajectory)
    running = np.zeros(len(np.unique(trajectory)))
    sums = np.empty(len(batch))
    starts = np.flatnonzero(np.diff(batch.t[order], prepend=-1))
    for rows in np.split(order, starts[1:])[::-1] if len(batch) else ():
        running[trajectory[rows]] = sums[rows] = values[rows] + decay * running[trajectory[rows]]
    return sums


@dataclass(frozen=True)
class ReturnToGo:
    """`return_to_go` with its discount, as terms hold it.

    Examples:
        >>> from bipace.core.returns import ReturnToGo
        >>> from bipace.core.sample import sample_batch
        >>> ReturnToGo(gamma=0.5)(sample_batch()).tolist()
        [0.5, 1.0, 0.0, 0.0]
    """

    gamma: float = 0.95
    name: ClassVar[str] = "return_to_go"

    def __call__(self, batch: StepBatch) -> Floats:
        """[N] float64 in units of reward."""
        return return_to_go(batch, self.gamma)


@dataclass(frozen=True)
class LessPenalty:
    """A return less the row's own penalty, taken after discounting (verl-agent's invalid-action penalty).

    Examples:
        >>> from bipace.core.returns import LessPenalty, trajectory_return
        >>> from bipace.core.sample import sample_batch
        >>> from dataclasses import replace
        >>> batch = replace(sample_batch(), penalty=[0, 0.1, 0, 0])
        >>> LessPenalty(trajectory_return)(batch).tolist()
        [1.0, 0.9, 0.0, 0.0]
    """

    returns: Return
    name: ClassVar[str] = "less_penalty"

    def __call__(self, batch: StepBatch) -> Floats:
        """[N] float64 in units of reward."""
        values = self.returns(batch)
        return values if batch.penalty is None else values - batch.penalty
