"""Readers of OpenHands: the event lists of v0, the evaluation output, and the events of the SDK (v1).

Sources: openhands/events/serialization/event.py and core/schema/action.py (v0), evaluation/utils/shared.py:
EvalOutput, openhands/sdk/event (v1: ActionEvent, MessageEvent, ObservationEvent, AgentErrorEvent,
Condensation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bipace.analyze.fields import BadField, cause, first, listed, mapped, named, pick
from bipace.analyze.messages import as_text, message_steps
from bipace.analyze.readers.base import OUTCOMES
from bipace.analyze.records import LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["is_evaluation", "is_event", "read_evaluation", "read_events"]

# Actions of v0 that are no answer of the model.
_HOUSEKEEPING = (
    "system", "recall", "change_agent_state", "null", "condensation", "condensation_request", "start",
    "pause",
    "resume", "stop", "push", "send_pr", "loop_recovery",
)  # fmt: skip
_UNSAID = (
    "thought",
    "hidden",
    "blocking",
    "is_confirmed",
    "confirmation_state",
    "security_risk",
    "is_static",
    "cwd",
)
_V1_SILENT = (
    "ConversationStateUpdateEvent",
    "PauseEvent",
    "TokenEvent",
    "LLMCompletionLogEvent",
    "CondensationRequest",
)


def is_event(record: object) -> bool:
    """An event of v0 {source, action or observation, args or extras} or of the SDK {kind, source}.

    A list of them.
    """
    if isinstance(record, list):
        return bool(record) and is_event(record[0])
    if not isinstance(record, Mapping) or "source" not in record:
        return False
    if isinstance(record.get("kind"), str):
        return record["kind"].endswith(("Event", "Observation", "Condensation", "CondensationRequest"))
    return ("action" in record and "args" in record) or ("observation" in record and "extras" in record)


def is_evaluation(record: object) -> bool:
    """A line of an evaluation's output: {instance_id, test_result, history}."""
    return (
        isinstance(record, Mapping)
        and "instance_id" in record
        and "history" in record
        and "test_result" in record
    )


