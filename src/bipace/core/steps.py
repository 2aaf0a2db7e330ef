"""The table of steps: the one type every estimator reads.

One row per agent step. A *step* is one model call: the policy saw a prompt, gave a response, and the
environment answered with a reward. Row order carries no meaning; the step index `t` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core.features import Features, FeaturesElsewhere, finite_rows, on_host

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

__all__ = ["Bools", "Floats", "Ints", "StepBatch"]

_COLUMNS: dict[str, Any] = {
    "task": np.int64,
    "trajectory": np.int64,
    "t": np.int64,
    "reward": np.float64,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "observation": np.int64,
    "action": np.int64,
}


@dataclass(frozen=True, eq=False)
class StepBatch:
    """A batch of N agent steps, read-only, validated once.

    Every array has one entry per row. Rows of rejected, padded or aborted rollouts must be dropped before
    the table is built (`bipace.core.rows.build_batch` does it), so no mask ever reaches an estimator.

    Attributes:
        task: [N] int, the prompt group: steps of one task instance share it.
        trajectory: [N] int, unique over the batch: a trajectory belongs to exactly one task.
        t: [N] int, step index within the trajectory, from 0, without gaps.
        reward: [N] float64, reward of the step; finite.
        terminated: [N] bool, True where the environment ended the episode at this step.
        truncated: [N] bool, True where the horizon (or a token limit) ended it at this step.
        observation: [N] int label: equal observations have equal labels.
        action: [N] int label of the action key: equal keys have equal labels.
        features: [N, D] float32 state features, or None; finite. float16 input is widened. Features on a
            device (`bipace.core.features`) stay there.
        penalty: [N] float64 cost >= 0 of the step's own row (an invalid action), or None for all zero. It
            never enters a return or a group statistic: `advantages` subtracts it from its own row last.
        texts: the text of each observation label (index = label), or None. Only `by_similarity` reads it.
        to_go: [N] float64 return-to-go of each step where an engine has computed it, or None. `return_to_go`
            then answers with it.
        whole: [N] float64 return of each step's trajectory where an engine has computed it, or None.
            `trajectory_return` then answers with it.

    Raises:
        ValueError: naming the field, its shape or the offending value, and what was expected.

    Examples:
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> len(batch), batch.task.tolist(), batch.observation.tolist()
        (4, [0, 0, 0, 0], [0, 1, 0, 1])
    """

    task: Ints
    trajectory: Ints
    t: Ints
    reward: Floats
    terminated: Bools
    truncated: Bools
    observation: Ints
    action: Ints
    features: Features | None = None
    penalty: Floats | None = None
    texts: Sequence[str] | None = None
    to_go: Floats | None = None
    whole: Floats | None = None

    def __repr__(self) -> str:
        groups, trajectories = len(np.unique(self.task)), len(np.unique(self.trajectory))
        width = None if self.features is None else self.features.shape[1]
        seen = "no features" if width is None else f"features of width {width}"
        return f"<StepBatch: {len(self)} steps, {trajectories} trajectories, {groups} prompt groups, {seen}>"

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.task)))
        for name, dtype in _COLUMNS.items():
            self._set(name, _column(name, getattr(self, name), dtype, n))
        if self.penalty is not None:
            self._set("penalty", _column("penalty", self.penalty, np.float64, n))
            _require_finite("penalty", self.penalty)
            if n and self.penalty.min() < 0:
                raise ValueError(f"penalty: must be >= 0, got {self.penalty.min()}")
        _require_finite("reward", self.reward)
        for name in ("to_go", "whole"):
            given = getattr(self, name)
            if given is not None:
                self._set(name, _column(name, given, np.float64, n))
                _require_finite(name, getattr(self, name))
        if self.features is not None:
            object.__setattr__(self, "features", _features(self.features, n))
        if self.texts is not None and n and int(self.observation.max()) >= len(self.texts):
            raise ValueError(
                f"texts: has {len(self.texts)} entries but observation holds label "
                f"{int(self.observation.max())}; "
                "give one text per observation label"
            )
        self._check_trajectories()

    def __len__(self) -> int:
        return len(self.task)

    def take(self, rows: Ints) -> StepBatch:
        """A new table of the given rows, in the given order (whole trajectories only)."""
        columns: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        texts = columns.pop("texts")
        chosen: dict[str, Any] = {k: None if v is None else v[rows] for k, v in columns.items()}
        return StepBatch(texts=texts, **chosen)

    def order(self) -> Ints:
        """[N] row indices sorted by (task, trajectory, t): the visit order of every pass over the table."""
        return np.lexsort((self.t, self.trajectory, self.task)).astype(np.int64)

    def _set(self, name: str, value: NDArray[Any]) -> None:
        value.setflags(write=False)
        object.__setattr__(self, name, value)

    def _check_trajectories(self) -> None:
        if not len(self):
            return
        order = np.lexsort((self.t, self.trajectory))
        trajectory, t, task = self.trajectory[order], self.t[order], self.task[order]
        first = np.r_[True, trajectory[1:] != trajectory[:-1]]
        mixed = ~first[1:] & (task[1:] != task[:-1])
        if mixed.any():
            i = int(np.flatnonzero(mixed)[0])
            raise ValueError(
                f"trajectory: {trajectory[i]} has rows under two tasks, {task[i]} and {task[i + 1]}"
            )
        start = np.maximum.accumulate(np.where(first, np.arange(len(t)), 0))
        expected = np.arange(len(t)) - start
        wrong = t != expected
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            kind = "duplicate (trajectory, t)" if not first[i] and t[i] == t[i - 1] else "a gap in t"
            raise ValueError(
                f"t: {kind} in trajectory {trajectory[i]}: found t={t[i]} where t={expected[i]} was "
                f"expected; "
                "every trajectory needs t = 0, 1, ..., each once"
            )


def _column(name: str, value: Any, dtype: Any, n: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != (n,):
        raise ValueError(f"{name}: shape {array.shape}, expected ({n},): one entry per row, as in task")
    if np.issubdtype(dtype, np.integer) and array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name}: dtype {array.dtype}, expected integers")
    return np.array(array, dtype=dtype)


def _features(value: Any, n: int) -> Features:
    array = value if isinstance(value, FeaturesElsewhere) else np.asarray(value)
    if len(array.shape) != 2 or array.shape[0] != n:
        raise ValueError(f"features: shape {array.shape}, expected ({n}, D): one vector per row")
    if isinstance(array, np.ndarray) and not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"features: dtype {array.dtype}, expected floating point")
    broken = np.flatnonzero(~finite_rows(array))[:1]
    if len(broken):
        _require_finite("features", on_host(array[broken]), int(broken[0]))
    if isinstance(array, FeaturesElsewhere):
        return array
    # A read-only float32 view costs nothing; the caller's own array stays writable to the caller.
    found = np.asarray(array, np.float32)[:]
    found.setflags(write=False)
    return found


def _require_finite(name: str, array: NDArray[Any], first_row: int = 0) -> None:
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
            f"{name}: {array[where]} at row {first_row + where[0]}; must be finite. Drop that trajectory "
            "before building the table (bipace.core.rows.build_batch does it and says so)"
        )
