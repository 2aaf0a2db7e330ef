"""Attention of chunks of several tokens.

Prompts, and replies that are appended to what a row holds (chunked prefill).

Everything but attention works on a flat list of tokens, without padding. Attention needs tables. A batch
holds prompts of similar length and the rows that continue them, and has two tables: its tokens by row, which
look at what the row itself holds, and the same tokens by prompt, which look at the prompt that several rows
share. The two results are joined by their softmax masses (cascade attention). Made once per forward, used by
every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from bipace.policies.kv_cache import KVCache, Rows, as_rows
from bipace.policies.padding import PaddedTable, padded_table

__all__ = ["Chunks", "PrefillAttention", "PrefillBatch", "can_split", "prefill_attention"]

# Tables a forward is cut into for attention on a CPU: more of them leave less padding but cost calls.
BATCHES = 16


@dataclass(frozen=True, slots=True)
class Chunks:
    """What the b rows of a forward get.

    Attributes:
        rows: [b] rows of the cache.
        counts: [b] tokens of the chunks, at least one each.
        held: [b] slots filled before.
        prompts: [b] prompt that each row continues; while prompts are computed, the row itself.
        prompt_lengths: [b] tokens of that prompt in the prompts' cache; 0 where there is nothing to look at.
    """

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    held: NDArray[np.int64]
    prompts: NDArray[np.int64]
    prompt_lengths: NDArray[np.int64]

    def take(self, which: NDArray[np.int64]) -> Chunks:
        """Some of them, in that order."""
        return Chunks(*(getattr(self, f.name)[which] for f in fields(self)))


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """Some prompts and the rows that continue them, or (while prompts are computed) prompts alone.

    Attributes:
        start: its first token in the forward's flat list.
        stop: the token behind its last.
        by_row: its tokens by row.
        rows: rows of the cache, in the order of the table.
        end: slots read of each.
        seen: [rows, width, end] which of them each token sees.
        by_prompt: its tokens by prompt, or None where there is no prompt to look at.
        prompts: rows of the prompts' cache, in the order of that table.
        prompt_end: slots read of each.
        prompt_seen: [prompts, prompt_end] which of them are there.
        whose: [rows] each row's place in `prompts`.
    """

    start: int
    stop: int
    by_row: PaddedTable
    rows: Rows
    end: int
    seen: torch.Tensor
    by_prompt: PaddedTable | None
    prompts: Rows
    prompt_end: int
    prompt_seen: torch.Tensor
    whose: torch.Tensor
    _biases: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def attend(self, queries: torch.Tensor, own: KVCache, prompts: KVCache, scaling: float) -> torch.Tensor:
        """Attention of the batch's queries [T, key heads, groups, d].

        To their prompt and to their row apart, where the operator for that exists.
        """
        groups, dtype = queries.shape[2], queries.dtype
        key, value = own.read(self.rows, self.end)
        by_row, row_bias = self.by_row.pad(queries), self._row_bias(groups, dtype)
        if self.by_prompt is None:
            mixed = scaled_dot_product_attention(by_row, key, value, attn_mask=row_bias, scale=scaling)
            return self.by_row.unpad(mixed, groups)
        prompt_key, prompt_value = prompts.read(self.prompts, self.prompt_end)
        if not can_split(queries.device):
            key = torch.cat([prompt_key.index_select(0, self.whose), key], dim=2)
            value = torch.cat([prompt_value.index_select(0, self.whose), value], dim=2)
            bias = self._joint_bias(groups, dtype)
            mixed = scaled_dot_product_attention(by_row, key, value, attn_mask=bias, scale=scaling)
            return self.by_row.unpad(mixed, groups)
        by_prompt = self.by_prompt.pad(queries)
        mixed, mass = _with_mass(by_row, key, value, row_bias, scaling)
        shared, shared_mass = _with_mass(
            by_prompt, prompt_key, prompt_value, self._prompt_bias(dtype), scaling
        )
        mixed, mass = (self.by_row.unpad(x, groups) for x in (mixed, mass))
        shared, shared_mass = (self.by_prompt.unpad(x, groups) for x in (shared, shared_mass))
        # The softmax over both counts each part as much as its share of the sum of exponentials.
        return shared.lerp_(mixed, (mass - shared_mass).sigmoid_().to(mixed.dtype))

    def _row_bias(self, groups: int, dtype: torch.dtype) -> torch.Tensor:
        """[rows, 1, width * groups, end] of 0 and minus infinity."""
        if "row" not in self._biases:
            self._biases["row"] = _bias(self.seen, dtype).repeat_interleave(groups, dim=1)[:, None]
        return self._biases["row"]

    def _prompt_bias(self, dtype: torch.dtype) -> torch.Tensor | None:
        """[prompts, 1, 1, prompt_end], or None where every prompt is that long."""
        if len(self.prompt_seen) == 1:
            return None
        if "prompt" not in self._biases:
            self._biases["prompt"] = _bias(self.prompt_seen, dtype)[:, None, None]
        return self._biases["prompt"]

    def _joint_bias(self, groups: int, dtype: torch.dtype) -> torch.Tensor:
        """[rows, 1, width * groups, prompt_end + end]."""
        own = self._row_bias(groups, dtype)
        if "joint" not in self._biases:
            prompt = _bias(self.prompt_seen, dtype)[self.whose][:, None, None].expand(
                -1, -1, own.shape[2], -1
            )
            self._biases["joint"] = torch.cat([prompt, own], dim=3)
        return self._biases["joint"]


@dataclass(frozen=True, slots=True)
class PrefillAttention:
    """The batches of a forward, one after the other in its flat list of tokens."""

    batches: Sequence[PrefillBatch]

    def attend(self, queries: torch.Tensor, own: KVCache, prompts: KVCache, scaling: float) -> torch.Tensor:
        """Attention of queries [T, key heads, groups, d] to their prompt's slots and then their row's."""
        parts = [
            batch.attend(queries[batch.start : batch.stop], own, prompts, scaling) for batch in self.batches
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def prefill_attention(
    chunks: Chunks, device: torch.device, most: int | None = None
) -> tuple[NDArray[np.int64], PrefillAttention]:
    """What the tokens of a forward read, and the order in which it takes its rows.

    Args:
        chunks: the b rows.
        device: where the tables go.
        most: batches at most (one more where some prompts have length 0 and some not); None: what suits the
            device.

    Returns:
        [b] positions in `chunks` such that the flat list of tokens is batch by batch, prompt by prompt, row
        by row; and the batches.
    """
    most = (BATCHES if can_split(device) else 1) if most is None else most
    distinct, whose = np.unique(chunks.prompts, return_inverse=True)
    bare = np.zeros(len(distinct), np.bool_)
    bare[whose] = chunks.prompt_lengths == 0
    # Where there is no prompt to look at, rows that hold much stand together.
    extent = np.zeros(len(distinct), np.int64)
    np.maximum.at(extent, whose, np.where(bare[whose], chunks.held + chunks.counts, chunks.prompt_lengths))
    place = np.lexsort((extent, ~bare)).argsort()
    order = place[whose].argsort(kind="stable")
    members = np.bincount(place[whose])
    begins = np.concatenate([[0], members.cumsum()])
    size = -(-len(distinct) // most)
    # A prompt without tokens has nothing to attend to, so it shares no batch with one that has.
    cuts = [*range(0, int(bare.sum()), size), *range(int(bare.sum()), len(distinct), size), len(distinct)]
    made: list[PrefillBatch] = []
    for first, behind in pairwise(cuts):
        part = chunks.take(order[begins[first] : begins[behind]])
        made.append(_batch(part, members[first:behind], made[-1].stop if made else 0, device))
    return order, PrefillAttention(made)


def can_split(device: torch.device) -> bool:
    """Whether attention there can also give its mass.

    Torch has an operator for that by this name on a CPU only.
    """
    return device.type == "cpu"


def _batch(chunks: Chunks, members: NDArray[np.int64], start: int, device: torch.device) -> PrefillBatch:
    """Of prompts with so many members each, whose rows stand together; its tokens begin at `start`."""
    end = int((chunks.held + chunks.counts).max())
    slots = chunks.held[:, None] + np.arange(int(chunks.counts.max()))
    leaders = members.cumsum() - members
    lengths = chunks.prompt_lengths[leaders]
    prompt_end = int(lengths.max())

    def tensor(values: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    return PrefillBatch(
        start=start,
        stop=start + int(chunks.counts.sum()),
        by_row=padded_table(chunks.counts.tolist(), device),
        rows=as_rows(chunks.rows, device),
        end=end,
        seen=tensor(np.arange(end) <= slots[:, :, None]),
        by_prompt=padded_table(np.add.reduceat(chunks.counts, leaders).tolist(), device)
        if prompt_end
        else None,
        prompts=as_rows(chunks.prompts[leaders], device),
        prompt_end=prompt_end,
        prompt_seen=tensor(np.arange(prompt_end) < lengths[:, None]),
        whose=tensor(np.repeat(np.arange(len(members)), members)),
    )


def _bias(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)


def _with_mass(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None, scaling: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention [b, heads, q, d] and its mass [b, heads, q, 1], the logarithm of its sum of exponentials."""
    mixed, mass = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, attn_mask=bias, scale=scaling
    )
    return mixed, mass[..., None]
