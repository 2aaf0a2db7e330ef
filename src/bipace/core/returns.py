"""Returns: what a step is said to have earned, before any baseline."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bipace.core import segments
from bipace.core.steps import Floats, StepBatch

__all__ = ["less_penalty", "return_to_go", "trajectory_return"]


def trajectory_return(batch: StepBatch) -> Floats:
    """R(tau) = sum_t r_t, undiscounted, on every row of the trajectory (GRPO's outcome).

    Returns:
        [N] float64 in units of reward; the table's own column `whole` where an engine has computed it.
    """
    if batch.whole is not None:
        return batch.whole
    return segments.total(batch.reward, segments.compact(batch.trajectory))


def return_to_go(batch: StepBatch, gamma: float = 0.95) -> Floats:
    """R_t = r_t + gamma R_{t+1} over the trajectory's own later steps; R_T = r_T at the last one.

    No bootstrap at a truncated end: a trajectory method has no value function (BiPACE section 2, GiGPO Eq. 5).

    Args:
        batch: the table; the step index orders the steps, not the row order.
        gamma: discount in [0, 1].

    Returns:
        [N] float64 in units of reward; the table's own column `to_go` where an engine has computed it, whatever gamma.

    Raises:
        ValueError: gamma outside [0, 1].
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma: {gamma}, expected a discount in [0, 1]")
    if batch.to_go is not None:
        return batch.to_go
    order = np.lexsort((batch.trajectory, batch.t))  # by step index, so one pass serves all trajectories
    trajectory = segments.compact(batch.trajectory)
    running = np.zeros(len(np.unique(trajectory)))
    returns = np.empty(len(batch))
    starts = np.flatnonzero(np.diff(batch.t[order], prepend=-1))
    for rows in np.split(order, starts[1:])[::-1] if len(batch) else ():
        running[trajectory[rows]] = returns[rows] = batch.reward[rows] + gamma * running[trajectory[rows]]
    return returns


def less_penalty(batch: StepBatch, returns: Callable[[StepBatch], Floats]) -> Floats:
    """A return less the row's own penalty, taken after discounting (verl-agent's invalid-action penalty)."""
    values = returns(batch)
    return values if batch.penalty is None else values - batch.penalty
