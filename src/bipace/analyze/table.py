"""Logged trajectories -> the table of steps, with the way back to names and texts."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bipace.analyze.records import Dropped, LoggedStep, LoggedTrajectory, Reading
from bipace.core.actions import ACTION_KEYS
from bipace.core.rows import DroppedRowsWarning, LoneGroupsWarning, build_batch
from bipace.core.steps import Floats, Ints, StepBatch

__all__ = ["NO_OWN_REWARD", "NO_REWARD", "Table", "build_table", "file_names", "with_features"]

NO_REWARD = "no reward that is a number"
NO_OWN_REWARD = "sub-agent without a reward of its own"


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
        dropped: the rollouts outside every baseline, with their cause: failed ones, and those without a
            usable reward.
        clashes: names that several files share.
        source: [trajectories] which reading each one came from.
        rewarded: False where no rollout has a reward: structure can be shown, credit not.
    """

    batch: StepBatch
    tasks: list[str]
    trajectories: list[LoggedTrajectory]
    steps: list[LoggedStep]
    outcome: Floats
    shaped: bool
    parsed: NDArray[np.bool_] | None
    dropped: list[Dropped]
    clashes: int
    source: Ints
    rewarded: bool = True


def build_table(
    readings: Sequence[Reading], action_key: str = "action_tag", merge: bool | None = None
) -> Table:
    """One table of all files.

    A prompt group is a task of one file, and a role where the rollouts name roles: two files may hold two
    policies, and a judge is no peer of a solver. `merge` joins equal task names over files; by default only
    where every file holds a single trajectory. Failed rollouts are outside, and so are those without a usable
    reward; where no rollout at all has one, all are kept with reward 0 and `rewarded` is False.

    Raises:
        ValueError: an unknown action key; no rollout is left.
    """
    if action_key not in ("action_tag", "first_word"):
        raise ValueError(f"action_key: unknown {action_key!r}, expected action_tag or first_word")
    if merge is None:
        merge = len(readings) > 1 and all(len(reading.trajectories) <= 1 for reading in readings)
    found = [(i, trajectory) for i, reading in enumerate(readings) for trajectory in reading.trajectories]
    keys = [(0 if merge else i, trajectory.task, trajectory.role) for i, trajectory in found]
    rewarded = any(not t.out and all(_finite(step.reward) for step in t.steps) for _, t in found)
    causes = [_cause(trajectory, rewarded) for _, trajectory in found]
    kept = [i for i, cause in enumerate(causes) if not cause]
    if not kept:
        told = "; ".join(f"{n} {cause}" for cause, n in Counter(causes).most_common(5))
        raise ValueError(f"none of the {len(found)} rollouts counts, so there is nothing to compare: {told}")
    tasks = list(dict.fromkeys(keys[i] for i in kept))
    number = {key: n for n, key in enumerate(tasks)}
    order = sorted(kept, key=lambda i: (number[keys[i]], i))
    names = file_names([reading.file for reading in readings])
    trajectories = [_renamed(found[i][1], found[i][0], len(readings) > 1, names) for i in order]
    if not rewarded:
        trajectories = [
            replace(t, steps=tuple(replace(s, reward=0.0) for s in t.steps)) for t in trajectories
        ]
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    lengths = [len(trajectory.steps) for trajectory in trajectories]
    batch = _batch([number[keys[i]] for i in order], lengths, steps, action_key)
    totals = np.array([sum(step.reward or 0.0 for step in trajectory.steps) for trajectory in trajectories])
    stated = [trajectory.outcome for trajectory in trajectories]
    clashes = Counter(name for reading in readings for name in {t.task for t in reading.trajectories})
    return Table(
        batch=batch,
        tasks=_task_names(tasks, names),
        trajectories=trajectories,
        steps=steps,
        outcome=np.array(
            [r if not _finite(o) else o for o, r in zip(stated, totals, strict=True)], np.float64
        ),
        shaped=any(o is not None for o in stated),
        parsed=_parsed(steps),
        dropped=[
            Dropped(t.name, t.task, cause, t.where, number.get(key))
            for cause, key, (_, t) in zip(causes, keys, found, strict=True)
            if cause
        ],
        clashes=0 if merge else sum(n > 1 for n in clashes.values()),
        source=np.array([found[i][0] for i in order], np.int64),
        rewarded=rewarded,
    )


def _cause(trajectory: LoggedTrajectory, rewarded: bool) -> str:
    """Why a rollout is outside the table, or ""."""
    if trajectory.out:
        return trajectory.out
    if not rewarded or all(_finite(step.reward) for step in trajectory.steps):
        return ""
    return NO_OWN_REWARD if trajectory.parent else NO_REWARD


def file_names(files: Sequence[str]) -> list[str]:
    """Files without their folders, but for as many of them as keep two apart; equal paths stay equal."""
    parts = {file: Path(file).parts or (file,) for file in files}
    found: dict[str, str] = {}
    for n in range(1, max(map(len, parts.values()), default=0) + 1):
        ends = Counter(own[-n:] for own in parts.values())
        for file, own in parts.items():
            if file not in found and (ends[own[-n:]] == 1 or n >= len(own)):
                found[file] = str(Path(*own[-n:]))
    return [found[file] for file in files]


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
    # Answers in plain text are legitimate beside tool calls; beside tags they are answers that missed the
    # form.
    return np.array([step.form != "text" for step in steps]) if "tag" in forms else None


def _renamed(
    trajectory: LoggedTrajectory, file: int, several: bool, names: Sequence[str]
) -> LoggedTrajectory:
    return replace(trajectory, name=f"{names[file]}: {trajectory.name}") if several else trajectory


def _task_names(tasks: list[tuple[int, str, str]], names: Sequence[str]) -> list[str]:
    several = len({file for file, _, _ in tasks}) > 1
    roles = len({role for _, _, role in tasks}) > 1
    return [
        (f"{names[file]}: " if several else "") + name + (f" [{role}]" if roles and role else "")
        for file, name, role in tasks
    ]
