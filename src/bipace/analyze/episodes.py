"""Readers of formats that keep one trajectory in one record.

Sources: tau-bench's result lists ({task_id, trial, reward, traj}), OpenAI message lists, verifiers 0.1 `results.jsonl`
(save_utils.state_to_output) and 0.4 `traces.jsonl` (v1/trace.py), ATIF (Agent Trajectory Interchange Format), and this
project's own episodes (bipace.rollout.records).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bipace.analyze.messages import as_text, is_messages, message_steps
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["read_atif", "read_bipace", "read_openai", "read_tau_bench", "read_traces", "read_verifiers"]

_REWARDS = ("reward", "score", "return", "success", "resolved")
_TASKS = ("task_id", "task", "example_id", "prompt_id", "instance_id", "question_id", "problem_id", "uid")
_NAMES = ("trajectory_id", "traj_uid", "id", "trial", "rollout", "sample", "member")


def read_tau_bench(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{task_id, trial, reward, traj: messages}: one assistant message is a step, one task id a prompt group."""
    for where, record in _mappings(found, reading):
        if is_messages(record.get("traj")):
            name = f"task {record.get('task_id')}, trial {record.get('trial', where)}"
            yield from _conversation(record["traj"], _reward(record, where, reading), record, name, where, reading)
        else:
            reading.skip(where, "traj is not a list of messages")


def read_openai(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """A list of messages, or a record that holds one under `messages`; reward, task and id beside it if given.

    Without a task id the prompt group is the text before the first answer.
    """
    for where, record in found:
        record = {"messages": record} if isinstance(record, list) else record
        messages = next((record[k] for k in ("messages", "conversation") if is_messages(record.get(k))), None) if (
            isinstance(record, Mapping)
        ) else None  # fmt: skip
        if messages is None:
            reading.skip(where, "holds no list of messages")
            continue
        yield from _conversation(messages, _reward(record, where, reading), record, "", where, reading)


def read_verifiers(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{example_id, prompt, completion, reward}: prompt and completion are message lists or text."""
    for where, record in _mappings(found, reading):
        messages = [*_messages(record.get("prompt"), "user"), *_messages(record.get("completion"), "assistant")]
        yield from _conversation(messages, _reward(record, where, reading), record, "", where, reading)


def read_traces(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """Episodes of verifiers 0.4: each trainable trace's longest branch, its rewards weighted and summed."""
    for where, record in _mappings(found, reading):
        group = record.get("group") or {}
        for trace in record.get("traces") or ():
            if not (trace.get("agent") or {}).get("trainable", True):
                continue
            rewards = [r for r in (trace.get("rewards") or {}).values() if isinstance(r, Mapping)]
            scores = [as_number(r.get("score")) for r in rewards]
            reward = (
                sum(s * float(r.get("weight", 1.0)) for s, r in zip(scores, rewards, strict=True) if s is not None)
                if any(s is not None for s in scores)
                else None
            )
            if reward is None:
                _no_reward(where, reading)
            task = trace.get("task") or {}
            about = {"task_id": group.get("id") or task.get("key") or task.get("hash"), "id": trace.get("id")}
            yield from _conversation(_branch(trace.get("nodes") or ()), reward, about, "", where, reading)


def read_atif(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """ATIF: {schema_version, session_id, agent, steps: [{source, message, tool_calls, observation}]}.

    A step of source `agent` is a step; what came from the user, the system or a tool's observation before it is what
    it read. The reward is looked for beside the trajectory (reward, final_metrics.reward, extra.reward). The prompt
    group is a task id if there is one, else the first user message.
    """
    for where, record in _mappings(found, reading):
        beside = [record, *(record.get(k) for k in ("final_metrics", "extra", "metadata"))]
        about = {k: v for part in reversed(beside) if isinstance(part, Mapping) for k, v in part.items()}
        messages: list[dict[str, Any]] = []
        for step in record.get("steps") or ():
            role = {"agent": "assistant", "system": "system"}.get(str(step.get("source")), "user")
            messages.append({"role": role, "content": step.get("message"), "tool_calls": step.get("tool_calls")})
            results = (step.get("observation") or {}).get("results") or ()
            messages += [{"role": "tool", "content": r.get("content")} for r in results]
        about.setdefault("id", record.get("session_id"))
        yield from _conversation(messages, _reward(about, where, reading), about, "", where, reading)


def read_bipace(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """Episodes of this project: {task, member, won, error, steps}. Aborted ones are skipped and counted."""
    for where, record in _mappings(found, reading):
        if record.get("error"):
            reading.skip(where, f"aborted by the environment: {record['error']}")
            continue
        steps = tuple(
            LoggedStep(
                observation=step.get("observation"),
                response=as_text(step.get("response")),
                action=as_text(step.get("action")).strip().lower(),
                form="tag" if step.get("parsed", True) else "text",
                reward=as_number(step.get("reward")),
            )
            for step in record["steps"]
        )
        if not steps:
            reading.skip(where, "an episode without steps")
            continue
        task, outcome = str(record.get("task")), as_number(record.get("won"))
        yield LoggedTrajectory(task, f"{task} #{record.get('member', where)}", steps, outcome=outcome, where=where)


def _conversation(
    messages: Sequence[Mapping[str, Any]],
    reward: float | None,
    about: Mapping[str, Any],
    name: str,
    where: str,
    reading: Reading,
) -> Iterator[LoggedTrajectory]:
    context, steps = message_steps(messages, reward)
    if not steps:
        reading.skip(where, "no assistant message, so no step")
        return
    task = next((str(about[k]) for k in _TASKS if isinstance(about.get(k), (str, int))), "")
    task = task or as_text(steps[0].observation) or context
    name = name or next((str(about[k]) for k in _NAMES if isinstance(about.get(k), (str, int))), where)
    yield LoggedTrajectory(task, name, steps, context, where=where)


def _mappings(found: Iterable[Located], reading: Reading) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, record in found:
        if isinstance(record, Mapping):
            yield where, record
        else:
            reading.skip(where, f"{type(record).__name__} where a record of the format {reading.format} was expected")


def _reward(record: Mapping[str, Any], where: str, reading: Reading) -> float | None:
    inner = record.get("reward_info")
    if isinstance(inner, Mapping) and "reward" not in record:
        record = {**record, "reward": inner.get("reward")}
    given = next((record[k] for k in _REWARDS if record.get(k) is not None), None)
    value = as_number(given)
    if value is None:
        _no_reward(where, reading, given)
    return value


def _no_reward(where: str, reading: Reading, given: object = None) -> None:
    if reading.strict:
        raise ValueError(f"{reading.file}: {where}: reward is {given!r}, expected a number")


def _messages(value: object, role: str) -> list[Mapping[str, Any]]:
    if isinstance(value, str) and value.startswith("[{"):
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            parsed = value
        value = parsed if is_messages(parsed) else value
    if is_messages(value):
        return list(value)  # pyright: ignore[reportArgumentType]  (is_messages has checked it)
    return [{"role": role, "content": value}] if value not in (None, []) else []


def _branch(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Messages from the root to the last sampled node; unsampled assistant messages are context, not steps."""
    last = next((i for i in range(len(nodes) - 1, -1, -1) if nodes[i].get("sampled")), -1)
    path: list[Mapping[str, Any]] = []
    while 0 <= last < len(nodes) and len(path) <= len(nodes):
        node = nodes[last]
        message = dict(node.get("message") or {})
        if message.get("role") == "assistant" and not node.get("sampled"):
            message["role"] = "user"
        path.append(message)
        parent = node.get("parent")
        last = parent if isinstance(parent, int) else -1
    return path[::-1]
