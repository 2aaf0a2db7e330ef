"""From raw rows to a valid `StepBatch`: what may not enter an estimator is dropped here, and counted.

Engines hand over rows that are padding, aborted, or carry a reward of None. A trajectory with one such row is
dropped whole, its siblings keep their own statistics, and `Rows.scatter` writes zero advantage on what was
dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.features import FeaturesElsewhere, finite_rows
from bipace.core.labels import label, ranked
from bipace.core.steps import Bools, Floats, Ints, StepBatch

__all__ = ["DroppedRowsWarning", "LoneGroupsWarning", "Rows", "build_batch"]


class DroppedRowsWarning(UserWarning):
    """Trajectories were left out of the table; the message says which, how many and why.

    Examples:
        >>> import bipace
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as seen:
        ...     warnings.simplefilter("always", bipace.DroppedRowsWarning)
        ...     rows = bipace.build_batch(
        ...         task="aaa", trajectory="012", t=[0] * 3, reward=[0, None, 1],
        ...         observation="ddd", action="xyz",
        ...     )
        ...
        >>> any(issubclass(w.category, bipace.DroppedRowsWarning) for w in seen), rows.dropped
        (True, {'non-finite reward': 1})
    """


class LoneGroupsWarning(UserWarning):
    """Every prompt group holds one trajectory, so that nothing can be compared.

    Examples:
        >>> import bipace
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as seen:
        ...     warnings.simplefilter("always", bipace.LoneGroupsWarning)
        ...     rows = bipace.build_batch(
        ...         task=["a", "b"], trajectory="01", t=[0, 0], reward=[0, 1],
        ...         observation="dd", action="xy",
        ...     )
        ...
        >>> seen[0].category.__name__, str(seen[0].message)[:43]
        ('LoneGroupsWarning', 'all 2 prompt groups hold one trajectory, so')
    """


@dataclass(frozen=True)
class Rows:
    """A table and where its rows came from.

    Attributes:
        batch: the valid table, M rows.
        kept: [M] the raw row each table row came from.
        n: number of raw rows.
        dropped: reason -> number of raw rows dropped for it.

    Examples:
        >>> import numpy as np
        >>> from bipace import Rows
        >>> from bipace.core.sample import sample_batch
        >>> rows = Rows(sample_batch(), kept=np.array([0, 1, 2, 4]), n=5, dropped={"padding": 1})
        >>> rows.scatter(rows.batch.reward + 5).tolist()
        [5.0, 6.0, 5.0, 0.0, 5.0]
    """

    batch: StepBatch
    kept: Ints
    n: int
    dropped: dict[str, int]

    def __repr__(self) -> str:
        lost = ", ".join(f"{n} dropped: {reason}" for reason, n in self.dropped.items())
        return f"<Rows: {self.n} raw rows, {lost or 'none dropped'}; batch: {self.batch!r}>"

    def scatter(self, values: Floats) -> Floats:
        """[M] values of the table -> [n] values of the raw rows; dropped rows get 0."""
        out = np.zeros(self.n)
        out[self.kept] = values
        return out


# long: a column an argument, and half of it says what they are
def build_batch(
    *,
    task: Sequence[object],
    trajectory: Sequence[object],
    t: Sequence[int],
    reward: Sequence[float | None],
    observation: Sequence[object],
    action: Sequence[object],
    terminated: Sequence[bool] | None = None,
    truncated: Sequence[bool] | None = None,
    features: NDArray[Any] | FeaturesElsewhere | None = None,
    penalty: Sequence[float] | None = None,
    padding: Sequence[bool] | None = None,
    aborted: Sequence[bool] | None = None,
    strict: bool = False,
) -> Rows:
    """Label values, drop what is no data, validate the rest.

    Prompt groups and trajectories are numbered by the order of their own names, never by arrival: shuffled
    rows give every row the same advantage, as long as a trajectory keeps its name. The greedy clustering
    visits trajectories in that order, so give them names that do not depend on arrival (an index within the
    group, an id of the rollout).

    Args:
        task: prompt group of each row, any value.
        trajectory: trajectory of each row, any value; the same name under two tasks is two trajectories.
        t: step index within the trajectory, from 0.
        reward: reward of the step; None, NaN or infinity drops the whole trajectory.
        observation: what the agent saw, any value (text, dict, array, None).
        action: the action key, any value.
        terminated: True where the environment ended the episode; default all False.
        truncated: True where a horizon ended it; default all False.
        features: [N, D] state features, here or on a device; a non-finite vector drops the whole trajectory.
        penalty: [N] cost of the step's own row.
        padding: True on rows copied to fill a batch: dropped row by row.
        aborted: True on rows of rollouts that failed: drops the whole trajectory.
        strict: raise instead of dropping for a non-finite reward or feature.

    Returns:
        The table and the mapping back. No rows left gives an empty table.

    Raises:
        ValueError: a column of another length; strict and non-finite; what StepBatch refuses (gaps,
            duplicates).

    Examples:
        >>> import bipace
        >>> rows = bipace.build_batch(
        ...     task=["fetch", "fetch", "fetch"],
        ...     trajectory=["first", "first", "second"],
        ...     t=[0, 1, 0],
        ...     reward=[0, 1, 0],
        ...     observation=["door", "hall", "door"],
        ...     action=["open", "walk", "wait"],
        ...     aborted=[False, False, True],
        ... )
        >>> len(rows.batch), rows.dropped
        (2, {'aborted': 1})
    """
    n = len(task)
    _check_lengths(
        n,
        trajectory=trajectory,
        t=t,
        reward=reward,
        observation=observation,
        action=action,
        terminated=terminated,
        truncated=truncated,
        features=features,
        penalty=penalty,
        padding=padding,
        aborted=aborted,
    )
    task_label = ranked(task)
    trajectory_label = segments.pair(task_label, ranked(trajectory))
    rewards = np.array([np.nan if r is None else float(r) for r in reward], np.float64)
    keep = ~_mask(padding, n)
    dropped = {"padding": int(n - keep.sum())}
    bad: dict[str, Bools] = {"aborted": _mask(aborted, n), "non-finite reward": ~np.isfinite(rewards)}
    vectors = (
        features if features is None or isinstance(features, FeaturesElsewhere) else np.asarray(features)
    )
    if vectors is not None:
        bad["non-finite features"] = ~finite_rows(vectors)
    for reason, rows in bad.items():
        whole = np.isin(trajectory_label, trajectory_label[rows & keep]) & keep
        if strict and reason != "aborted" and whole.any():
            row = int(np.flatnonzero(rows & keep)[0])
            raise ValueError(
                f"{reason.split()[1]}: non-finite at row {row}; drop its trajectory or pass strict=False"
            )
        dropped[reason] = int(whole.sum())
        if reason != "aborted" and whole.any():
            named = sorted({f"{trajectory[i]!r} of task {task[i]!r}" for i in np.flatnonzero(whole).tolist()})
            _warn_dropped(dropped[reason], reason, named, np.flatnonzero(rows & keep).tolist())
        keep &= ~whole
    kept = np.flatnonzero(keep).astype(np.int64)
    rows_kept: list[int] = kept.tolist()
    observation_label, distinct = label([observation[i] for i in rows_kept])
    texts = [v for v in distinct if isinstance(v, str)]
    batch = StepBatch(
        task=task_label[kept],
        trajectory=trajectory_label[kept],
        t=np.asarray(t, np.int64)[kept],
        reward=rewards[kept],
        terminated=_mask(terminated, n)[kept],
        truncated=_mask(truncated, n)[kept],
        observation=observation_label,
        action=label([action[i] for i in rows_kept])[0],
        features=None if vectors is None else vectors[kept],
        penalty=None if penalty is None else np.asarray(penalty, np.float64)[kept],
        texts=texts if len(texts) == len(distinct) else None,
    )
    _warn_lone(batch)
    return Rows(batch, kept, n, {reason: rows for reason, rows in dropped.items() if rows})


def _check_lengths(n: int, **columns: Any) -> None:
    for name, column in columns.items():
        if column is not None and len(column) != n:
            raise ValueError(f"{name}: {len(column)} entries, expected {n}, one per row as in task")


def _mask(values: Sequence[bool] | None, n: int) -> Bools:
    return np.zeros(n, np.bool_) if values is None else np.asarray(values, np.bool_)


def _warn_dropped(n: int, reason: str, trajectories: list[str], rows: list[int]) -> None:
    shown = ", ".join(trajectories[:3]) + (
        f" and {len(trajectories) - 3} more" if len(trajectories) > 3 else ""
    )
    message = f"{n} rows dropped with their trajectories: {reason} at row {rows[0]}"
    message += f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    warnings.warn(f"{message}; trajectory {shown}; they get advantage 0", DroppedRowsWarning, stacklevel=3)


def _warn_lone(batch: StepBatch) -> None:
    first = segments.first_rows(segments.compact(batch.trajectory))
    task = batch.task[first]
    if len(task) > 1 and len(np.unique(task)) == len(task):
        warnings.warn(
            f"all {len(task)} prompt groups hold one trajectory, so that no comparison is possible and "
            "advantages are 0; is the task key unique per trajectory? Rollouts of one task must share it",
            LoneGroupsWarning,
            stacklevel=3,
        )
