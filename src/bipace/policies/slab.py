"""The key-value slabs a decoding session writes into, and attention over them.

A slab has the shape [rows, key-value heads, slots + 1, head size]; its last slot is scratch, where padding is written.
There are two in every layer: one row per prompt, read by all rows that continue it, and one row per continuation. A
token's slot is its position, counted in a continuation from the prompt's end, so there is no left padding and no hole,
and a row's numbers do not depend on the rows beside it. Whatever lies behind a row's length is never read before it is
overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

__all__ = ["ATTENTION", "SlabLayer", "Window"]

ATTENTION = "bipace_slab"  # its name among transformers' attention functions
FEW = 8  # queries a row up to which two products are used: reading the keys is then most of the work


@dataclass(slots=True)
class Window:
    """Where the current forward writes and what it reads.

    Attributes:
        opening: True where the prompts themselves are computed; the other slab is then not read.
        rows: rows of the slab.
        size: its slots.
        write: [b] rows written.
        slots: [b, q] slots written.
        read: [b] rows read, or None for all of them in order.
        end: slots read.
        copies: continuations per prompt, side by side.
        prompt_end: slots read of the prompts' slab.
    """

    opening: bool
    rows: int
    size: int
    write: torch.Tensor
    slots: torch.Tensor
    read: torch.Tensor | None
    end: int
    copies: int
    prompt_end: int
    _index: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])

    def index(self, heads: int) -> torch.Tensor:
        """[b * heads * q] flat slots of a slab [rows, heads, size + 1, ...]; the same for all layers of a model."""
        if heads not in self._index:
            lanes = self.write[:, None] * heads + torch.arange(heads, device=self.write.device)
            self._index[heads] = (lanes[:, :, None] * (self.size + 1) + self.slots[:, None, :]).flatten()
        return self._index[heads]

    @property
    def prompts(self) -> int:
        """Rows of the prompts' slab."""
        return self.rows // self.copies

    def by_prompt(self, x: torch.Tensor) -> torch.Tensor:
        """[b, heads, w, d] of the rows read as [prompts, heads, copies * w, d]; zeros for rows that are not read."""
        _, heads, width, size = x.shape
        if self.read is not None:
            x = x.new_zeros((self.rows, heads, width, size)).index_copy_(0, self.read, x)
        x = x.view(self.prompts, self.copies, heads, width, size).transpose(1, 2)
        return x.reshape(self.prompts, heads, self.copies * width, size)

    def by_row(self, x: torch.Tensor) -> torch.Tensor:
        """The way back from `by_prompt`."""
        _, heads, width, size = x.shape
        x = x.view(self.prompts, heads, self.copies, width // self.copies, size).transpose(1, 2)
        x = x.reshape(self.rows, heads, width // self.copies, size)
        return x if self.read is None else x.index_select(0, self.read)


class SlabLayer(CacheLayerMixin):
    """One layer's slabs, made when the first keys arrive and show their shape, and grown when a forward needs more."""

    def __init__(self) -> None:
        super().__init__()
        self.window: Window | None = None
        self._slabs: dict[bool, tuple[torch.Tensor, torch.Tensor]] = {}

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:  # noqa: ARG002  (the base class's signature)
        """Nothing: a slab is made by the forward that writes into it."""
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values where the window says; what its queries may read of that slab.

        Raises RuntimeError without a window.
        """
        window = self.window
        if window is None:
            raise RuntimeError("a slab cache is written through DecodeSession only")
        old = self._slabs.get(window.opening, (None, None))
        keys, values = (_fitted(*pair, window) for pair in zip(old, (key_states, value_states), strict=True))
        self._slabs[window.opening] = keys, values
        return _write(keys, key_states, window), _write(values, value_states, window)

    def prompts(self, states: torch.Tensor, window: Window) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the prompts, [prompts, heads, prompt_end, size]; `states` show their kind if it is 0."""
        if window.prompt_end == 0:
            nothing = states.new_zeros((window.prompts, states.shape[1], 0, states.shape[3]))
            return nothing, nothing
        keys, values = self._slabs[True]
        return keys[:, :, : window.prompt_end], values[:, :, : window.prompt_end]

    def copy_prompts(self, source: torch.Tensor, end: int) -> None:
        """Give prompt i the states of prompt source[i]."""
        for slab in self._slabs[True]:
            slab[:, :, :end] = slab[source, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002  (the base class's signature)
        """Slots that are read, and the first of them."""
        return self.get_seq_length(), 0

    def get_seq_length(self) -> int:
        """Slots that are read."""
        return self.window.end + self.window.prompt_end if self.window else 0

    def get_max_length(self) -> int:
        """Slots of a row, the scratch slot not counted."""
        return self.window.size + self.window.prompt_end if self.window else 0


def _fitted(slab: torch.Tensor | None, states: torch.Tensor, window: Window) -> torch.Tensor:
    """The slab in the shape, type and place of the states [b, heads, q, size], with at least the window's slots."""
    if slab is not None and slab.shape[2] == window.size + 1:
        return slab
    # Zeros, not empty: a masked slot has weight 0, and 0 times an uninitialised NaN is NaN.
    grown = states.new_zeros((window.rows, states.shape[1], window.size + 1, states.shape[3]))
    if slab is not None:
        grown[:, :, : slab.shape[2] - 1] = slab[:, :, :-1]
    return grown


def _write(slab: torch.Tensor, states: torch.Tensor, window: Window) -> torch.Tensor:
    """Put the new states [b, heads, q, size] into the slab; what the queries may read, [b, heads, end, size]."""
    slab.flatten(0, 2).index_copy_(0, window.index(slab.shape[1]), states.flatten(0, 2))
    seen = slab[:, :, : window.end]
    return seen if window.read is None else seen.index_select(0, window.read)


def _slab_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    *,
    slabs: Sequence[SlabLayer],
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of queries [b, heads, q, size] to their prompt's slots and then their row's.

    With few queries a row it is bound by reading keys and values, so a prompt's are read once for all rows that
    continue it. Query heads that share a key head become more queries of that head, so no key is copied.
    """
    layer = slabs[module.layer_idx]
    window = layer.window
    if window is None:
        raise RuntimeError("slab attention is used by DecodeSession only")
    rows, heads, queries, size = query.shape
    groups = heads // key.shape[1]
    grouped = query.reshape(rows, key.shape[1], groups * queries, size)
    if window.opening:
        output = _stock(grouped, key, value, attention_mask, scaling)
    else:
        prompt_keys, prompt_values = layer.prompts(key, window)
        # With no more rows than prompts there is nothing to read once for many.
        if queries > FEW or rows <= window.prompts:
            whose = torch.arange(window.rows, device=key.device) if window.read is None else window.read
            whose = whose // window.copies
            key = torch.cat([prompt_keys.index_select(0, whose), key], dim=2)
            value = torch.cat([prompt_values.index_select(0, whose), value], dim=2)
            output = _stock(grouped, key, value, attention_mask, scaling)
        else:
            of_prompt = window.by_row(window.by_prompt(grouped) @ prompt_keys.transpose(2, 3))
            weights = torch.cat([of_prompt, grouped @ key.transpose(2, 3)], dim=3)
            weights = weights.view(rows, -1, groups, queries, weights.shape[3]) * scaling + attention_mask[:, :, None]
            weights = weights.softmax(dim=-1, dtype=torch.float32).to(value.dtype).flatten(2, 3)
            end = window.prompt_end
            output = window.by_row(window.by_prompt(weights[..., :end]) @ prompt_values)
            output = output + weights[..., end:] @ value
    return output.reshape(rows, heads, queries, size).transpose(1, 2).contiguous(), None


def _stock(
    grouped: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float
) -> torch.Tensor:
    repeats = grouped.shape[2] // mask.shape[2]
    return scaled_dot_product_attention(grouped, key, value, attn_mask=mask.repeat(1, 1, repeats, 1), scale=scaling)


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _slab_attention)
