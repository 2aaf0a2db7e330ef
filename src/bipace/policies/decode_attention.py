"""Attention where every row has one query: one more token each, or the last of several.

With so few queries the work is reading the keys, so it is two matrix products for each of prompt and row.
Queries come as [b, key heads, groups, d]: query heads that share a key head become more queries of that head,
so no key is copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.kv_cache import KVCache, Rows

__all__ = ["DecodeAttention", "decode_attention"]

MOST = 0.75  # share of a cache from which on reading all of it is cheaper than a gather


@dataclass(frozen=True, slots=True)
class DecodeAttention:
    """What is read where every row has one query.

    The frame is what is multiplied with the cache: all rows in order (a gather costs more than a few idle
    rows), or the b rows that ask. Seen by prompt, a frame has `copies` places for each of some prompts.

    Attributes:
        rows: rows of the cache in the frame.
        at: [b] each query's place in the frame, or None where the queries are the frame.
        end: slots read of each row.
        prompts: rows of the prompts' cache that are read.
        places: [b] each query's place in the frame seen by prompt, or None where that is the frame itself.
        prompt_count: how many prompts are read.
        prompt_end: slots read of each.
        copies: places per prompt.
        bias: [frame, 1, 1, prompt_end + end] of 0 and minus infinity.
    """

    rows: Rows
    at: torch.Tensor | None
    end: int
    prompts: Rows
    places: torch.Tensor | None
    prompt_count: int
    prompt_end: int
    copies: int
    bias: torch.Tensor

    def attend(self, queries: torch.Tensor, own: KVCache, prompts: KVCache, scaling: float) -> torch.Tensor:
        """Attention of queries [b, key heads, groups, d] to their prompt's slots and then their row's."""
        key, value = own.read(self.rows, self.end)
        if self.at is not None:
            queries = queries.new_zeros((len(key), *queries.shape[1:])).index_copy_(0, self.at, queries)
        weights = queries @ key.transpose(2, 3)
        end = self.prompt_end
        prompt_value = None
        if end:
            prompt_key, prompt_value = prompts.read(self.prompts, end)
            shared = self._by_row(self._by_prompt(queries) @ prompt_key.transpose(2, 3))
            weights = torch.cat([shared, weights], dim=3)
        weights = weights.mul_(scaling).add_(self.bias).softmax(dim=-1, dtype=torch.float32).to(value.dtype)
        mixed = weights[..., end:] @ value
        if prompt_value is not None:
            mixed = mixed + self._by_row(self._by_prompt(weights[..., :end]) @ prompt_value)
        return mixed if self.at is None else mixed.index_select(0, self.at)

    def _by_prompt(self, x: torch.Tensor) -> torch.Tensor:
        """[frame, heads, w, d] as [prompts, heads, copies * w, d]; zeros where a place stays empty."""
        _, heads, width, size = x.shape
        if self.places is not None:
            empty = x.new_zeros((self.prompt_count * self.copies, heads, width, size))
            x = empty.index_copy_(0, self.places, x)
        x = x.view(self.prompt_count, self.copies, heads, width, size).transpose(1, 2)
        return x.reshape(self.prompt_count, heads, self.copies * width, size)

    def _by_row(self, x: torch.Tensor) -> torch.Tensor:
        """The way back from `_by_prompt`."""
        _, heads, width, size = x.shape
        x = x.view(self.prompt_count, heads, self.copies, width // self.copies, size).transpose(1, 2)
        x = x.reshape(self.prompt_count * self.copies, heads, width // self.copies, size)
        return x if self.places is None else x.index_select(0, self.places)


def decode_attention(
    rows: NDArray[np.int64],
    own: NDArray[np.int64],
    prompts: NDArray[np.int64],
    copies: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> DecodeAttention:
    """What the last token of some rows reads.

    Args:
        rows: [b] distinct rows, in the order of the queries.
        own: tokens that each row of the cache holds, the last one among them.
        prompts: tokens of each prompt in the prompts' cache.
        copies: rows per prompt, side by side.
        dtype: of the bias.
        device: where the tables go.
    """
    whose, used = rows // copies, np.unique(rows // copies)
    everyone = len(rows) > MOST * len(own)
    if everyone or len(used) > MOST * len(prompts):
        used = np.arange(len(prompts))
    frame = np.arange(len(own)) if everyone else rows
    # A row that only fills the frame may hold nothing; it looks at a slot that nobody reads for it.
    last = (own[frame, None] - 1).clip(0)
    end, prompt_end = int(own[rows].max()), int(prompts[used].max(initial=0))
    seen = np.hstack([np.arange(prompt_end) < prompts[frame // copies, None], np.arange(end) <= last])
    # A prompt's places are taken by those of its rows that are in the frame, one after the other.
    by_prompt = whose.argsort(kind="stable")
    counts = np.bincount(whose, minlength=len(prompts))
    rank = np.empty_like(rows)
    rank[by_prompt] = np.arange(len(rows)) - (counts.cumsum() - counts)[whose[by_prompt]]
    width = copies if everyone else int(counts.max())

    def tensor(values: NDArray[np.int64] | NDArray[np.bool_]) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    bias = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(tensor(~seen), -torch.inf)
    return DecodeAttention(
        rows=slice(None) if everyone else tensor(rows),
        at=tensor(rows) if everyone and not np.array_equal(rows, frame) else None,
        end=end,
        prompts=slice(None) if len(used) == len(prompts) else tensor(used),
        places=None if everyone else tensor(np.searchsorted(used, whose) * width + rank),
        prompt_count=len(used),
        prompt_end=prompt_end,
        copies=width,
        bias=bias[:, None, None],
    )
