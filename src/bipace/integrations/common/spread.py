"""One value a model call -> the engine's own shape: a row a call, or many calls along a row of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bipace.core.steps import Floats

__all__ = ["along_spans", "floating", "over_mask", "written_runs"]


def over_mask(values: ArrayLike, mask: ArrayLike) -> Floats:
    """[N] values and an [N, L] response mask -> [N, L].

    A row's value on all its response tokens, 0 elsewhere.

    Raises:
        ValueError: another number of values than rows.

    Examples:
        >>> from bipace.integrations.common.spread import over_mask
        >>> over_mask([0.5, -1.0], [[0, 1, 1], [1, 0, 0]]).tolist()
        [[0.0, 0.5, 0.5], [-1.0, -0.0, -0.0]]
    """
    column, on = np.asarray(values, np.float64), np.asarray(mask) != 0
    if on.ndim != 2 or column.shape != on.shape[:1]:
        raise ValueError(f"mask: shape {on.shape}, expected ({len(column)}, L): one row of tokens per value")
    return column[:, None] * on


def written_runs(mask: ArrayLike) -> list[tuple[int, int]]:
    """(start, end) of each run of tokens that the policy wrote, in order, from an [L] mask.

    Empty where there is none.

    Two calls with nothing between them are one run: the mask cannot tell them apart.

    Examples:
        >>> from bipace.integrations.common.spread import written_runs
        >>> written_runs([0, 1, 1, 0, 1])
        [(1, 3), (4, 5)]
    """
    on = np.asarray(mask) != 0
    if on.ndim != 1:
        raise ValueError(f"mask: shape {on.shape}, expected ({on.size},): the tokens of one row")
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def along_spans(
    values: Floats, spans: Sequence[Sequence[tuple[int, int]]], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """[N] values -> an array of `shape`: each value on the tokens its model call wrote, 0 elsewhere.

    Args:
        values: one a model call: first those of row 0's spans in order, then row 1's, and so on. A rollout
            kept in several rows (segments) has its calls in several rows.
        spans: row -> (start, end) of each call.
        shape: (rows, length).

    Raises:
        ValueError: another number of spans than values; a span outside its row, empty, or over the one
            before.

    Examples:
        >>> import numpy as np
        >>> from bipace.integrations.common.spread import along_spans
        >>> along_spans(np.array([0.5, -1.0]), [[(1, 3), (4, 5)]], (1, 5)).tolist()
        [[0.0, 0.5, 0.5, 0.0, -1.0]]
    """
    count = sum(len(row) for row in spans)
    if len(spans) != shape[0] or count != len(values):
        raise ValueError(
            f"spans: {count} in {len(spans)} rows for {len(values)} values in {shape[0]} rows, expected "
            "one a value"
        )
    out = np.zeros(shape)
    following = iter(np.asarray(values, np.float64).tolist())
    for i, row in enumerate(spans):
        free = 0
        for start, end in row:
            if not free <= start < end <= shape[1]:
                raise ValueError(
                    f"spans: ({start}, {end}) in row {i}, expected {free} <= start < end <= {shape[1]}, in "
                    "order"
                )
            out[i, start:end], free = next(following), end
    return out


def floating(values: NDArray[Any], like: Any) -> Any:
    """The values as a tensor on `like`'s device, in its type where that holds fractions, else float32.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from bipace.integrations.common.spread import floating
        >>> floating(np.array([0.5]), torch.ones(1, dtype=torch.int64))
        tensor([0.5000])
    """
    import torch

    kind = like.dtype if like.dtype.is_floating_point else torch.float32
    return torch.from_numpy(values).to(device=like.device, dtype=kind)
