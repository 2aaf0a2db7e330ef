"""Action keys: when do two steps count as the same action?

A key is computed from one step. `label` (bipace.core.labels) then numbers the keys. `executed`, the default,
is what the environment did, so two texts are one action only if the environment does the same with them.
`first_n`, `action_tag` and `tag_verb` are the paper's and read the response alone (BiPACE, section on PACE);
where the form they ask for is missing, the key is the raw response [our decision], with parsed=False, so that
a run can count it. `first_word` is a coarse key of ours for long free-form commands. `tool_call` writes a
structured call as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

__all__ = [
    "ACTION_KEYS",
    "ActionKey",
    "RefusedActions",
    "action_tag",
    "executed",
    "executed_key",
    "first_n",
    "first_word",
    "tag_verb",
    "tool_call",
]

RefusedActions = Literal["many", "one"]
"""Whether the refused actions of a state are told apart by their text, or are all one action."""

_TAG = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)
_ANY_TAG = re.compile(r"<([a-z][\w-]*)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_REASONING = frozenset({"think", "thinking", "thought", "reasoning"})


class ActionKey(NamedTuple):
    """The key of a step, and whether the response had the form the key asks for.

    Examples:
        >>> from bipace.core.actions import action_tag
        >>> action_tag("<action>Go North</action>")
        ActionKey(key='go north', parsed=True)
    """

    key: str | tuple[int | str, ...]
    parsed: bool


def executed_key(
    text: str, command: str | None, valid: bool, refused: RefusedActions = "many"
) -> str | tuple[int | str, ...]:
    """The key of what the environment executed.

    Equal executed commands share a key. A refused text never shares one with an executed command, whatever it
    says: its key is a pair, an executed command's is text.

    Args:
        text: what was sent to the environment.
        command: the command it executed in canonical form; None where it refused, or does not say what it
            executed.
        valid: False where it refused. True with command None: the text itself, stripped, counts as executed.
        refused: "many": refused texts are told apart, white space and letter case aside; "one": they are all
            one action, because the environment did the same with each of them: nothing.

    Raises:
        ValueError: another value of `refused`.

    Examples:
        >>> from bipace.core.actions import executed_key
        >>> executed_key("open  the door", "open door", valid=True)
        'open door'
        >>> executed_key("fly", None, valid=False)
        ('refused', 'fly')
    """
    if command is not None:
        return command
    if valid:
        return text.strip()
    if refused not in ("many", "one"):
        raise ValueError(f"refused: {refused!r}, expected 'many' or 'one'")
    return ("refused", " ".join(text.split()).lower() if refused == "many" else "")


def executed(response: str, tokens: Sequence[int] = ()) -> ActionKey:
    """`executed_key` where nothing is known of the environment: the action's text counts as executed.

    The text is that inside the first `<action>...</action>`, stripped; without a complete pair it is the
    whole response, with parsed=False. Where the environment's answer is known, use `executed_key`.

    Examples:
        >>> from bipace.core.actions import executed
        >>> executed("I look. <action> open door </action>").key
        'open door'
    """
    del tokens
    match = _TAG.search(response)
    return ActionKey((match[1] if match else response).strip(), match is not None)


def action_tag(response: str, tokens: Sequence[int] = ()) -> ActionKey:
    """Text inside the first `<action>...</action>`, stripped and lower-cased (the paper's).

    Without a complete tag pair: the whole response, stripped and lower-cased, with parsed=False.

    Examples:
        >>> from bipace.core.actions import action_tag
        >>> action_tag("<action>Go North</action>").key
        'go north'
        >>> action_tag("go north").parsed
        False
    """
    del tokens
    match = _TAG.search(response)
    return ActionKey((match[1] if match else response).strip().lower(), match is not None)


def tag_verb(response: str, tokens: Sequence[int] = ()) -> ActionKey:
    """Name of the first complete tag pair that is no reasoning, lower-cased.

    `search` of `<search>...</search>`.

    For agents whose tags say what they do (`<search>`, `<answer>`). Pairs named think, thinking, thought or
    reasoning are passed over with what is in them. Without any other pair: the whole response, stripped and
    lower-cased, with parsed=False.

    Examples:
        >>> from bipace.core.actions import tag_verb
        >>> tag_verb("<think>tea?</think><search>tea</search>").key
        'search'
    """
    del tokens
    for match in _ANY_TAG.finditer(response):
        if match[1].lower() not in _REASONING:
            return ActionKey(match[1].lower(), True)
    return ActionKey(response.strip().lower(), False)


def first_word(response: str, tokens: Sequence[int] = ()) -> ActionKey:
    """First word of the `action_tag` key: coarser, for long free-form commands. Empty text gives "".

    Examples:
        >>> from bipace.core.actions import first_word
        >>> first_word("<action>craft 1 stick using 2 planks</action>").key
        'craft'
    """
    key, parsed = action_tag(response, tokens)
    words = str(key).split(maxsplit=1)
    return ActionKey(words[0] if words else "", parsed)


def first_n(response: str, tokens: Sequence[int] = (), n: int = 8) -> ActionKey:
    """The first n response tokens (the paper: 8 non-pad tokens). Pass tokens without padding.

    Needs no tag, so it always parses; an empty response gives the empty key.

    Examples:
        >>> from bipace.core.actions import first_n
        >>> first_n("", tokens=[5, 6, 7], n=2).key
        (5, 6)
    """
    del response
    return ActionKey(tuple(int(token) for token in tokens[:n]), True)


ACTION_KEYS: dict[str, Callable[[str, Sequence[int]], ActionKey]] = {
    "executed": executed,
    "action_tag": action_tag,
    "first_n": first_n,
    "tag_verb": tag_verb,
    "first_word": first_word,
}


def tool_call(call: Mapping[str, Any]) -> str:
    """A structured call as text, as `search({"query": "tea"})`: equal where name and arguments are equal.

    Arguments are written as JSON with sorted keys, and numbers such as 2.0 as 2 (as RFC 8785 does); the
    call's id is left out. Argument text that is no JSON stands as it is, stripped.

    Args:
        call: {"name", "arguments"}, with arguments as a mapping or as JSON text ("input" and "parameters" are
            read like "arguments"), or a call of OpenAI's form, where these are inside "function".

    Raises:
        ValueError: a call without a name.

    Examples:
        >>> from bipace.core.actions import tool_call
        >>> tool_call({"name": "search", "arguments": {"query": "tea", "page": 2.0}})
        'search({"page": 2, "query": "tea"})'
    """
    inner = call.get("function")
    function = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else call
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"tool call: no name in {sorted(map(str, function))}; expected a mapping with name, arguments"
        )
    arguments = next((function[key] for key in ("arguments", "input", "parameters") if key in function), None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else None
        except (json.JSONDecodeError, RecursionError):
            return f"{name}({str(arguments).strip()})"
    written = json.dumps(_plain({} if arguments is None else arguments), ensure_ascii=False, sort_keys=True)
    return f"{name}({written})"


def _plain(value: Any) -> Any:
    """The value with text as keys and whole numbers without a fraction: equal arguments look alike."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in cast("Sequence[Any]", value)]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
