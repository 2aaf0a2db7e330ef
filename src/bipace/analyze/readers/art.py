"""Reader of ART's trajectory files: `NNNN.parquet` (art/utils/trajectory_logging.py, versions 1 and 2).

One row a trajectory: {group_index, reward, metrics, metadata, messages: [{role, content, tool_calls,
trainable}]}. An answer that is not trainable was given to the agent. Version 2 keeps the whole model as
`trajectory_json`, with the other histories of a trajectory (a compaction, a sub-conversation), which share
its reward.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bipace.analyze.fields import BadField, cause, listed, mapped, mappings, named
from bipace.analyze.messages import as_text, message_steps, on_last
from bipace.analyze.readers.base import OUTCOMES
from bipace.analyze.records import LoggedTrajectory, Reading, as_number

__all__ = ["is_art", "read_art"]


def is_art(record: object) -> bool:
    """A row {group_index, reward, messages, ...}."""
    return (
        isinstance(record, Mapping)
        and "group_index" in record
        and ("messages" in record or "trajectory_json" in record)
    )


def read_art(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """The prompt group is the row's group in the file; a group without a trajectory is counted."""
    whole = mapped(_json(record.get("trajectory_json"), "trajectory_json"), "trajectory_json")
    if record.get("messages") is None and not whole:
        if record.get("reward") is None:
            reading.folded["groups without a trajectory"] += 1
        else:
            reading.skip(where, "messages: null")
        return
    histories = _histories(record, whole)
    metadata = mapped(_json(record.get("metadata"), "metadata"), "metadata")
    metrics = mapped(_json(record.get("metrics"), "metrics"), "metrics")
    reward = as_number(record.get("reward"))
    parts = [message_steps(history, None) for history in histories]
    version = _version(whole)
    steps = [replace(step, version=step.version or version) for _, part in parts for step in part]
    rewards = on_last(reward, len(steps))
    group = named(metadata, ("task_id", "scenario_id", "problem_id"))
    index = named(record, ("trajectory_index",))
    number = where.removeprefix("row ")
    yield LoggedTrajectory(
        task=f"group {record['group_index']}" + (f" ({group})" if group else ""),
        name=f"group {record['group_index']}, trajectory {index or number}",
        steps=tuple(replace(s, reward=r) for s, r in zip(steps, rewards, strict=True)),
        context=next((context for context, _ in parts if context), ""),
        outcome=next((v for k in OUTCOMES if (v := as_number(metrics.get(k))) is not None), None),
        where=where,
        out="" if steps else cause("no answer of a model"),
        ids=tuple(i for i in (named(metadata, ("trajectory_id", "id", "rollout_id")),) if i),
        notes=(f"{len(histories)} histories of one trajectory, joined",) if len(histories) > 1 else (),
    )


def _histories(record: Mapping[str, Any], whole: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    given = (
        [whole.get("messages_and_choices")] if whole.get("messages_and_choices") else [record.get("messages")]
    )
    extra = mappings(whole.get("additional_histories"), "additional_histories")
    given += [history.get("messages_and_choices") for history in extra]
    return [_chat(listed(history, "messages")) for history in given if history]


def _chat(messages: Any) -> list[Mapping[str, Any]]:
    """The conversation; where the file marks what was sampled, every other answer was given to the agent."""
    chat: list[dict[str, Any]] = []
    sampled: list[bool] = []
    for i, message in enumerate(messages):
        message = mapped(message, f"messages[{i}]")
        choice = isinstance(message.get("message"), Mapping)
        inner = (
            {**message["message"], "finish_reason": message.get("finish_reason")} if choice else dict(message)
        )
        inner["tool_calls"] = _json(inner.get("tool_calls"), f"messages[{i}].tool_calls")
        chat.append(inner)
        sampled.append(choice or inner.get("trainable") is True)
    if not any(sampled):
        return list(chat)
    return [
        {**m, "role": "user"} if m.get("role") == "assistant" and not s else m
        for m, s in zip(chat, sampled, strict=True)
    ]


def _version(whole: Mapping[str, Any]) -> str:
    start, end = named(whole, ("initial_policy_version",)), named(whole, ("final_policy_version",))
    return start if end in ("", start) else f"{start}-{end}"


def _json(value: object, field: str) -> Any:
    if not isinstance(value, (str, bytes)):
        return value
    try:
        return json.loads(value) if value else None
    except (ValueError, RecursionError) as error:
        raise BadField(f"{field}: not JSON ({as_text(str(error))})") from error
