"""From any value to an integer label: equal values share a label, values of different types never do.

This is where text, dicts, arrays and None become the integers that estimators compare, so that `1`, `1.0` and
`True` do not collide and nothing unhashable can crash a run.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from bipace.core.steps import Ints

__all__ = ["canonical", "label", "ranked"]

_DEPTH = 32  # objects inside objects, beyond which only a type's name is compared


def canonical(value: object, depth: int = _DEPTH) -> Hashable:
    """A hashable stand-in for a value, equal exactly where type and content are equal.

    Text stands for itself. A numpy scalar is the Python number it holds, so `np.int64(1)` equals `1`, while
    `1`, `1.0` and `True` differ. Mappings ignore key order; NaN equals NaN. Arrays, and whatever turns into
    one (tensors), are compared by dtype, shape and bytes; other objects by their type and attributes, or by
    their repr where they have none. Nothing is compared by a shortened text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, np.generic):
        return canonical(cast("object", value.item()), depth)
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, int, float, complex, bytes)):
        return (kind, repr(value))
    if depth <= 0:
        return (kind, "...")
    if isinstance(value, Mapping):
        items = [
            (canonical(k, depth - 1), canonical(v, depth - 1))
            for k, v in cast("Mapping[Any, Any]", value).items()
        ]
        return (kind, tuple(sorted(items, key=repr)))
    if isinstance(value, (list, tuple)):
        return (kind, tuple(canonical(v, depth - 1) for v in cast("Sequence[object]", value)))
    if isinstance(value, (set, frozenset)):
        return (kind, tuple(sorted((canonical(v, depth - 1) for v in cast("set[object]", value)), key=repr)))
    if hasattr(value, "__array__"):
        return (kind, *_array(np.asarray(cast("Any", value)), depth))
    held: Any = getattr(value, "__dict__", None)
    if isinstance(held, dict) and held:
        return (kind, canonical(cast("dict[str, Any]", held), depth - 1))
    return (kind, repr(value))


def ranked(values: Sequence[object]) -> Ints:
    """[N] labels in the order of the values themselves, not of their arrival.

    Numbers by size, text by code point.

    Values of other types, and mixtures, are ordered by type and content: stable, without a meaning.
    """
    keys = [canonical(value) for value in values]
    distinct = dict(zip(keys, values, strict=True))
    numbers = all(isinstance(v, (int, float, np.integer, np.floating)) for v in distinct.values())
    texts = all(isinstance(key, str) for key in distinct)
    order: list[Hashable] = sorted(
        distinct,
        key=(lambda key: (float(cast("Any", distinct[key])), repr(key)))
        if numbers
        else (str if texts else repr),
    )
    rank = {key: number for number, key in enumerate(order)}
    return np.fromiter((rank[key] for key in keys), np.int64, len(keys))


def _array(array: np.ndarray[Any, Any], depth: int) -> tuple[Hashable, ...]:
    content = canonical(array.tolist(), depth - 1) if array.dtype.hasobject else array.tobytes()
    return (array.dtype.str, array.shape, content)


def label(values: Sequence[object]) -> tuple[Ints, list[object]]:
    """Number values by first appearance.

    Returns:
        labels: [N] int, 0..K-1.
        distinct: the K distinct values, in label order.
    """
    seen: dict[Hashable, int] = {}
    distinct: list[object] = []
    labels = np.empty(len(values), np.int64)
    for i, value in enumerate(values):
        key = canonical(value)
        if key not in seen:
            seen[key] = len(distinct)
            distinct.append(value)
        labels[i] = seen[key]
    return labels, distinct
