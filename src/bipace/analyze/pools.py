"""Texts and columns stored once, numbers with ten significant digits.

What keeps a page of many steps small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_TEXT", "Pool", "finite", "short"]

MAX_TEXT = 6000


def short(value: float) -> float:
    """Ten significant digits."""
    return float(f"{value:.10g}")


def finite(numbers: dict[str, float]) -> dict[str, float]:
    """A mapping of numbers, shortened."""
    return {name: short(value) for name, value in numbers.items()}


class Pool:
    """Equal things stored once; `add` returns the index.

    Args:
        most: characters of a text that are kept; the rest is counted.
    """

    def __init__(self, most: int = MAX_TEXT) -> None:
        self.items: list[Any] = []
        self._index: dict[Any, int] = {}
        self._most = most

    def add(self, key: Any, value: Any) -> int:
        """The index of a value under its key."""
        if key not in self._index:
            self._index[key] = len(self.items)
            self.items.append(value)
        return self._index[key]

    def text(self, value: str) -> int:
        """The index of a text, cut where it is too long."""
        if len(value) > self._most:
            value = f"{value[: self._most]}\n[... {len(value) - self._most} more characters]"
        return self.add(value, value)

    def column(self, values: NDArray[Any]) -> int:
        """The index of a column of numbers."""
        if np.issubdtype(values.dtype, np.floating):
            values = np.asarray(values, np.float64) + 0.0  # no negative zero
            return self.add(values.tobytes(), [short(v) for v in values.tolist()])
        return self.add((values.dtype.str, values.tobytes()), values.tolist())
