"""Logged trajectories -> the table of steps, with the way back to names and texts."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading
from bipace.core.actions import ACTION_KEYS
from bipace.core.rows import DroppedRowsWarning, LoneGroupsWarning, build_batch
from bipace.core.steps import Floats, Ints, StepBatch

__all__ = ["Table", "build_table", "with_features"]


@dataclass(frozen=True, eq=False)
class Table:
    """The steps of all files, in (task, trajectory, t) order.

    Attributes:
        batch: N steps; `task` and `trajectory` index the two lists below.
        tasks: the prompt groups' names.
        trajectories: the kept trajectories.
        steps: the N logged steps, in row order.
        outcome: [trajectories] stated success, else the sum of rewards.
        shaped: True where an outcome apart from the reward was stated, so that the two can differ.
        parsed: [N] True where the response had the form its file uses; None where the file uses no form.
        dropped: the trajectories without a usable reward, by name.
        clashes: names that several files share.
    """

    batch: StepBatch
    tasks: list[str]
    trajectories: list[LoggedTrajectory]
    steps: list[LoggedStep]
    outcome: Floats
    shaped: bool
    parsed: NDArray[np.bool_] | None
    dropped: list[str]
    clashes: int


def build_table(readings: Sequence[Reading], action_key: str = "action_tag", merge: bool | None = None) -> Table:
    """One table of all files.

    A prompt group is a task of one file: two files may hold two policies. `merge` joins equal task names over files;
    by default only where every file holds a single trajectory (ATIF).

    Raises:
        ValueError: an unknown action key; no trajectory with a reward is left.
    """
    if action_key not in ("action_tag", "first_word"):
        raise ValueError(f"action_key: unknown {action_key!r}, expected action_tag or first_word")
    if merge is None:
        merge = len(readings) > 1 and all(len(reading.trajectories) == 1 for reading in readings)
    found = [(i, trajectory) for i, reading in enumerate(readings) for trajectory in reading.trajectories]
    keys = [(0 if merge else i, trajectory.task) for i, trajectory in found]
    usable = [all(_finite(step.reward) for step in trajectory.steps) for _, trajectory in found]
    if not any(usable):
        raise ValueError(
            f"none of the {len(found)} trajectories has a reward that is a number; credit cannot be computed. "
            "Name the reward column with --map reward=COLUMN, or add a reward to each record"
        )
    kept = [i for i, good in enumerate(usable) if good]
    tasks = list(dict.fromkeys(keys[i] for i in kept))
    number = {key: n for n, key in enumerate(tasks)}
    order = sorted(kept, key=lambda i: (number[keys[i]], i))
    trajectories = [_renamed(found[i][1], found[i][0], len(readings) > 1, readings) for i in order]
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    lengths = [len(trajectory.steps) for trajectory in trajectories]
    batch = _batch([number[keys[i]] for i in order], lengths, steps, action_key)
    totals = np.array([sum(step.reward or 0.0 for step in trajectory.steps) for trajectory in trajectories])
    stated = [trajectory.outcome for trajectory in trajectories]
    shaped = any(o is not None for o in stated)
    clashes = Counter(name for reading in readings for name in {t.task for t in reading.trajectories})
    return Table(
        batch=batch,
        tasks=_task_names(tasks, readings),
        trajectories=trajectories,
        steps=steps,
        outcome=np.array([r if o is None else o for o, r in zip(stated, totals, strict=True)], np.float64),
        shaped=shaped,
        parsed=_parsed(steps),
        dropped=[t.name for good, (_, t) in zip(usable, found, strict=True) if not good],
        clashes=0 if merge else sum(n > 1 for n in clashes.values()),
    )


def with_features(table: Table, features: NDArray[np.float32]) -> Table:
    """The same table with state features [N, D]."""
    return replace(table, batch=replace(table.batch, features=features))


def _batch(task: list[int], lengths: list[int], steps: list[LoggedStep], action_key: str) -> StepBatch:
    trajectory: Ints = np.repeat(np.arange(len(lengths)), lengths)
    with warnings.catch_warnings():
        # Unusable trajectories have been taken out and named already.
        warnings.simplefilter("error", DroppedRowsWarning)
        # Groups of one are a finding of the first rank on the page; a warning would say it twice.
        warnings.simplefilter("ignore", LoneGroupsWarning)
        rows = build_batch(
            task=np.repeat(task, lengths).tolist(),
            trajectory=trajectory.tolist(),
            t=np.concatenate([np.arange(n) for n in lengths]).tolist(),
            reward=[step.reward for step in steps],
            observation=[step.observation for step in steps],
            action=[_key(step, action_key) for step in steps],
        )
    return rows.batch


def _key(step: LoggedStep, action_key: str) -> str:
    return step.action if action_key == "action_tag" else str(ACTION_KEYS[action_key](step.action, ()).key)


def _finite(reward: float | None) -> bool:
    return reward is not None and bool(np.isfinite(reward))


def _parsed(steps: list[LoggedStep]) -> NDArray[np.bool_] | None:
    forms = {step.form for step in steps}
    # Answers in plain text are legitimate beside tool calls; beside tags they are answers that missed the form.
    return np.array([step.form != "text" for step in steps]) if "tag" in forms else None


def _renamed(trajectory: LoggedTrajectory, file: int, several: bool, readings: Sequence[Reading]) -> LoggedTrajectory:
    return replace(trajectory, name=f"{readings[file].file}: {trajectory.name}") if several else trajectory


def _task_names(tasks: list[tuple[int, str]], readings: Sequence[Reading]) -> list[str]:
    several = len({file for file, _ in tasks}) > 1
    return [f"{readings[file].file}: {name}" if several else name for file, name in tasks]
