"""What a part of a term says of itself.

What it is called, which options it has, and what it needs of the table.

A part is a return, a clustering, a Q, a V, a scale or a fallback. Any plain function is one. A part that
reads an optional column of the table *declares* it, so that a run captures hidden states, keeps texts or
refuses before any rollout is played:

    @needs("features")
    def by_sign(batch):
        ...

A part with options is a frozen dataclass with `__call__`; `needs` and `name` are attributes of its class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

__all__ = ["COLUMNS", "describe_part", "needs", "needs_of", "part_name"]

COLUMNS = ("features", "texts")
"""The optional columns of a table that a part may declare."""

Part = TypeVar("Part", bound=Callable[..., Any])


def needs(*columns: str) -> Callable[[Part], Part]:
    """Declare which optional columns of the table a function reads: "features", "texts".

    Raises:
        ValueError: a column that tables do not have.

    Examples:
        >>> import bipace
        >>> @bipace.needs("features")
        ... def by_sign(batch):
        ...     return (batch.features[:, 0] > 0).astype(int)
        ...
        >>> sorted(by_sign.needs)
        ['features']
    """
    for column in columns:
        if column not in COLUMNS:
            raise ValueError(f"needs: unknown column {column!r}; a part may declare {', '.join(COLUMNS)}")

    def declare(part: Part) -> Part:
        part.needs = frozenset(columns)  # type: ignore[attr-defined]
        return part

    return declare


def needs_of(part: Any) -> frozenset[str]:
    """What a part declares; empty for a plain function that declares nothing.

    Raises:
        ValueError: a declaration that names a column which tables do not have.

    Examples:
        >>> from bipace.core.clustering import ByFeatures
        >>> from bipace.core.parts import needs_of
        >>> sorted(needs_of(ByFeatures(eps=0.1)))
        ['features']
    """
    declared = frozenset(getattr(part, "needs", ()))
    unknown = sorted(declared - set(COLUMNS))
    if unknown:
        raise ValueError(f"{part_name(part)}: needs {unknown[0]!r}; a part may declare {', '.join(COLUMNS)}")
    return declared


def part_name(part: Any) -> str:
    """What reports call a part: its `name`, a function's own name, or its type's.

    Examples:
        >>> from bipace.core.parts import part_name
        >>> from bipace.core.returns import ReturnToGo
        >>> part_name(ReturnToGo(0.9))
        'return_to_go'
    """
    inner = part.func if isinstance(part, partial) else part
    return str(getattr(inner, "name", None) or getattr(inner, "__name__", type(inner).__name__))


def describe_part(part: Any) -> dict[str, Any]:
    """A part as JSON: its name and its options, parts inside it described likewise.

    Examples:
        >>> from bipace.core.parts import describe_part
        >>> from bipace.core.returns import ReturnToGo
        >>> describe_part(ReturnToGo(0.9))
        {'name': 'return_to_go', 'gamma': 0.9}
    """
    if isinstance(part, partial):
        options: dict[str, Any] = dict(part.keywords)
    elif is_dataclass(part):
        options = {field.name: getattr(part, field.name) for field in fields(part)}
    else:
        options = {}
    return {
        "name": part_name(part),
        **{k: describe_part(v) if callable(v) else v for k, v in options.items()},
    }
