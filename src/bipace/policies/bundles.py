"""How the ragged chunks of one decoding forward are laid out for attention.

Everything but attention works on a flat list of tokens, without padding. Attention needs tables. A bundle holds prompts
of similar length and the rows that continue them, and has two tables: its tokens by row, which look at what the row
itself holds, and the same tokens by prompt, which look at the prompt that several rows share. Made once, used by every
layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.layout import Layout, lay_out

__all__ = ["Bundle", "Chunks", "Rows", "make_bundles"]


Rows = torch.Tensor | slice


@dataclass(frozen=True, slots=True)
class Bundle:
    """Some prompts and the rows that continue them, or (while prompts are computed) prompts alone.

    Attributes:
        start: its first token in the forward's flat list.
        stop: the token behind its last.
        by_row: its tokens by row.
        rows: rows of the slab, in the order of the table; a slice where they stand side by side.
        end: slots read of each.
        seen: [rows, width, end] which of them each token sees.
        by_prompt: its tokens by prompt, or None where there is no prompt to look at.
        prompts: rows of the prompts' slab, in the order of that table; a slice as well.
        prompt_end: slots read of each.
        prompt_seen: [prompts, prompt_end] which of them are there.
        whose: [rows] each row's place in `prompts`.
    """

    start: int
    stop: int
    by_row: Layout
    rows: Rows
    end: int
    seen: torch.Tensor
    by_prompt: Layout | None
    prompts: Rows
    prompt_end: int
    prompt_seen: torch.Tensor
    whose: torch.Tensor
    _biases: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def row_bias(self, groups: int, dtype: torch.dtype) -> torch.Tensor:
        """[rows, 1, width * groups, end] of 0 and minus infinity."""
        if "row" not in self._biases:
            self._biases["row"] = _bias(self.seen, dtype).repeat_interleave(groups, dim=1)[:, None]
        return self._biases["row"]

    def prompt_bias(self, dtype: torch.dtype) -> torch.Tensor | None:
        """[prompts, 1, 1, prompt_end], or None where every prompt is that long."""
        if len(self.prompt_seen) == 1:
            return None
        if "prompt" not in self._biases:
            self._biases["prompt"] = _bias(self.prompt_seen, dtype)[:, None, None]
        return self._biases["prompt"]

    def joint_bias(self, groups: int, dtype: torch.dtype) -> torch.Tensor:
        """[rows, 1, width * groups, prompt_end + end]."""
        own = self.row_bias(groups, dtype)
        if "joint" not in self._biases:
            prompt = _bias(self.prompt_seen, dtype)[self.whose][:, None, None].expand(-1, -1, own.shape[2], -1)
            self._biases["joint"] = torch.cat([prompt, own], dim=3)
        return self._biases["joint"]


@dataclass(frozen=True, slots=True)
class Chunks:
    """What the b rows of a forward get.

    Attributes:
        rows: [b] rows of the slab.
        counts: [b] tokens of the chunks, at least one each.
        held: [b] slots filled before.
        prompts: [b] prompt that each row continues; while prompts are computed, the row itself.
        prompt_lengths: [b] tokens of that prompt in the other slab; 0 where there is nothing to look at.
    """

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    held: NDArray[np.int64]
    prompts: NDArray[np.int64]
    prompt_lengths: NDArray[np.int64]

    def take(self, which: NDArray[np.int64]) -> Chunks:
        """Some of them, in that order."""
        return Chunks(*(getattr(self, f.name)[which] for f in fields(self)))


def make_bundles(chunks: Chunks, *, most: int, device: torch.device) -> tuple[NDArray[np.int64], list[Bundle]]:
    """Bundles of a forward, and the order in which it takes its rows.

    Args:
        chunks: the b rows.
        most: bundles at most (one more where some prompts have length 0 and some not).
        device: where the tables go.

    Returns:
        [b] positions in `chunks` such that the flat list of tokens is bundle by bundle, prompt by prompt, row by row;
        and the bundles.
    """
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
    # A prompt without tokens has nothing to attend to, so it shares no bundle with one that has.
    cuts = [*range(0, int(bare.sum()), size), *range(int(bare.sum()), len(distinct), size), len(distinct)]
    made: list[Bundle] = []
    for first, behind in pairwise(cuts):
        part = chunks.take(order[begins[first] : begins[behind]])
        made.append(_bundle(part, members[first:behind], made[-1].stop if made else 0, device))
    return order, made


def _bundle(chunks: Chunks, members: NDArray[np.int64], start: int, device: torch.device) -> Bundle:
    """Of prompts with so many members each, whose rows stand together; its tokens begin at `start`."""
    end = int((chunks.held + chunks.counts).max())
    slots = chunks.held[:, None] + np.arange(int(chunks.counts.max()))
    leaders = members.cumsum() - members
    lengths = chunks.prompt_lengths[leaders]
    prompt_end = int(lengths.max())

    def tensor(values: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    return Bundle(
        start=start,
        stop=start + int(chunks.counts.sum()),
        by_row=lay_out(chunks.counts.tolist(), device),
        rows=_rows(chunks.rows, device),
        end=end,
        seen=tensor(np.arange(end) <= slots[:, :, None]),
        by_prompt=lay_out(np.add.reduceat(chunks.counts, leaders).tolist(), device) if prompt_end else None,
        prompts=_rows(chunks.prompts[leaders], device),
        prompt_end=prompt_end,
        prompt_seen=tensor(np.arange(prompt_end) < lengths[:, None]),
        whose=tensor(np.repeat(np.arange(len(members)), members)),
    )


def _rows(rows: NDArray[np.int64], device: torch.device) -> Rows:
    first = int(rows[0])
    if np.array_equal(rows, np.arange(first, first + len(rows))):
        return slice(first, first + len(rows))
    return torch.from_numpy(rows).to(device)


def _bias(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
