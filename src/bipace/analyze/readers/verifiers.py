"""Reader of verifiers 0.4 episodes and traces, as prime-rl writes them too (verifiers/v1/trace.py).

A trace is a graph of messages: each node names its parent, and a node that a model call produced is
`sampled`. Branches are several leaves: a compaction, a retry, a sub-agent inside of one harness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bipace.analyze.fields import cause, mapped, mappings, named, pick
from bipace.analyze.messages import message_steps, on_last
from bipace.analyze.readers.base import failure
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number

__all__ = ["is_traces", "read_traces"]


def is_traces(record: object) -> bool:
    """An episode {task, traces}, or a bare trace {nodes, agent or task, rewards}."""
    if not isinstance(record, Mapping):
        return False
    nodes = record.get("nodes")
    return isinstance(record.get("traces"), list) or (
        isinstance(nodes, list) and all(isinstance(n, Mapping) and "message" in n for n in nodes[:3])
    )


def read_traces(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """Every trace whose agent is trained is a trajectory; the role is the agent's name.

    All sampled messages count once, in the order in which they were made: the branches of a trace are one
    trajectory. A step has read what stands between it and the sampled message before it on its own path. A
    message that no model call produced is something read, not a step. The reward is the weighted sum of the
    trace's rewards; a trace whose rewards are all null, or that failed, is out.
    """
    traces = [record] if "nodes" in record else mappings(record.get("traces"), "traces")
    failed = _failed(record) if "nodes" not in record else ""
    if not traces:
        task = _task(record, record)
        yield LoggedTrajectory(
            task, named(record, ("id",)) or where, (), where=where, out=failed or "no trace"
        )
    for number, trace in enumerate(traces):
        agent = mapped(trace.get("agent"), f"traces[{number}].agent")
        if agent.get("trainable") is False:
            reading.folded["traces of agents that are not trained"] += 1
            continue
        yield _trace(trace, record, where, number, failed)


def _trace(
    trace: Mapping[str, Any], episode: Mapping[str, Any], where: str, number: int, failed: str
) -> LoggedTrajectory:
    nodes = mappings(trace.get("nodes"), f"traces[{number}].nodes")
    reward, graded = _reward(trace, number)
    cuts = {_index(nodes, c.get("node")) for c in _calls(trace) if c.get("finish_reason") == "length"}
    context, steps = _steps(nodes, cuts, _policy(episode))
    rewards = on_last(reward, len(steps))
    out = failed or _failed(trace) or ("" if steps else "no answer of a model")
    out = out or ("" if graded else "grader: every reward is null")
    leaves = len(steps) - len({_ancestor(nodes, i) for i, n in enumerate(nodes) if n.get("sampled")} - {None})
    notes = (f"{leaves} branches of one rollout, joined; what they share counts once",) if leaves > 1 else ()
    identity = named(trace, ("id",))
    return LoggedTrajectory(
        task=_task(trace, episode),
        name=identity or f"{where}, trace {number}",
        steps=tuple(replace(step, reward=value) for step, value in zip(steps, rewards, strict=True)),
        context=context,
        where=where,
        role=named(trace, ("agent.name",)),
        out=out,
        ids=tuple(i for i in (identity, named(episode, ("id",))) if i),
        notes=notes,
    )


def _steps(nodes: Sequence[Mapping[str, Any]], cuts: set[Any], version: str) -> tuple[str, list[LoggedStep]]:
    """Every sampled message with what it read since the sampled message before it on its own path."""
    context, steps = "", []
    for number, node in enumerate(nodes):
        if not node.get("sampled"):
            continue
        path = [_message(nodes, number)]
        at = node.get("parent")
        while (i := _index(nodes, at)) is not None and len(path) <= len(nodes):
            path.append(_message(nodes, i))
            if nodes[i].get("sampled"):
                break
            at = nodes[i].get("parent")
        before, found = message_steps(path[::-1], None)
        context = context or before
        cut = found[-1].cut or number in cuts
        steps.append(replace(found[-1], cut=cut, version=version, logged=_advantage(node)))
    return context, steps


def _ancestor(nodes: Sequence[Mapping[str, Any]], of: int) -> int | None:
    """The nearest sampled message before this one on its path."""
    at, left = nodes[of].get("parent"), len(nodes)
    while (i := _index(nodes, at)) is not None and left:
        if nodes[i].get("sampled"):
            return i
        at, left = nodes[i].get("parent"), left - 1
    return None


def _index(nodes: Sequence[Mapping[str, Any]], at: object) -> int | None:
    return at if isinstance(at, int) and 0 <= at < len(nodes) else None


def _message(nodes: Sequence[Mapping[str, Any]], i: int) -> Mapping[str, Any]:
    message = dict(mapped(nodes[i].get("message"), f"nodes[{i}].message"))
    if nodes[i].get("sampled"):
        message["role"] = "assistant"
    elif message.get("role") == "assistant":
        # Prompt text that was written for the agent, not by it.
        message["role"] = "user"
    return message


def _reward(trace: Mapping[str, Any], number: int) -> tuple[float | None, bool]:
    """The weighted sum, and False where a grader ran and gave nothing."""
    rewards = mapped(trace.get("rewards"), f"traces[{number}].rewards")
    scores: list[float] = []
    for value in rewards.values():
        score = as_number(value.get("score")) if isinstance(value, Mapping) else as_number(value)
        weight = as_number(value.get("weight", 1.0)) if isinstance(value, Mapping) else 1.0
        if score is not None and weight is not None:
            scores.append(score * weight)
    return (sum(scores) if scores else None), bool(scores) or not rewards


def _failed(record: Mapping[str, Any]) -> str:
    errors = record.get("errors")
    last = errors[-1] if isinstance(errors, list) and errors else None
    if record.get("ok") is False or (last is not None and record.get("ok") is not True):
        detail = named(last, ("type", "message")) if isinstance(last, Mapping) else last
        return cause("error", detail or record.get("stop_condition"))
    return failure(record)


def _task(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> str:
    places = (
        "task.key",
        "task.hash",
        "task.data.idx",
        "task.data.id",
        "example_id",
        "task.data.prompt",
        "task",
    )
    return named(episode, ("group.id",)) or named(trace, places) or named(episode, places)


def _policy(episode: Mapping[str, Any]) -> str:
    start, end = pick(episode, "run.work.policy.start"), pick(episode, "run.work.policy.end")
    if start is None:
        return ""
    return str(start) if end in (None, start) else f"{start}-{end}"


def _calls(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = trace.get("calls")
    return [c for c in calls if isinstance(c, Mapping)] if isinstance(calls, list) else []


def _advantage(node: Mapping[str, Any]) -> float | None:
    """The credit a trainer stamped on the node's tokens, where it is one number."""
    values = node.get("advantages")
    numbers = {as_number(v) for v in values} if isinstance(values, list) and values else {None}
    return numbers.pop() if len(numbers) == 1 else None
