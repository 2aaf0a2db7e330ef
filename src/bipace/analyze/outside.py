"""Rewards kept in a file of their own, joined to the rollouts by id (`--rewards FILE`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bipace.analyze.fields import cause, first, named
from bipace.analyze.messages import on_last
from bipace.analyze.readers.base import OUTCOMES, REWARDS
from bipace.analyze.records import Doubt, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import records

__all__ = ["join_rewards"]

_IDS = (
    "id",
    "trajectory_id",
    "traj_uid",
    "rollout_id",
    "instance_id",
    "trial_name",
    "name",
    "uid",
    "task_id",
    "key",
)
# A SWE-bench report: lists of ids by what became of them.
_REPORT = {
    "resolved_ids": 1.0,
    "unresolved_ids": 0.0,
    "empty_patch_ids": 0.0,
    "resolved": 1.0,
    "unresolved": 0.0,
}
_FAILED = ("error_ids", "incomplete_ids", "error")


def join_rewards(readings: Sequence[Reading], path: Path) -> None:
    """Put the rewards of a file on the rollouts whose id, name or file they name.

    The file holds an object {id: reward}, a table with an id and a reward (JSON lines, CSV, parquet), or a
    SWE-bench report (resolved_ids, unresolved_ids, error_ids). A null reward, or an id among the errors, puts
    the rollout out: a grader that failed says nothing. An id that names several rollouts is given to none of
    them.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file holds no id with a reward, or none that names a rollout.
    """
    if not path.is_file():
        raise FileNotFoundError(f"--rewards {path}: no such file")
    held = Reading(str(path), "rewards")
    found = dict(_entries(path, held))
    if not found:
        expected = "{id: reward}, rows with an id and a reward, or a SWE-bench report"
        raise ValueError(f"--rewards {path}: no id with a reward; expected {expected}")
    known = Counter(i for reading in readings for t in reading.trajectories for i in _names(reading, t))
    used: set[str] = set()
    shared: set[str] = set()
    for reading in readings:
        reading.trajectories = [
            _rewarded(t, _names(reading, t), found, known, used, shared) for t in reading.trajectories
        ]
    if not used:
        example = next(
            (i for reading in readings for t in reading.trajectories for i in _names(reading, t)), "none"
        )
        told = (
            f"{len(shared)} of its ids name several rollouts each"
            if shared
            else "none of its ids names a rollout"
        )
        raise ValueError(
            f"--rewards {path}: {told} (its first id is {next(iter(found))!r}; a rollout here is {example!r})"
        )
    readings[0].notes.append(f"rewards of {path}: {len(used)} of {len(found)} ids were joined")
    left = len(found) - len(used)
    if left:
        text = f"{left} ids of {path} name no rollout here, or several ({len(shared)})"
        readings[0].doubts.append(Doubt("unmatched-rewards", left, text))


def _entries(path: Path, held: Reading) -> Iterator[tuple[str, float | None]]:
    for _, record in records(path, held):
        if not isinstance(record, Mapping):
            continue
        lists = [name for name in (*_REPORT, *_FAILED) if _is_ids(record.get(name))]
        identity = named(record, _IDS)
        if lists:
            for name in lists:
                yield from ((str(i), _REPORT.get(name)) for i in record[name])
        elif (identity and first(record, (*REWARDS, *OUTCOMES)) is not None) or (
            identity and "reward" in record
        ):
            yield identity, as_number(first(record, (*REWARDS, *OUTCOMES)))
        else:
            yield from _pairs(record)


def _pairs(record: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    for identity, value in record.items():
        if isinstance(value, Mapping):
            value = first(value, (*REWARDS, *OUTCOMES))
        if value is None or as_number(value) is not None:
            yield str(identity), as_number(value)


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(i, (str, int)) for i in value)


def _names(reading: Reading, trajectory: LoggedTrajectory) -> tuple[str, ...]:
    """Every name of a rollout; a file that holds one rollout names it too."""
    own = Path(reading.file)
    alone = (own.name, own.name.split(".")[0]) if len(reading.trajectories) == 1 else ()
    return tuple(dict.fromkeys((trajectory.name, *trajectory.ids, *alone)))


def _rewarded(
    trajectory: LoggedTrajectory,
    names: Sequence[str],
    found: Mapping[str, float | None],
    known: Mapping[str, int],
    used: set[str],
    shared: set[str],
) -> LoggedTrajectory:
    fitting = [name for name in names if name in found]
    shared.update(name for name in fitting if known[name] > 1)
    identity = next((name for name in fitting if known[name] == 1), None)
    if identity is None:
        return trajectory
    used.add(identity)
    reward = found[identity]
    if reward is None:
        return replace(trajectory, out=trajectory.out or cause("grader", "no reward in the rewards file"))
    rewards = on_last(reward, len(trajectory.steps))
    steps = tuple(replace(step, reward=r) for step, r in zip(trajectory.steps, rewards, strict=True))
    return replace(trajectory, steps=steps)
