"""Reader of flat tables: one row a step, in JSON lines, CSV or parquet, under usual or given names."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bipace.analyze.fields import pick
from bipace.analyze.messages import action_of, as_text
from bipace.analyze.readers.base import OUTCOMES, failure, mapping_records
from bipace.analyze.readers.rewards import settled
from bipace.analyze.records import Doubt, LoggedStep, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["COLUMNS", "column_map", "is_rows", "read_rows"]

COLUMNS: dict[str, tuple[str, ...]] = {
    "task": (
        "task",
        "task_id",
        "uid",
        "group",
        "group_id",
        "prompt_id",
        "example_id",
        "question_id",
        "instance_id",
    ),
    "trajectory": (
        "trajectory",
        "traj_uid",
        "trajectory_id",
        "episode",
        "episode_id",
        "rollout_id",
        "traj_id",
    ),
    "step": ("step", "t", "turn", "step_index", "step_id", "timestep"),
    "observation": ("anchor_obs", "observation", "obs", "state", "prompt", "input"),
    "action": ("action", "response", "output", "completion"),
    "reward": ("reward", "rewards", "score", "return"),
    "outcome": OUTCOMES,
    "role": ("agent", "agent_name", "agent_role"),
    "finish": ("finish_reason", "stop_reason"),
    "advantage": ("advantage", "advantages"),
    "version": ("policy_version", "model_version", "weight_version"),
}
_HEAD = 200  # rows that show which columns there are: a null in the first row drops none
_CUT = ("length", "max_tokens", "max_output_tokens")


def column_map(
    names: Iterable[str], given: Mapping[str, str], rows: Iterable[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """Which column plays which part: the user's choice first, then the usual names.

    Args:
        names: the columns there are.
        given: part -> column; a dotted name looks into nested values of `rows`.
        rows: some rows, in which a nested name must hold something.

    Raises:
        ValueError: an unknown part, or a column that the table does not have.
    """
    present, head = list(names), list(rows)
    for part, column in given.items():
        if part not in COLUMNS:
            raise ValueError(f"--map {part}={column}: no such part; the parts are {', '.join(COLUMNS)}")
        if column not in present and not any(pick(row, column) is not None for row in head):
            raise ValueError(f"--map {part}={column}: no such column; the file has {', '.join(present)}")
    usual = {part: next((c for c in known if c in present), "") for part, known in COLUMNS.items()}
    return {part: given.get(part, usual[part]) for part in COLUMNS}


def is_rows(record: object) -> bool:
    """A row of steps by its names: an action that is no object, a reward or outcome, and whose step it is."""
    if not isinstance(record, Mapping):
        return False
    found = column_map(record, {})
    done = record.get(found["action"])
    scalar = isinstance(done, (str, int, float)) and not isinstance(done, bool)
    whose = found["trajectory"] or (found["task"] and found["step"])
    return bool(scalar and (found["reward"] or found["outcome"]) and whose)


def read_rows(
    found: Iterable[Located], reading: Reading, given: Mapping[str, str]
) -> Iterator[LoggedTrajectory]:
    """One row a step: task, trajectory, step, observation, action, reward, under usual or given names.

    Without a trajectory column every row is a trajectory of one step; without a task column all rows are one
    group: both are doubts that the findings name.
    """
    rows = mapping_records(found, reading)
    head = list(itertools.islice(rows, _HEAD))
    names = list(dict.fromkeys(str(name) for _, row in head for name in row))
    columns = column_map(names, given, (row for _, row in head))
    used = ", ".join(f"{part} = {column}" for part, column in columns.items() if column)
    reading.notes.append(f"columns: {used}")
    unused = [name for name in names if name not in columns.values()]
    if unused:
        reading.notes.append(f"columns not used: {', '.join(unused[:20])}")
    _missing(columns, reading)
    episodes: dict[tuple[str, str], list[tuple[float, str, Mapping[str, Any]]]] = {}
    for where, row in itertools.chain(head, rows):
        done = pick(row, columns["action"]) if columns["action"] else None
        if done is None:
            reading.skip(where, f"no action in column {columns['action']!r}")
            continue
        task = as_text(pick(row, columns["task"])) if columns["task"] else "all rows"
        trajectory = pick(row, columns["trajectory"]) if columns["trajectory"] else None
        order = as_number(pick(row, columns["step"])) if columns["step"] else None
        key = (task, where if trajectory is None else as_text(trajectory))
        episodes.setdefault(key, []).append((0.0 if order is None else order, where, row))
    yield from _trajectories(episodes, columns, reading)


Episodes = dict[tuple[str, str], list[tuple[float, str, Mapping[str, Any]]]]


def _trajectories(
    episodes: Episodes, columns: Mapping[str, str], reading: Reading
) -> Iterator[LoggedTrajectory]:
    for rows in episodes.values():
        rows.sort(key=lambda row: row[0] if row[0] == row[0] else 0.0)
    if columns["step"]:
        _repeated_steps(episodes, reading)
    column = columns["reward"] or columns["outcome"]
    rewards = settled(
        [[as_number(pick(row, column)) for _, _, row in rows] for rows in episodes.values()], reading
    )
    for ((task, trajectory), rows), earned in zip(episodes.items(), rewards, strict=True):
        steps = tuple(_step(row, columns, reward) for (_, _, row), reward in zip(rows, earned, strict=True))
        last = rows[-1][2]
        role = as_text(pick(last, columns["role"])) if columns["role"] else ""
        stated = (
            [as_number(pick(row, columns["outcome"])) for _, _, row in rows] if columns["outcome"] else []
        )
        yield LoggedTrajectory(
            task,
            trajectory,
            steps,
            outcome=next((o for o in reversed(stated) if o is not None), None),
            where=rows[0][1],
            role="" if role in ("user", "assistant", "system", "tool") else role,
            out=failure(last),
            ids=(trajectory,),
        )


def _step(row: Mapping[str, Any], columns: Mapping[str, str], reward: float | None) -> LoggedStep:
    def at(part: str) -> Any:
        return pick(row, columns[part]) if columns[part] else None

    response = as_text(at("action"))
    version = at("version")
    return LoggedStep(
        at("observation"),
        response,
        *action_of(response),
        reward,
        cut=at("finish") in _CUT,
        version="" if version is None else as_text(version),
        logged=as_number(at("advantage")),
    )


def _missing(columns: Mapping[str, str], reading: Reading) -> None:
    told = {
        "task": ("one-group", "the table names no task, so all its rows are one prompt group"),
        "trajectory": ("one-step", "the table names no trajectory, so every row is a trajectory of one step"),
        "observation": ("no-observations", "the table names no observation"),
    }
    for part, (identity, text) in told.items():
        if not columns[part]:
            reading.doubts.append(Doubt(identity, 1, f"{text}: --map {part}=COLUMN"))


def _repeated_steps(episodes: Episodes, reading: Reading) -> None:
    twice = sum(
        any(n > 1 for n in Counter(order for order, _, _ in rows).values()) for rows in episodes.values()
    )
    if twice:
        text = (
            f"{twice} trajectories hold a step index twice: several rollouts under one id, or rows "
            "logged twice"
        )
        reading.doubts.append(Doubt("duplicate-ids", twice, text))
