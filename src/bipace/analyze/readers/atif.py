"""Reader of ATIF 1.0-1.8, the Agent Trajectory Interchange Format (harbor: models/trajectories).

What is copied from an earlier document (`is_copied_context`) is context, not a step; a step without a model
call (`llm_call_count` 0) is the harness's; a continuation and its beginning are one trajectory; a sub-agent's
document is a trajectory of its own, linked to its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bipace.analyze.fields import first, mapped, mappings, named, number
from bipace.analyze.messages import as_text, message_steps
from bipace.analyze.readers.base import OUTCOMES, REWARDS, failure
from bipace.analyze.records import LoggedTrajectory, Reading, as_number

__all__ = ["is_atif", "read_atif"]

_CONTINUED = re.compile(r"^(.*?)-cont-\d+$")
_BESIDE = ("extra", "final_metrics", "final_metrics.extra", "metadata")


def is_atif(record: object) -> bool:
    """One document, or an object whose every value is one (a parent with its children)."""
    if not isinstance(record, Mapping):
        return False
    return _is_document(record) or (bool(record) and all(_is_document(value) for value in record.values()))


def read_atif(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{schema_version, session_id, agent, steps: [{source, message, tool_calls, observation}]}.

    A step of source `agent` that a model made is a step; what came from the user, the system or an
    observation before it is what it read. The reward is looked for beside the trajectory (reward, extra,
    final_metrics), and in the run folder. The prompt group is a task id if there is one, else the first user
    message.
    """
    del reading
    if _is_document(record):
        yield from _document(record, where, "")
    else:
        children = {i for value in record.values() for i in _references(value)}
        for name, value in record.items():
            own = set(_identities(value))
            parent = next(
                (_name(v, where) for v in record.values() if own & set(_references(v)) and v is not value), ""
            )
            yield from _document(value, f"{where}, {name}", parent if own & children else "")


def _document(record: Mapping[str, Any], where: str, parent: str) -> Iterator[LoggedTrajectory]:
    agent = mapped(record.get("agent"), "agent")
    steps = mappings(record.get("steps"), "steps")
    messages, copied, dispatched = _messages(steps)
    about = _about(record)
    reward = as_number(first(about, (*REWARDS, *OUTCOMES)))
    context, found = message_steps(messages, reward)
    name, whole, order = (
        _name(record, where),
        _run(record, agent),
        number(_index(agent), "agent.extra") or 0.0,
    )
    above = named(agent, ("extra.parent_session_id",))
    notes = [f"{copied} steps copied from an earlier document are context"] if copied else []
    notes += [f"{dispatched} steps without a model call are the harness's"] if dispatched else []
    task = named(about, ("task_id", "task_name", "task", "instance_id")) or _opening(steps)
    out = failure(about) or ("" if found else "no step of its own: all is copied or dispatched")
    goes_on = bool(record.get("continued_trajectory_ref")) or order > 0
    yield LoggedTrajectory(
        task=task or (as_text(found[0].observation) if found else ""),
        name=name,
        steps=found,
        context=context,
        outcome=as_number(first(about, OUTCOMES)),
        where=where,
        role=named(agent, ("name",)),
        out=out,
        parent=parent or above,
        part=(whole, order) if goes_on else None,
        ids=tuple(dict.fromkeys((name, *_identities(record)))),
        notes=tuple(notes),
    )
    for i, child in enumerate(mappings(record.get("subagent_trajectories"), "subagent_trajectories")):
        for inner in _document(child, f"{where}, sub-agent {i}", name):
            yield replace(inner, name=f"{name} / {inner.name}")


def _messages(steps: list[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int, int]:
    """The document as a conversation of what is its own.

    How many steps are copied, and how many no model made.
    """
    messages: list[Mapping[str, Any]] = []
    handed: list[Mapping[str, Any]] = []
    copied = dispatched = 0
    for i, step in enumerate(steps):
        source, text = str(step.get("source")), step.get("message")
        results = _results(step, i)
        if step.get("is_copied_context"):
            copied += 1
            handed = [*handed, {"role": "user", "content": text}] if source == "user" else []
            continue
        if handed and source == "agent" and not any(m.get("role") != "system" for m in messages):
            # The first answer of a continuation read what was handed over to it.
            messages += handed
        if source == "agent" and step.get("llm_call_count") == 0:
            dispatched += 1
            messages += [{"role": "user", "content": text}] if text else []
            results = [{**r, "role": "user"} for r in results]
        elif source == "agent":
            messages.append(
                {"role": "assistant", "content": text, "tool_calls": step.get("tool_calls"), **_ended(step)}
            )
        elif text:
            opening = source == "system" and not any(m.get("role") == "assistant" for m in messages)
            messages.append({"role": "system" if opening and not handed else "user", "content": text})
        messages += results
    return messages, copied, dispatched


def _results(step: Mapping[str, Any], i: int) -> list[Mapping[str, Any]]:
    observation = mapped(step.get("observation"), f"steps[{i}].observation")
    results = mappings(observation.get("results"), f"steps[{i}].observation.results")
    return [
        {"role": "tool", "content": r.get("content"), "tool_call_id": r.get("source_call_id")}
        for r in results
        if r.get("content") is not None
    ]


def _ended(step: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "finish_reason": first(
            step, ("extra.finish_reason", "metrics.extra.finish_reason", "extra.stop_reason")
        )
    }


def _about(record: Mapping[str, Any]) -> dict[str, Any]:
    beside = [record, *(first(record, (place,)) for place in _BESIDE)]
    about = {k: v for part in reversed(beside) if isinstance(part, Mapping) for k, v in part.items()}
    about.pop("agent", None)
    return about


def _is_document(record: object) -> bool:
    if not isinstance(record, Mapping) or not isinstance(record.get("steps"), list):
        return False
    version = str(record.get("schema_version", "")).upper()
    return version.startswith("ATIF") or ("agent" in record and "session_id" in record)


def _opening(steps: list[Mapping[str, Any]]) -> str:
    return next((as_text(step.get("message")) for step in steps if step.get("source") == "user"), "")


def _name(record: Mapping[str, Any], where: str) -> str:
    return next(iter(_identities(record)), where)


def _identities(record: Mapping[str, Any]) -> list[str]:
    return [str(record[k]) for k in ("trajectory_id", "session_id") if isinstance(record.get(k), (str, int))]


def _run(record: Mapping[str, Any], agent: Mapping[str, Any]) -> str:
    """What the segments of one run share: its session id without the mark of a continuation."""
    session = named(record, ("session_id", "trajectory_id"))
    continued = _CONTINUED.match(session)
    index = _index(agent)
    if continued:
        return continued[1]
    # Some writers mark it otherwise: `SESSION-WORD-1` for continuation 1.
    marked = re.match(rf"^(.*)-[^-]+-{index}$", session) if index is not None else None
    return marked[1] if marked else session


def _index(agent: Mapping[str, Any]) -> Any:
    return first(agent, ("extra.continuation_index",))


def _references(record: Any) -> Iterator[str]:
    """The ids of the sub-agents that a document's observations name."""
    for i, step in enumerate(mappings(record.get("steps"), "steps")):
        observation = mapped(step.get("observation"), f"steps[{i}].observation")
        for result in mappings(observation.get("results"), f"steps[{i}].observation.results"):
            for reference in mappings(result.get("subagent_trajectory_ref"), "subagent_trajectory_ref"):
                yield from (str(reference[k]) for k in ("trajectory_id", "session_id") if reference.get(k))