def read_events(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """A file of events is one conversation: one answer of the model is a step, however many calls it made.

    The prompt group is the first message of the user, else the file.
    """
    events: list[Mapping[str, Any]] = []
    for where, record in found:
        inside = record if isinstance(record, list) else [record]
        wrong = next((e for e in inside if not is_event(e)), None)
        if wrong is not None:
            reading.skip(where, "no event of OpenHands: source and kind, action or observation are missing")
            continue
        events += inside
    if events:
        stem = Path(reading.file).name.split(".")[0]
        try:
            yield _conversation(events, {}, "item 1", stem, stem, None)
        except BadField as error:
            reading.skip("item 1", str(error))


def read_evaluation(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{instance_id, test_result, history, error}.

    The prompt group is the instance, the reward its test result.

    `history` holds events, or pairs of an action and its observation. A rollout with an error is out.
    """
    del reading
    history = listed(record.get("history"), "history")
    events = [e for item in history for e in (item if isinstance(item, (list, tuple)) else (item,))]
    identity = as_text(record["instance_id"])
    reward = as_number(first(record, _places()))
    attempt = named(record, ("attempt",))
    yield _conversation(
        events, record, where, identity, identity + (f", attempt {attempt}" if attempt else ""), reward
    )


def _places() -> list[str]:
    beside = ("test_result.report.", "test_result.", "report.", "")
    return [
        f"{place}{name}" for place in beside for name in ("reward", "score", "resolved", "success", "result")
    ]


def _conversation(
    events: Sequence[Any], about: Mapping[str, Any], where: str, task: str, name: str, reward: float | None
) -> LoggedTrajectory:
    messages: list[dict[str, Any]] = []
    last = ""
    failed = ""
    for i, event in enumerate(events):
        event = mapped(event, f"events[{i}]")
        given = _v1(event) if isinstance(event.get("kind"), str) else _v0(event, i)
        failed = _error(event) or failed
        for message, answer in given:
            # Calls of one answer of the model are one step.
            if answer and answer == last and messages and messages[-1]["role"] == "assistant":
                messages[-1]["tool_calls"] += message.get("tool_calls", [])
            elif answer and answer == last:
                _merge(messages, message)
            else:
                messages.append(message)
            last = answer or (last if message["role"] == "tool" else "")
    instruction = about.get("instruction")
    if isinstance(instruction, str) and not any(m["role"] == "user" for m in messages):
        messages.insert(0, {"role": "user", "content": instruction})
    context, steps = message_steps(messages, reward)
    opening = next((as_text(m["content"]) for m in messages if m["role"] == "user"), "")
    error = cause("error", about["error"]) if about.get("error") else failed
    return LoggedTrajectory(
        task=task if about else opening or task,
        name=name,
        steps=steps,
        context=context,
        outcome=as_number(first(about, (*OUTCOMES, "test_result.report.resolved", "report.resolved"))),
        where=where,
        out=error or ("" if steps else "no answer of a model"),
        ids=(task,) if about else (name,),
    )


def _merge(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """A call of the answer before, logged after the result of its first call."""
    answer = next(m for m in reversed(messages) if m["role"] == "assistant")
    answer["tool_calls"] += message.get("tool_calls", [])


Given = list[tuple[dict[str, Any], str]]


def _v0(event: Mapping[str, Any], i: int) -> Given:
    """Messages of an event of v0, an answer with the id of the model's response."""
    action, source = event.get("action"), event.get("source")
    metadata = mapped(event.get("tool_call_metadata"), f"events[{i}].tool_call_metadata")
    if "observation" in event and "action" not in event:
        if event["observation"] in ("agent_state_changed", "null") or event.get("content") in (None, ""):
            return []
        return [
            ({"role": "tool", "content": event["content"], "tool_call_id": metadata.get("tool_call_id")}, "")
        ]
    args = mapped(event.get("args"), f"events[{i}].args")
    if action == "system":
        return [({"role": "system", "content": args.get("content")}, "")]
    if action in _HOUSEKEEPING or not isinstance(action, str):
        return []
    if source != "agent":
        return [({"role": "user", "content": args.get("content") or event.get("message")}, "")]
    answer = named(metadata, ("model_response.id",))
    if not metadata and ("content" in args and "wait_for_response" in args):
        return [({"role": "assistant", "content": args["content"]}, answer)]
    native = _native(metadata)
    call = native or {"name": action, "arguments": {k: v for k, v in args.items() if k not in _UNSAID}}
    said = args.get("thought") or pick(metadata, "model_response.choices.0.message.content")
    reason = pick(metadata, "model_response.choices.0.finish_reason")
    return [({"role": "assistant", "content": said, "tool_calls": [call], "finish_reason": reason}, answer)]


def _native(metadata: Mapping[str, Any]) -> Any:
    """The call as the model wrote it, where the log kept the response."""
    calls = pick(metadata, "model_response.choices.0.message.tool_calls")
    whose = metadata.get("tool_call_id")
    inside = [c for c in calls if isinstance(c, Mapping)] if isinstance(calls, list) else []
    return next((call for call in inside if call.get("id") == whose), None)


def _v1(event: Mapping[str, Any]) -> Given:
    """Messages of an event of the SDK."""
    kind = event["kind"]
    if kind == "ActionEvent":
        call = event.get("tool_call") or {"name": event.get("tool_name"), "arguments": event.get("action")}
        message = {"role": "assistant", "content": event.get("thought"), "tool_calls": [_spoken(call, event)]}
        return [(message, named(event, ("llm_response_id",)))]
    if kind == "MessageEvent":
        told = mapped(event.get("llm_message"), "llm_message")
        role = "assistant" if event.get("source") == "agent" else "user"
        content = told.get("content")
        if isinstance(content, list):
            content = [*content, *listed(event.get("extended_content"), "extended_content")]
        return [({"role": role, "content": content, "tool_calls": []}, named(event, ("llm_response_id",)))]
    if kind == "SystemPromptEvent":
        return [({"role": "system", "content": as_text(event.get("system_prompt"))}, "")]
    if kind in ("Condensation", "CondensationSummaryEvent"):
        return [({"role": "user", "content": event["summary"]}, "")] if event.get("summary") else []
    whose = event.get("tool_call_id")
    if kind in _V1_SILENT or whose is None:
        return []
    held = event.get("observation") or event.get("error") or event.get("rejection_reason")
    content = held.get("content", held.get("output")) if isinstance(held, Mapping) else held
    return [
        ({"role": "tool", "content": content if content is not None else held, "tool_call_id": whose}, "")
    ]


def _spoken(call: Any, event: Mapping[str, Any]) -> Any:
    """The call without what the SDK adds to every tool for its own use (a risk, a summary)."""
    if not isinstance(call, Mapping):
        return call
    action = event.get("action")
    own = {k: v for k, v in action.items() if k != "kind"} if isinstance(action, Mapping) else None
    return {
        "id": call.get("id"),
        "name": call.get("name"),
        "arguments": own if own else call.get("arguments"),
    }


def _error(event: Mapping[str, Any]) -> str:
    if event.get("kind") == "ConversationErrorEvent":
        return cause("error", named(event, ("code", "detail")))
    return ""
