"""Count, total, mean and standard deviation per label, written back to rows: the only group arithmetic.

Labels are compact integers 0..K-1 (`compact` makes them of any). Every function takes [N] arrays and returns
an [N] array holding each row's own segment's statistic. The mean is taken relative to one member, so a
segment of equal values has exactly that mean and exactly zero deviation: rounding never becomes an advantage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core.steps import Bools, Floats, Ints

__all__ = ["compact", "constant", "count", "first_rows", "mean", "others", "pair", "std", "total"]

_DENSE = 4  # possible labels per row up to which a table of them is small


def compact(labels: NDArray[Any]) -> Ints:
    """Rename labels to 0..K-1, keeping their sort order. Empty in, empty out."""
    if len(labels) and np.issubdtype(labels.dtype, np.signedinteger):
        low = int(labels.min())
        if int(labels.max()) - low < _DENSE * len(labels):
            # A table of what is there costs less than the sort that would find it.
            shifted = labels.astype(np.int64) - low
            return (np.cumsum(np.bincount(shifted) > 0) - 1)[shifted]
    return np.ravel(np.unique(labels, return_inverse=True)[1]).astype(np.int64)


def pair(a: Ints, b: Ints) -> Ints:
    """Compact labels of the pairs (a_i, b_i): equal exactly where both parts are equal."""
    if not len(a):
        return np.zeros(0, np.int64)
    inner = compact(b)
    return compact(compact(a) * (inner.max() + 1) + inner)


def first_rows(labels: Ints) -> Ints:
    """The first row index of each label that is there, in label order.

    One representative row a segment, [K].
    """
    first = np.full(int(labels.max(initial=-1)) + 1, -1)
    first[labels[::-1]] = np.arange(len(labels) - 1, -1, -1)  # the last to be written is the first row
    return first[first >= 0]


def count(labels: Ints) -> Ints:
    """Members of each row's segment, >= 1."""
    return np.bincount(labels)[labels].astype(np.int64) if len(labels) else np.zeros(0, np.int64)


def total(values: Floats, labels: Ints) -> Floats:
    """Sum over each row's segment."""
    return np.bincount(labels, weights=values).astype(np.float64)[labels] if len(labels) else np.zeros(0)


def mean(values: Floats, labels: Ints) -> Floats:
    """Mean over each row's segment; exact for a segment of equal values; a lone row's mean is itself."""
    reference = _reference(values, labels)
    return reference + total(values - reference, labels) / count(labels)


def others(values: Floats, labels: Ints, parts: Ints) -> tuple[Floats, Ints]:
    """Mean and number of the members of each row's segment of another part (a trajectory, say); 0 of none."""
    own = pair(labels, parts)
    n = count(labels) - count(own)
    # The sum over a segment of what differs from its mean is 0, so the others' is the own part's with its
    # sign turned.
    middle = mean(values, labels)
    return np.where(n > 0, middle - total(values - middle, own) / np.maximum(n, 1), 0.0), n


def std(values: Floats, labels: Ints, ddof: int = 1) -> Floats:
    """Standard deviation over each row's segment, sqrt(sum (x - mean)^2 / (n - ddof)); 0 where n <= ddof."""
    n = count(labels)
    squares = total((values - mean(values, labels)) ** 2, labels)
    return np.sqrt(squares / np.maximum(n - ddof, 1)) * (n > ddof)


def constant(values: Floats, labels: Ints) -> Bools:
    """True on the rows of segments whose members all hold one value."""
    return total((values != _reference(values, labels)).astype(np.float64), labels) == 0


def _reference(values: Floats, labels: Ints) -> Floats:
    if not len(labels):
        return np.zeros(0)
    return values[first_rows(labels)][labels]
