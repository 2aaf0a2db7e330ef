"""Action keys: when do two responses count as the same action?

A key is computed from one response. `label` (bipace.core.labels) then numbers the keys. The paper names three
(BiPACE, section on PACE); a missing tag falls back to the raw response [our decision] and is reported, so that a
run can count it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["ACTION_KEYS", "ActionKey", "action_tag", "first_n", "tag_verb"]

_TAG = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)


class ActionKey(NamedTuple):
    """The key of a response, and whether the response had the form the key asks for."""

    key: str | tuple[int, ...]
    parsed: bool


def action_tag(response: str, tokens: Sequence[int] = ()) -> ActionKey:
    """Text inside the first `<action>...</action>`, stripped and lower-cased (the paper's default).

    Without a complete tag pair: the whole response, stripped and lower-cased, with parsed=False.
    """
    del tokens
    match = _TAG.search(response)
    return ActionKey((match[1] if match else response).strip().lower(), match is not None)


def tag_verb(response: str, tokens: Sequence[int] = ()) -> ActionKey:
    """First word of the `action_tag` key: coarser, for long free-form commands. Empty text gives ""."""
    key, parsed = action_tag(response, tokens)
    words = str(key).split(maxsplit=1)
    return ActionKey(words[0] if words else "", parsed)


def first_n(response: str, tokens: Sequence[int] = (), n: int = 8) -> ActionKey:
    """The first n response tokens (the paper: 8 non-pad tokens). Pass tokens without padding.

    Needs no tag, so it always parses; an empty response gives the empty key.
    """
    del response
    return ActionKey(tuple(int(token) for token in tokens[:n]), True)


ACTION_KEYS: dict[str, Callable[[str, Sequence[int]], ActionKey]] = {
    "action_tag": action_tag,
    "first_n": first_n,
    "tag_verb": tag_verb,
}
