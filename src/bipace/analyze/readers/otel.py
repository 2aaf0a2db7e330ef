"""Spans of OpenTelemetry in the three shapes in which they are kept: Phoenix's JSON, flat columns, OTLP.

Attributes are dotted names with indices (`llm.input_messages.0.message.role`) or already nested objects; they
become nested objects and lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bipace.analyze.fields import first, listed, mapped, mappings, named

__all__ = ["messages_of", "nested"]

_MOST, _DEEPEST = 10_000, 30  # items of one list of attributes; parts of one name


def nested(record: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """(ids, name, start and status, nested attributes) of every span of a record.

    Raises:
        BadField: a span or its attributes are no objects.
    """
    resources = record.get("resourceSpans", record.get("resource_spans"))
    if resources is None:
        yield _span(record, _attributes(record))
        return
    for i, resource in enumerate(mappings(resources, "resourceSpans")):
        for scope in mappings(
            first(resource, ("scopeSpans", "scope_spans")), f"resourceSpans[{i}].scopeSpans"
        ):
            for span in mappings(scope.get("spans"), "spans"):
                pairs = mappings(span.get("attributes"), "attributes")
                yield _span(span, _tree({str(p.get("key")): _plain(p.get("value")) for p in pairs}))


def messages_of(value: Any) -> list[dict[str, Any]]:
    """Chat messages of `llm.input_messages` or `llm.output_messages`."""
    return [_message(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    told = _tree(dict(item))
    message = told.get("message", told)
    message = dict(message) if isinstance(message, Mapping) else {}
    parts = message.get("contents")
    if message.get("content") is None and isinstance(parts, list):
        inner = [part.get("message_content", part) for part in parts if isinstance(part, Mapping)]
        message["content"] = [
            p if isinstance(p, Mapping) and "type" in p else {"type": "text", "text": p} for p in inner
        ]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [
            first(c, ("tool_call",)) or c if isinstance(c, Mapping) else c for c in calls
        ]
    message.setdefault("role", "user")
    return message


def _attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    given = record.get("attributes")
    pairs = listed(given, "attributes") if isinstance(given, list) else None
    if pairs is not None:
        return _tree(
            {
                str(mapped(p, "attributes").get("key")): _plain(mapped(p, "attributes").get("value"))
                for p in pairs
            }
        )
    flat = {
        str(k).removeprefix("attributes."): v for k, v in record.items() if str(k).startswith("attributes.")
    }
    return _tree({**flat, **mapped(given, "attributes")})


def _span(record: Mapping[str, Any], attributes: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    places = {
        "trace": ("context.trace_id", "traceId", "trace_id"),
        "id": ("context.span_id", "spanId", "span_id", "id"),
        "parent": ("parent_id", "parentSpanId", "parent_span_id"),
        "name": ("name",),
        "start": ("start_time", "startTimeUnixNano", "start_time_unix_nano"),
        "status": ("status_code", "status.status_code", "status.code"),
        "message": ("status_message", "status.message", "status.description"),
    }
    found = {part: named(record, names) for part, names in places.items()}
    # In OTLP 2 stands for an error.
    return {**found, "status": "ERROR" if found["status"] == "2" else found["status"].upper()}, attributes


def _plain(value: Any) -> Any:
    """An OTLP value: {stringValue}, {intValue}, {arrayValue: {values}}, {kvlistValue: {values}}."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    kind, inner = next(iter(value.items()))
    values = inner.get("values") if isinstance(inner, Mapping) else None
    if kind in ("arrayValue", "array_value"):
        return [_plain(v) for v in values] if isinstance(values, list) else []
    if kind in ("kvlistValue", "kvlist_value"):
        pairs = [p for p in values if isinstance(p, Mapping)] if isinstance(values, list) else []
        return {str(p.get("key")): _plain(p.get("value")) for p in pairs}
    return inner


def _tree(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested objects; objects whose names are 0, 1, 2, ... as lists."""
    root: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = str(name).split(".", _DEEPEST)
        at = root
        for part in path:
            inner = at.get(part)
            if not isinstance(inner, dict):
                inner = {} if inner is None else {"": inner}
                at[part] = inner
            at = inner
        held = at.get(leaf)
        at[leaf] = (
            {**held, "": value}
            if isinstance(held, dict) and not isinstance(value, Mapping)
            else _merged(held, value)
        )
    return {name: _lists(value) for name, value in root.items()}


def _merged(held: Any, value: Any) -> Any:
    inner = _tree(value) if isinstance(value, Mapping) else value
    return {**held, **inner} if isinstance(held, dict) and isinstance(inner, dict) else inner


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {k: _lists(v) for k, v in value.items()}
    if inner and len(inner) <= _MOST and all(k.isdecimal() and len(k) < 6 for k in inner):
        return [inner[k] for k in sorted(inner, key=int)]
    return inner
