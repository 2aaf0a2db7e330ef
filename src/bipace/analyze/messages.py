"""Chat messages -> steps: one assistant message is one step.

The observation of a step is everything the agent read since its previous answer (user and tool messages,
joined); the system prompt is context, not observation. What is said (the response) and what is done (the
action: the calls) are kept apart. Calls made in parallel have no order of their own: they are sorted, and so
are their results. A call written as text (`<tool_call>{...}</tool_call>`) gets the key of the native one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bipace.analyze.fields import BadField
from bipace.analyze.records import Form, LoggedStep
from bipace.core.actions import action_tag

__all__ = ["Call", "action_of", "as_text", "call_of", "is_messages", "message_steps", "on_last", "text_steps"]

_WRITTEN = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_KEYSTROKES = re.compile(r"<keystrokes[^>]*>(.*?)</keystrokes>", re.DOTALL)
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use", "toolCall", "tool_call", "function_call")


class Call(NamedTuple):
    """A tool call: its id (which pairs it with its result) and its key `name({"sorted": "arguments"})`."""

    id: str
    key: str


def is_messages(value: object) -> bool:
    """True for a non-empty list of mappings that each carry a role."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(m, Mapping) and "role" in m for m in value)
    )


def as_text(value: object) -> str:
    """A message's content, or any JSON value, as text.

    The parts of a multi-part content joined by newlines.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(p, Mapping) and "type" in p for p in value):
        return "\n".join(text for part in value if (text := _part(part)))
    return _dumped(value)


def _part(part: Mapping[str, Any]) -> str:
    if part["type"] in _CALLS:
        return call_of(part).key
    if part["type"] in ("thinking", "reasoning", "redacted_thinking"):
        return as_text(
            part.get("thinking") or part.get("reasoning") or part.get("summary") or part.get("text")
        )
    held = next((part[name] for name in ("text", "content", "output", "refusal") if part.get(name)), None)
    if held is not None:
        return as_text(held)
    return "" if any(name in part for name in ("text", "content", "output")) else f"[{part['type']}]"


def action_of(response: str, calls: Iterable[Call] = ()) -> tuple[str, Form]:
    """The action key of an answer.

    Its tool calls, else calls in its text, else its <action> tag, else all of it.
    """
    keys = sorted(call.key for call in calls)
    if keys:
        return "\n".join(keys), "tool"
    written = sorted(key for text in _WRITTEN.findall(response) if (key := _written(text))) or _typed(
        response
    )
    if written:
        return "\n".join(written), "written"
    key, parsed = action_tag(response)
    return str(key), "tag" if parsed else "text"


def call_of(call: Any) -> Call:
    """Id and key of a tool call, as OpenAI, Anthropic, ATIF or the Responses API writes it.

    The id is left out of the key and the arguments are sorted, so equal calls are equal actions.
    """
    if isinstance(call, str):
        try:
            call = json.loads(call)
        except (ValueError, RecursionError):
            return Call("", call)
    if not isinstance(call, Mapping):
        return Call("", as_text(call))
    inner = call.get("function")
    function = inner if isinstance(inner, Mapping) else call
    names = (function.get("name"), function.get("function_name"), inner, function.get("tool_name"), "tool")
    name = next(n for n in names if isinstance(n, str) and n)
    given = (function.get(k) for k in ("arguments", "input", "args", "parameters"))
    arguments: Any = next((a for a in given if a is not None), {})
    ids = (call.get(k) for k in ("call_id", "id", "tool_call_id", "toolCallId"))
    identity = next((str(i) for i in ids if isinstance(i, (str, int)) and i != ""), "")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return Call(identity, f"{name}({arguments})")
    return Call(identity, f"{name}({_dumped(arguments or {})})")


def message_steps(
    messages: Sequence[Mapping[str, Any]],
    reward: float | None,
    step_rewards: Sequence[float | None] | None = None,
) -> tuple[str, tuple[LoggedStep, ...]]:
    """Split a conversation.

    Args:
        messages: role and content, as in the OpenAI or the Anthropic format.
        reward: of the episode; it is put on the last step.
        step_rewards: rewards by step instead, where the file has them.

    Returns:
        The context and the steps; no assistant message gives no steps.

    Raises:
        BadField: a message that is no object.
    """
    context: list[str] = []
    read: list[tuple[str, str]] = []
    calls: list[Call] = []
    found: list[LoggedStep] = []
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise BadField(
                f"messages[{number}]: expected an object with role and content, found {message!r:.40}"
            )
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            context.append(as_text(content))
        elif role in ("assistant", "model", "ai"):
            observation = sys.intern("\n".join(_ordered(read, calls)))
            step, calls = _answer(observation, message)
            found.append(step)
            read = []
        else:
            read += _heard(message)
    rewards = on_last(reward, len(found)) if step_rewards is None else list(step_rewards)
    if len(rewards) != len(found):
        raise BadField(f"rewards of {len(rewards)} steps beside {len(found)} answers")
    steps = tuple(_rewarded(step, value) for step, value in zip(found, rewards, strict=True))
    return sys.intern("\n".join(context)), steps


def text_steps(turns: Sequence[tuple[object, str]], reward: float | None) -> tuple[LoggedStep, ...]:
    """Steps from (observation, response) pairs, the reward on the last one."""
    rewards = on_last(reward, len(turns))
    return tuple(
        LoggedStep(observation, response, *action_of(response), value)
        for (observation, response), value in zip(turns, rewards, strict=True)
    )


def on_last(reward: float | None, n: int) -> list[float | None]:
    """The reward of an episode on its last of n steps, 0 before."""
    return [0.0] * (n - 1) + [reward] if n else []


def _rewarded(step: LoggedStep, reward: float | None) -> LoggedStep:
    return LoggedStep(step.observation, step.response, step.action, step.form, reward, step.cut, step.version)


def _answer(observation: str, message: Mapping[str, Any]) -> tuple[LoggedStep, list[Call]]:
    content = message.get("content")
    native = message.get("tool_calls")
    calls = [call_of(call) for call in native] if isinstance(native, (list, tuple)) else []
    if message.get("function_call"):
        calls.append(call_of(message["function_call"]))
    said = as_text(content)
    inside = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    blocks = [call_of(part) for part in inside if part.get("type") in _CALLS]
    response = "\n".join(part for part in (said, *(call.key for call in calls)) if part)
    calls += blocks
    reason = message.get("finish_reason") or message.get("stop_reason")
    key, form = action_of(response, calls)
    version = message.get("policy_version") or message.get("model_version") or ""
    return LoggedStep(observation, response, key, form, None, reason in _CUT, str(version)), calls


_CUT = ("length", "max_tokens", "max_output_tokens", "MAX_TOKENS")


def _heard(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(id of the call it answers, text): a tool message, or a user message with Anthropic's tool results."""
    content, whose = message.get("content"), message.get("tool_call_id") or message.get("toolCallId") or ""
    parts = content if isinstance(content, list) else []
    if any(isinstance(part, Mapping) and part.get("type") == "tool_result" for part in parts):
        return [
            (str(part.get("tool_use_id") or ""), as_text([part]))
            if isinstance(part, Mapping)
            else ("", as_text(part))
            for part in parts
        ]
    return [(str(whose), as_text(content))]


