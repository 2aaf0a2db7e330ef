"""S-expressions, the parentheses that PDDL is written in: read, shown, and lists of typed names."""

from __future__ import annotations

import re
from typing import Any

from bipace.envs.alfworld.errors import GameFileError

__all__ = ["atom", "read_form", "show", "typed_names"]

_TOKEN = re.compile(r"[()]|[^\s()?]+|\?[^\s()?]*")


_COMMENT = re.compile(r";[^\n]*")


def read_form(text: str, what: str) -> list[Any]:
    """The nested list of one parenthesised expression."""
    root: list[Any] = []
    stack = [root]
    for token in _TOKEN.findall(_COMMENT.sub("", text).lower()):
        if token == "(":
            inner: list[Any] = []
            stack[-1].append(inner)
            stack.append(inner)
        elif token == ")":
            stack.pop()
            if not stack:
                raise GameFileError(f"{what}: a closing parenthesis too many")
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise GameFileError(f"{what}: {len(stack) - 1} parentheses are never closed")
    if len(root) != 1 or not root[0] or root[0][0] != "define":
        raise GameFileError(f"{what}: expected one (define ...) form")
    return root[0]


def typed_names(items: list[Any], where: str) -> list[tuple[str, str]]:
    """`a b - t c` as [(a, t), (b, t), (c, object)]."""
    result: list[tuple[str, str]] = []
    waiting: list[str] = []
    words = iter(items)
    for item in words:
        if not isinstance(item, str):
            raise GameFileError(f"{where}: expected a typed list of names, found {show(item)}")
        if item != "-":
            waiting.append(item)
            continue
        kind = next(words, None)
        if not isinstance(kind, str):
            raise GameFileError(f"{where}: expected one type name after '-', found {show(kind)}")
        result += [(name, kind) for name in waiting]
        waiting = []
    return result + [(name, "object") for name in waiting]


def show(form: Any) -> str:
    """A form as text, for a message; at most 80 characters."""
    text = "(" + " ".join(map(show, form)) + ")" if isinstance(form, list) else str(form)
    return text if len(text) <= 80 else text[:77] + "..."


def atom(form: Any, where: str) -> list[str]:
    """A form that must be a predicate with names behind it."""
    if not isinstance(form, list) or not form or not all(isinstance(item, str) for item in form):
        raise GameFileError(f"{where}: expected an atom, found {show(form)}")
    return form
