"""Looking into records whose shape is not guaranteed: every message names the field and what stands there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bipace.analyze.records import as_number

__all__ = ["BadField", "cause", "first", "listed", "mapped", "mappings", "named", "number", "pick"]


class BadField(ValueError):
    """A field holds another kind of value than its format says; the record is skipped with this message."""


def mapped(value: object, field: str) -> Mapping[str, Any]:
    """A JSON object; nothing (None, "") reads as an empty one.

    Raises:
        BadField: another kind of value.
    """
    if value is None or value == "":
        return {}
    if isinstance(value, Mapping):
        return value
    raise BadField(f"{field}: expected an object, found {_kind(value)}")


def listed(value: object, field: str) -> Sequence[Any]:
    """A JSON list; nothing (None, "") reads as an empty one.

    Raises:
        BadField: another kind of value.
    """
    if value is None or value == "":
        return ()
    if isinstance(value, (list, tuple)):
        return value
    raise BadField(f"{field}: expected a list, found {_kind(value)}")


def mappings(value: object, field: str) -> list[Mapping[str, Any]]:
    """A JSON list of objects.

    Raises:
        BadField: no list, or an item that is no object.
    """
    return [mapped(item, f"{field}[{i}]") for i, item in enumerate(listed(value, field))]


def number(value: object, field: str) -> float | None:
    """A number, None where there is none (null, or text that says so).

    Raises:
        BadField: a list or an object.
    """
    if isinstance(value, (list, tuple, Mapping)):
        raise BadField(f"{field}: expected a number, found {_kind(value)}")
    return as_number(value)


def first(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first of these fields that holds something, else None; dotted names look into nested objects."""
    found = (pick(record, name) for name in names)
    return next((value for value in found if value is not None and value != ""), None)


def named(record: Mapping[str, Any], names: Iterable[str]) -> str:
    """The first of these fields that holds text or a number, as text; else ""."""
    found = (pick(record, name) for name in names)
    return next((str(v) for v in found if isinstance(v, (str, int, float)) and v != ""), "")


def pick(record: object, name: str) -> Any:
    """`a.b.0` or `a.b[0]` inside of nested objects and lists; a field of exactly this name comes first.

    None where there is none.
    """
    if isinstance(record, Mapping) and name in record:
        return record[name]
    value: Any = record
    for part in _parts(name):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, (list, tuple)) and re.fullmatch(r"-?\d{1,9}", part):
            index = int(part)
            value = value[index] if -len(value) <= index < len(value) else None
        else:
            return None
    return value


def cause(kind: str, detail: object = "") -> str:
    """Why a rollout stands outside, so that equal causes read alike.

    Numbers and ids in the detail become `#`.
    """
    lines = str(detail).strip().splitlines() if detail not in (None, "", True) else []
    words = re.sub(r"(0x)?[0-9a-f]*\d[0-9a-f-]*", "#", lines[0])[:60].strip() if lines else ""
    return f"{kind}: {words}" if words else kind


def _parts(name: str) -> Iterator[str]:
    return (part for part in re.split(r"[.\[\]]", name) if part)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", tuple: "a list", str: "text", bool: "true or false"}
    return kinds.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)
