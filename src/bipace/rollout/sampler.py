"""Which tasks an iteration plays.

A pure function of (seed, iteration), so that no position has to be saved.
"""

from __future__ import annotations

from typing import Literal

from bipace.rollout.streams import Stream, stream

__all__ = ["Order", "choose_tasks"]

Order = Literal["draws", "passes"]


def choose_tasks(n: int, count: int, *, seed: int, iteration: int, order: Order) -> list[int]:
    """Indices of the tasks of one iteration, no task twice.

    The same arguments give the same tasks on any machine.

    "draws": `count` of the n without replacement, each iteration for itself. "passes": the split is shuffled
    and cut into n // count iterations, then shuffled anew; the n % count tasks left over at the end of a pass
    are not played in it, so that no iteration holds one task as two prompt groups.

    Args:
        n: tasks in the split.
        count: prompt groups an iteration.
        seed: the run's.
        iteration: iterations completed before, from 0.
        order: see above.

    Raises:
        ValueError: count is not in 1..n.
    """
    if not 1 <= count <= n:
        raise ValueError(f"rollout.tasks: {count}, expected 1 to {n}, the number of tasks in the split")
    if order == "draws":
        return stream(seed, iteration, Stream.TASKS).choice(n, count, replace=False).tolist()
    number, position = divmod(iteration, n // count)
    shuffled = stream(seed, number, Stream.PASSES).permutation(n)
    return shuffled[position * count : (position + 1) * count].tolist()
