"""The tokens of one decoding forward as a flat list, with where they are written and what they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.decode_attention import DecodeAttention, decode_attention
from bipace.policies.kv_cache import CacheWrite, KVCache
from bipace.policies.prefill_attention import Chunks, prefill_attention

__all__ = ["CachedAttention", "Lengths", "TokenBatch", "append_batch", "parts", "prefill_batch"]

PREFILL_TOKENS = 8192  # of one forward
SLOTS = 256  # a cache grows by so many


class CachedAttention(Protocol):
    """Attention of a forward's queries over the caches of a layer."""

    def attend(self, queries: torch.Tensor, own: KVCache, prompts: KVCache, scaling: float) -> torch.Tensor:
        """[T, key heads, groups, d] like the queries; `own` is the cache of the rows that are written."""
        ...


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """T new tokens of b rows, row by row.

    Attributes:
        ids: [T] tokens.
        positions: [T] theirs in their contexts.
        last: [b] the last token of each row, in the order in which the rows were given.
        write: where keys and values are written.
        attention: what all tokens read.
        last_attention: what the tokens `last` read, which may be cheaper; None where nothing is asked of
            them.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    last: torch.Tensor
    write: CacheWrite
    attention: CachedAttention
    last_attention: DecodeAttention | None


@dataclass(slots=True)
class Lengths:
    """How many tokens are in the caches, and how many slots they have.

    Attributes:
        prompts: [P] tokens of each prompt in the prompts' cache.
        rows: [P * copies] tokens of each row, its prompt's not counted.
        copies: rows per prompt, side by side.
        prompt_slots: of the prompts' cache.
        row_slots: of the rows' cache.
    """

    prompts: NDArray[np.int64]
    rows: NDArray[np.int64]
    copies: int
    prompt_slots: int = 0
    row_slots: int = 0


def prefill_batch(
    lengths: Lengths, prompts: NDArray[np.int64], chunks: Sequence[Sequence[int]], device: torch.device
) -> TokenBatch:
    """The next chunk of some prompts; `lengths` then counts it."""
    counts, held = _counts(chunks), lengths.prompts[prompts]
    lengths.prompt_slots = _slots(lengths.prompt_slots, held + counts)
    order, attention = prefill_attention(
        Chunks(prompts, counts, held, prompts, np.zeros_like(counts)), device
    )
    flat = _Flat(prompts, held, np.zeros_like(held), chunks, order)
    lengths.prompts[prompts] += counts
    write = flat.write(len(lengths.prompts), lengths.prompt_slots, device)
    return TokenBatch(*flat.tensors(device), write, attention, None)


def append_batch(
    lengths: Lengths,
    rows: NDArray[np.int64],
    chunks: Sequence[Sequence[int]],
    device: torch.device,
    dtype: torch.dtype,
) -> TokenBatch:
    """A chunk of tokens behind each of some rows; `lengths` then counts it."""
    counts, held, prompts = _counts(chunks), lengths.rows[rows], rows // lengths.copies
    base = lengths.prompts[prompts]
    lengths.row_slots = _slots(lengths.row_slots, held + counts)
    order, several = np.arange(len(rows)), None
    if counts.max() > 1:
        order, several = prefill_attention(Chunks(rows, counts, held, prompts, base), device)
    flat = _Flat(rows, held, base, chunks, order)
    lengths.rows[rows] += counts
    write = flat.write(len(lengths.rows), lengths.row_slots, device)
    last = decode_attention(rows, lengths.rows, lengths.prompts, lengths.copies, dtype=dtype, device=device)
    return TokenBatch(*flat.tensors(device), write, several or last, last)


def parts(chunks: Sequence[Sequence[int]]) -> Iterator[range]:
    """Split chunks over forwards of PREFILL_TOKENS at most, in order.

    A longer one gets a forward of its own.
    """
    start = tokens = 0
    for i, chunk in enumerate(chunks):
        if i > start and tokens + len(chunk) > PREFILL_TOKENS:
            yield range(start, i)
            start, tokens = i, 0
        tokens += len(chunk)
    if chunks:
        yield range(start, len(chunks))


@dataclass(frozen=True, slots=True)
class _Flat:
    """Chunks behind `held` tokens of rows whose contexts begin with `base` more, taken in this order."""

    rows: NDArray[np.int64]
    held: NDArray[np.int64]
    base: NDArray[np.int64]
    chunks: Sequence[Sequence[int]]
    order: NDArray[np.int64]

    def tensors(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids [T], positions [T], last tokens [b]."""
        counts = _counts(self.chunks)[self.order]
        stops = counts.cumsum()
        last = np.empty_like(self.order)
        last[self.order] = stops - 1
        ids = np.array([token for i in self.order for token in self.chunks[i]])
        positions = self._slots() + self.base[self.order].repeat(counts)
        ids, positions, last = (torch.from_numpy(x).to(device) for x in (ids, positions, last))
        return ids, positions, last

    def write(self, rows: int, slots: int, device: torch.device) -> CacheWrite:
        """Into a cache of so many rows and slots."""
        row = self.rows[self.order].repeat(_counts(self.chunks)[self.order])
        return CacheWrite(
            rows, slots, torch.from_numpy(row).to(device), torch.from_numpy(self._slots()).to(device)
        )

    def _slots(self) -> NDArray[np.int64]:
        """[T] slot of each token."""
        counts = _counts(self.chunks)[self.order]
        stops = counts.cumsum()
        return np.arange(stops[-1]) + (self.held[self.order] - stops + counts).repeat(counts)


def _counts(chunks: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.array([len(chunk) for chunk in chunks])


def _slots(present: int, needed: NDArray[np.int64]) -> int:
    return max(present, -(-int(needed.max()) // SLOTS) * SLOTS)
