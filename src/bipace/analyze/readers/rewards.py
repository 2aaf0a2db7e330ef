"""What the reward column of a table of steps means.

A step's own reward, or the trajectory's repeated on every row.
"""

from __future__ import annotations

from collections.abc import Sequence

from bipace.analyze.messages import on_last
from bipace.analyze.records import Doubt, Reading

__all__ = ["ROW_REWARDS", "settled"]

ROW_REWARDS = ("auto", "last", "each")
Column = Sequence[float | None]


def settled(rewards: Sequence[Column], reading: Reading) -> list[list[float | None]]:
    """Rewards by trajectory as they enter the analysis.

    A null before a number reads as 0: the row was not rewarded. A reward that never changes within a
    trajectory but differs between trajectories is the trajectory's, written on every row: it counts once, on
    the last row (summed, three rows of 1 would read as 3). `reading.row_reward` overrules this. Where every
    row of every trajectory holds one and the same number, both meanings fit; each row then keeps its own, and
    a doubt says so.
    """
    filled = [_filled(column) for column in rewards]
    several = [column for column in filled if len(column) > 1]
    constant = (
        bool(several) and all(len(set(column)) == 1 for column in several) and any(c[0] for c in several)
    )
    values = {column[0] for column in filled if len(set(column)) == 1}
    if reading.row_reward == "auto" and constant and len(values) == 1:
        text = f"every row of every trajectory has the reward {next(iter(values)):g}"
        reading.doubts.append(Doubt("constant-reward", len(several), text))
    once = reading.row_reward == "last" or (reading.row_reward == "auto" and constant and len(values) > 1)
    if not once or not several:
        return filled
    told = "" if reading.row_reward == "last" else " (it never changes within a trajectory)"
    reading.notes.append(
        f"the reward of {len(several)} trajectories stands on each of their rows and counts once{told}"
    )
    reading.doubts.append(Doubt("repeated-reward", len(several), "a reward written on every row counts once"))
    return [on_last(column[-1], len(column)) for column in filled]


def _filled(column: Column) -> list[float | None]:
    numbers = [i for i, reward in enumerate(column) if reward is not None]
    last = numbers[-1] if numbers else -1
    return [0.0 if reward is None and i < last else reward for i, reward in enumerate(column)]
