"""The key-value cache of a decoding session.

Every layer has two caches of shape [rows, key heads, slots, d]: one row per prompt, read by all rows that
continue it, and one row per continuation. A token's slot is its position, counted in a continuation from the
prompt's end, so there is no left padding and no hole. Whatever lies behind a row's length is never read
before it is overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["CacheWrite", "KVCache", "LayerCache", "Rows", "as_rows"]

Rows = torch.Tensor | slice
"""Rows of a cache; a slice where they stand side by side, so that reading them copies nothing."""


def as_rows(rows: NDArray[np.int64], device: torch.device) -> Rows:
    """At least one row of a cache, as a slice where they stand side by side."""
    first = int(rows[0])
    if np.array_equal(rows, np.arange(first, first + len(rows))):
        return slice(first, first + len(rows))
    return torch.from_numpy(rows).to(device)


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """Where a forward's T new tokens are written; the same in all layers.

    Attributes:
        rows: rows of the cache.
        slots: slots that each row must have.
        row: [T] row of each token.
        slot: [T] its slot.
    """

    rows: int
    slots: int
    row: torch.Tensor
    slot: torch.Tensor
    _index: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])

    def index(self, heads: int) -> torch.Tensor:
        """[T * heads] places in a cache [rows, heads, slots, d], its first three axes laid end to end."""
        if heads not in self._index:
            lanes = self.row[:, None] * heads + torch.arange(heads, device=self.row.device)
            self._index[heads] = (lanes * self.slots + self.slot[:, None]).flatten()
        return self._index[heads]


class KVCache:
    """Keys and values of some rows in one layer.

    Made at the first write, which shows their shape, and grown.
    """

    def __init__(self) -> None:
        self._states: tuple[torch.Tensor, torch.Tensor] | None = None

    def write(self, keys: torch.Tensor, values: torch.Tensor, where: CacheWrite) -> None:
        """Put keys and values [T, key heads, d] where it is said."""
        old = self._states or (None, None)
        grown = tuple(_grown(cache, states, where) for cache, states in zip(old, (keys, values), strict=True))
        for cache, states in zip(grown, (keys, values), strict=True):
            cache.flatten(0, 2).index_copy_(
                0, where.index(states.shape[1]), states.reshape(-1, states.shape[2])
            )
        self._states = grown[0], grown[1]

    def read(self, rows: Rows, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values in the first slots of some rows, [rows, key heads, end, d]."""
        assert self._states is not None
        keys, values = (cache[:, :, :end] for cache in self._states)
        if isinstance(rows, slice):
            return keys[rows], values[rows]
        return keys.index_select(0, rows), values.index_select(0, rows)

    def copy_rows(self, source: torch.Tensor, end: int) -> None:
        """Give row i the first slots of row source[i]."""
        for cache in self._states or ():
            cache[:, :, :end] = cache[source, :, :end]


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's two caches: a row per prompt, and a row per continuation."""

    prompts: KVCache = field(default_factory=KVCache)
    rows: KVCache = field(default_factory=KVCache)


def _grown(cache: torch.Tensor | None, states: torch.Tensor, where: CacheWrite) -> torch.Tensor:
    """The cache in the type and place of the states [T, heads, d], with at least the slots needed."""
    if cache is not None and cache.shape[2] >= where.slots:
        return cache
    # Zeros, not empty: a masked slot has weight 0, and 0 times an uninitialised NaN is NaN.
    grown = states.new_zeros((where.rows, states.shape[1], where.slots, states.shape[2]))
    if cache is not None:
        grown[:, :, : cache.shape[2]] = cache
    return grown
