"""Readers of flat tables: verl's `<step>.jsonl`, TRL's `completions_<step>.parquet`, any table with named columns.

In verl and TRL files a prompt group is one prompt at one training step: the same prompt drawn again later met another
policy. verl 0.9 writes one row a model call with uid `group_rollout_call` (trainer_base._log_rollout_data).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bipace.analyze.messages import action_of, as_text, is_messages, message_steps, text_steps
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["COLUMNS", "column_map", "read_rows", "read_trl", "read_verl"]

COLUMNS: dict[str, tuple[str, ...]] = {
    "task": ("task", "task_id", "uid", "group", "group_id", "prompt_id", "example_id", "question_id"),
    "trajectory": ("trajectory", "traj_uid", "trajectory_id", "episode", "episode_id", "rollout_id", "traj_id"),
    "step": ("step", "t", "turn", "step_index", "step_id", "timestep"),
    "observation": ("anchor_obs", "observation", "obs", "state", "prompt", "input"),
    "action": ("action", "response", "output", "completion"),
    "reward": ("reward", "rewards", "score", "return"),
}
_UID = re.compile(r"^(.*)_(\d+)_(\d+)$")
_CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|$)", re.DOTALL)
_NOT_A_REWARD = {"step", "prompt", "completion", "advantage", "advantages"}


def read_verl(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{input, output, score, step} and, where present, uid, traj_uid or acc.

    Rows whose uid reads `group_rollout_call` are joined to trajectories. Otherwise a row is a trajectory: its output
    is split at chat markers if they were kept, else it is one step.
    """
    joined: dict[tuple[str, str], list[tuple[int, str, Mapping[str, Any]]]] = {}
    for where, row in _rows(found, reading, ("input", "output", "score")):
        match = _UID.match(str(row.get("uid", "")))
        if match:
            key = (f"{match[1]}@{row.get('step', '')}", match[2])
            joined.setdefault(key, []).append((int(match[3]), where, row))
            continue
        task = f"{row.get('uid') or row['input']}@{row.get('step', '')}"
        steps = text_steps(_turns(as_text(row["input"]), as_text(row["output"])), as_number(row["score"]))
        name = str(row.get("traj_uid") or where)
        yield LoggedTrajectory(task, name, steps, outcome=as_number(row.get("acc")), where=where)
    for (task, rollout), calls in joined.items():
        calls.sort(key=lambda call: call[0])
        steps = tuple(
            LoggedStep(
                as_text(row["input"]),
                as_text(row["output"]),
                *action_of(as_text(row["output"])),
                as_number(row["score"]),
            )
            for _, _, row in calls
        )
        outcome = as_number(calls[-1][2].get("acc"))
        yield LoggedTrajectory(task, f"{task} #{rollout}", steps, outcome=outcome, where=calls[0][1])


def read_trl(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{step, prompt, completion, one column a reward function, advantage}: rewards of all functions are summed.

    Which columns are rewards is read off the first row: every other column that holds a number. The weights a trainer
    gave the functions are not in the file.
    """
    names: list[str] | None = None
    for where, row in _rows(found, reading, ("prompt", "completion")):
        if names is None:
            names = [k for k, v in row.items() if k not in _NOT_A_REWARD and isinstance(v, (int, float))]
            reading.notes.append(f"reward = sum of the columns {', '.join(names) or '(none found)'}, unweighted")
        values = [as_number(row.get(name)) for name in names]
        reward = sum(v for v in values if v is not None) if any(v is not None for v in values) else None
        prompt, completion = row["prompt"], row["completion"]
        context, steps = "", ()
        if is_messages(completion):
            before = list(prompt) if is_messages(prompt) else [{"role": "user", "content": as_text(prompt)}]
            context, steps = message_steps([*before, *completion], reward)
        else:
            steps = text_steps([(as_text(prompt), as_text(completion))], reward)
        if not steps:
            reading.skip(where, "the completion holds no answer")
            continue
        yield LoggedTrajectory(f"{as_text(prompt)}@{row.get('step', '')}", where, steps, context, where=where)


def column_map(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Which column plays which part: the user's choice first, then the usual names.

    Raises:
        ValueError: an unknown part, or a column that the table does not have.
    """
    present = list(names)
    for part, column in given.items():
        if part not in COLUMNS:
            raise ValueError(f"--map {part}={column}: no such part; the parts are {', '.join(COLUMNS)}")
        if column not in present:
            raise ValueError(f"--map {part}={column}: no such column; the file has {', '.join(present)}")
    usual = {part: next((c for c in known if c in present), "") for part, known in COLUMNS.items()}
    return {part: given.get(part, usual[part]) for part in COLUMNS}


def read_rows(found: Iterable[Located], reading: Reading, given: Mapping[str, str]) -> Iterator[LoggedTrajectory]:
    """One row a step: task, trajectory, step, observation, action, reward, under the usual or the given names.

    Without a trajectory column every row is a trajectory of one step; without a task column all rows are one group.
    """
    episodes: dict[tuple[str, str], list[tuple[float, str, Mapping[str, Any]]]] = {}
    columns: dict[str, str] = {}
    for where, row in _rows(found, reading, ()):
        if not columns:
            columns = column_map(row, given)
            used = ", ".join(f"{part} = {column}" for part, column in columns.items() if column)
            reading.notes.append(f"columns: {used}")
        if columns["action"] not in row:
            reading.skip(where, f"no action in column {columns['action']!r}")
            continue
        task = as_text(row.get(columns["task"], "all rows"))
        trajectory = as_text(row[columns["trajectory"]]) if row.get(columns["trajectory"]) is not None else where
        order = as_number(row.get(columns["step"])) or 0.0
        episodes.setdefault((task, trajectory), []).append((order, where, row))
    for (task, trajectory), rows in episodes.items():
        rows.sort(key=lambda row: row[0])
        steps = tuple(
            LoggedStep(
                row.get(columns["observation"]),
                as_text(row[columns["action"]]),
                *action_of(as_text(row[columns["action"]])),
                as_number(row.get(columns["reward"])),
            )
            for _, _, row in rows
        )
        yield LoggedTrajectory(task, trajectory, steps, where=rows[0][1])


def _rows(
    found: Iterable[Located], reading: Reading, needed: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, row in found:
        missing = [n for n in needed if not isinstance(row, Mapping) or n not in row]
        if not isinstance(row, Mapping) or missing:
            reading.skip(where, f"no {', '.join(missing) or 'columns'}")
        else:
            yield where, row


def _turns(prompt: str, output: str) -> list[tuple[object, str]]:
    """(observation, response) pairs of a multi-turn output whose chat markers were kept; else one pair."""
    if "<|im_start|>" not in output:
        return [(prompt, output)]
    head, _, tail = output.partition("<|im_start|>")
    turns: list[tuple[object, str]] = [(prompt, head.replace("<|im_end|>", "").strip())]
    read: list[str] = []
    for role, content in _CHATML.findall("<|im_start|>" + tail):
        if role == "assistant":
            turns.append(("\n".join(read), content.strip()))
            read = []
        else:
            read.append(content.strip())
    return turns