def _ordered(read: list[tuple[str, str]], calls: list[Call]) -> list[str]:
    """What was read, the results of parallel calls in the order of the calls' keys, all else where it was."""
    rank = {call.id: (call.key, i) for i, call in enumerate(calls) if call.id}
    places = [i for i, (whose, _) in enumerate(read) if whose in rank]
    results = sorted((read[i] for i in places), key=lambda item: rank[item[0]])
    texts = [text for _, text in read]
    for place, (_, text) in zip(places, results, strict=True):
        texts[place] = text
    return texts


def _written(text: str) -> str:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return call_of(call).key if isinstance(call, Mapping) and "name" in call else ""


def _typed(response: str) -> list[str]:
    """Terminus' answers, `{"commands": [{"keystrokes", "duration"}]}`, as Harbor's calls."""
    if "keystrokes" not in response:
        return []
    start, end = response.find("{"), response.rfind("}")
    try:
        value = json.loads(response[start : end + 1]) if start >= 0 else None
    except (ValueError, RecursionError):
        return [f"bash_command({keys})" for keys in _KEYSTROKES.findall(response)]
    commands = value.get("commands") if isinstance(value, Mapping) else None
    inside = [c for c in commands if isinstance(c, Mapping)] if isinstance(commands, list) else []
    return sorted(call_of({"name": "bash_command", "arguments": dict(c)}).key for c in inside)


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        # Keys of several types, a cycle, or depth: possible in memory only.
        return repr(value)[:10_000]
