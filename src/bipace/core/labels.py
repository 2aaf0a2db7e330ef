"""From any value to an integer label: equal values share a label, values of different types never do.

This is where text, dicts, arrays and None become the integers that estimators compare, so that `1`, `1.0` and
`True` do not collide and nothing unhashable can crash a run.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from bipace.core.steps import Ints

__all__ = ["canonical", "label"]


def canonical(value: object) -> Hashable:
    """A hashable stand-in for a value, equal exactly where type and content are equal.

    Text stands for itself. Mappings ignore key order, arrays carry dtype and shape, NaN equals NaN. Anything else
    is compared by its type and repr.
    """
    if isinstance(value, str):
        return value
    kind = type(value).__name__
    if isinstance(value, Mapping):
        items = [(canonical(k), canonical(v)) for k, v in cast("Mapping[Any, Any]", value).items()]
        return (kind, tuple(sorted(items, key=repr)))
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        content = repr(array.tolist()) if array.dtype.hasobject else array.tobytes()
        return (kind, array.dtype.str, array.shape, content)
    if isinstance(value, (list, tuple)):
        return (kind, tuple(canonical(v) for v in cast("Sequence[object]", value)))
    if isinstance(value, (set, frozenset)):
        return (kind, tuple(sorted((canonical(v) for v in cast("set[object]", value)), key=repr)))
    return (kind, repr(value))


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
