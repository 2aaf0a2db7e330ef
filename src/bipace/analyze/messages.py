"""Chat messages -> steps: one assistant message is one step.

The observation of a step is everything the agent read since its previous answer (user and tool messages, joined);
the system prompt is context, not observation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bipace.analyze.records import Form, LoggedStep
from bipace.core.actions import action_tag

__all__ = ["action_of", "as_text", "is_messages", "message_steps", "text_steps"]


def is_messages(value: object) -> bool:
    """True for a non-empty list of mappings that each carry a role."""
    return isinstance(value, list) and bool(value) and all(isinstance(m, Mapping) and "role" in m for m in value)


def as_text(value: object) -> str:
    """A message's content, or any JSON value, as text: the parts of a multi-part content joined by newlines."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(p, Mapping) and "type" in p for p in value):
        return "\n".join(str(p.get("text") or p.get("content") or f"[{p['type']}]") for p in value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def action_of(response: str, calls: Sequence[str] = ()) -> tuple[str, Form]:
    """The action key of an answer: its tool calls, else its <action> tag, else the whole text."""
    if calls:
        return "\n".join(calls), "tool"
    key, parsed = action_tag(response)
    return str(key), "tag" if parsed else "text"


def message_steps(
    messages: Sequence[Mapping[str, Any]], reward: float | None, step_rewards: Sequence[float | None] | None = None
) -> tuple[str, tuple[LoggedStep, ...]]:
    """Split a conversation.

    Args:
        messages: role and content, as in the OpenAI format.
        reward: of the episode; it is put on the last step.
        step_rewards: rewards by step instead, where the file has them.

    Returns:
        The context and the steps; no assistant message gives no steps.
    """
    context: list[str] = []
    read: list[str] = []
    found: list[tuple[str, str, str, Form]] = []
    for message in messages:
        role, content = message.get("role"), as_text(message.get("content"))
        if role in ("system", "developer"):
            context.append(content)
        elif role == "assistant":
            calls = [_call(call) for call in _calls(message)]
            response = "\n".join(part for part in (content, *calls) if part)
            found.append((sys.intern("\n".join(read)), response, *action_of(response, calls)))
            read = []
        else:
            read.append(content)
    rewards = _spread(reward, len(found)) if step_rewards is None else list(step_rewards)
    steps = tuple(LoggedStep(*parts, value) for parts, value in zip(found, rewards, strict=True))
    return sys.intern("\n".join(context)), steps


def text_steps(turns: Sequence[tuple[object, str]], reward: float | None) -> tuple[LoggedStep, ...]:
    """Steps from (observation, response) pairs, the reward on the last one."""
    rewards = _spread(reward, len(turns))
    return tuple(
        LoggedStep(observation, response, *action_of(response), value)
        for (observation, response), value in zip(turns, rewards, strict=True)
    )


def _spread(reward: float | None, n: int) -> list[float | None]:
    return [0.0] * (n - 1) + [reward] if n else []


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls") or []
    if message.get("function_call"):
        calls = [message["function_call"]]
    return list(calls) if isinstance(calls, Sequence) and not isinstance(calls, str) else []


def _call(call: Any) -> str:
    """`name({"sorted": "arguments"})`: the call id is left out, so equal calls are equal actions."""
    if isinstance(call, str):
        try:
            call = json.loads(call)
        except json.JSONDecodeError:
            return call
    if not isinstance(call, Mapping):
        return as_text(call)
    inner = call.get("function")
    function = inner if isinstance(inner, Mapping) else call
    name = function.get("name") or function.get("function_name") or "tool"
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except json.JSONDecodeError:
            return f"{name}({arguments})"
    return f"{name}({json.dumps(arguments or {}, ensure_ascii=False, sort_keys=True)})"
