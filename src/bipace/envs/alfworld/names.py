"""Entity names as the agent reads them: `desklamp_bar__plus_02_dot_76...` becomes `desklamp 1`.

The rule is the benchmark's own (`Demangler` without shuffling): entities of one class are numbered downwards
in the order of their ids, so the first id gets the highest number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["display_names"]

_MARKS = (("_bar_", "|"), ("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ","))


def _class_of(entity: str) -> str | None:
    head, mark, _ = entity.partition("_bar_")
    if not mark:
        return None
    for written, sign in _MARKS:
        head = head.replace(written, sign)
    return head + "basin" if "basin" in entity else head


def display_names(entities: Iterable[str]) -> dict[str, str]:
    """Name of each entity.

    An id without `_bar_` keeps its text, followed by one space (as the benchmark has it).
    """
    ordered = sorted(entities)
    left = Counter(filter(None, map(_class_of, ordered)))
    names = {}
    for entity in ordered:
        kind = _class_of(entity)
        if kind is None:
            names[entity] = entity + " "
            continue
        names[entity] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return names
