"""The key-value slabs a decoding session writes into, and attention over them.

A slab has the shape [rows, key-value heads, slots, head size]. There are two in every layer: one row per prompt, read
by all rows that continue it, and one row per continuation. A token's slot is its position, counted in a continuation
from the prompt's end, so there is no left padding and no hole. Whatever lies behind a row's length is never read before
it is overwritten.

Attention takes T queries [T, key heads, groups, d]: query heads that share a key head become more queries of that head,
so no key is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import scaled_dot_product_attention

from bipace.policies.bundles import Bundle, Rows
from bipace.policies.singles import Singles

__all__ = ["Plan", "Slabs", "Window", "attend", "can_split"]


Plan = Singles | Sequence[Bundle]
"""What is read by the queries of one forward."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where T new tokens are written.

    Attributes:
        opening: True for prompts, which have a slab of their own.
        rows: rows of the slab.
        size: its slots.
        write: [T] row of each token.
        slots: [T] its slot.
    """

    opening: bool
    rows: int
    size: int
    write: torch.Tensor
    slots: torch.Tensor
    _index: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])

    def index(self, heads: int) -> torch.Tensor:
        """[T * heads] flat slots of a slab [rows, heads, size, ...]; the same for all layers of a model."""
        if heads not in self._index:
            lanes = self.write[:, None] * heads + torch.arange(heads, device=self.write.device)
            self._index[heads] = (lanes * self.size + self.slots[:, None]).flatten()
        return self._index[heads]


class Slabs:
    """One layer's slabs, made when the first keys arrive and show their shape, and grown when a window needs more."""

    def __init__(self) -> None:
        self._slabs: dict[bool, tuple[torch.Tensor, torch.Tensor]] = {}

    def write(self, keys: torch.Tensor, values: torch.Tensor, window: Window) -> None:
        """Put keys and values [T, key heads, d] where the window says."""
        old = self._slabs.get(window.opening, (None, None))
        grown = tuple(_fitted(slab, states, window) for slab, states in zip(old, (keys, values), strict=True))
        for slab, states in zip(grown, (keys, values), strict=True):
            slab.flatten(0, 2).index_copy_(0, window.index(states.shape[1]), states.reshape(-1, states.shape[2]))
        self._slabs[window.opening] = grown[0], grown[1]

    def read(self, rows: Rows, end: int, *, prompts: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values in the first slots of some rows, [rows, key heads, end, d]."""
        keys, values = (slab[:, :, :end] for slab in self._slabs[prompts])
        if isinstance(rows, slice):
            return keys[rows], values[rows]
        return keys.index_select(0, rows), values.index_select(0, rows)

    def copy_prompts(self, source: torch.Tensor, end: int) -> None:
        """Give prompt i the states of prompt source[i]."""
        for slab in self._slabs[True]:
            slab[:, :, :end] = slab[source, :, :end]


def _fitted(slab: torch.Tensor | None, states: torch.Tensor, window: Window) -> torch.Tensor:
    """The slab in the type and place of the states [T, heads, d], with at least the window's slots."""
    if slab is not None and slab.shape[2] >= window.size:
        return slab
    # Zeros, not empty: a masked slot has weight 0, and 0 times an uninitialised NaN is NaN.
    grown = states.new_zeros((window.rows, states.shape[1], window.size, states.shape[2]))
    if slab is not None:
        grown[:, :, : slab.shape[2]] = slab
    return grown


def attend(queries: torch.Tensor, slabs: Slabs, plan: Plan, scaling: float, *, opening: bool) -> torch.Tensor:
    """Attention of queries [T, key heads, groups, d] to their prompt's slots and then their row's."""
    if isinstance(plan, Singles):
        return _one_query_a_row(queries, slabs, plan, scaling)
    parts = [_chunks(queries[bundle.start : bundle.stop], slabs, bundle, scaling, opening) for bundle in plan]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _one_query_a_row(queries: torch.Tensor, slabs: Slabs, singles: Singles, scaling: float) -> torch.Tensor:
    """By two products for each of prompt and row: with so few queries, reading the keys is the work."""
    key, value = slabs.read(singles.rows, singles.end, prompts=False)
    if singles.at is not None:
        queries = queries.new_zeros((len(key), *queries.shape[1:])).index_copy_(0, singles.at, queries)
    weights = queries @ key.transpose(2, 3)
    end = singles.prompt_end
    prompt_value = None
    if end:
        prompt_key, prompt_value = slabs.read(singles.prompts, end, prompts=True)
        weights = torch.cat([singles.by_row(singles.by_prompt(queries) @ prompt_key.transpose(2, 3)), weights], dim=3)
    weights = weights.mul_(scaling).add_(singles.bias).softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    mixed = weights[..., end:] @ value
    if prompt_value is not None:
        mixed = mixed + singles.by_row(singles.by_prompt(weights[..., :end]) @ prompt_value)
    return mixed if singles.at is None else mixed.index_select(0, singles.at)


def _chunks(queries: torch.Tensor, slabs: Slabs, bundle: Bundle, scaling: float, opening: bool) -> torch.Tensor:
    """Of a bundle's tokens; to their prompt and to their row apart, where the operator for that exists."""
    groups, dtype = queries.shape[2], queries.dtype
    key, value = slabs.read(bundle.rows, bundle.end, prompts=opening)
    by_row, row_bias = bundle.by_row.spread(queries), bundle.row_bias(groups, dtype)
    if bundle.by_prompt is None:
        found = scaled_dot_product_attention(by_row, key, value, attn_mask=row_bias, scale=scaling)
        return bundle.by_row.gather(found, groups)
    prompt_key, prompt_value = slabs.read(bundle.prompts, bundle.prompt_end, prompts=True)
    if not can_split(queries.device):
        key = torch.cat([prompt_key.index_select(0, bundle.whose), key], dim=2)
        value = torch.cat([prompt_value.index_select(0, bundle.whose), value], dim=2)
        bias = bundle.joint_bias(groups, dtype)
        return bundle.by_row.gather(
            scaled_dot_product_attention(by_row, key, value, attn_mask=bias, scale=scaling), groups
        )
    by_prompt = bundle.by_prompt.spread(queries)
    own, own_mass = _with_mass(by_row, key, value, row_bias, scaling)
    shared, shared_mass = _with_mass(by_prompt, prompt_key, prompt_value, bundle.prompt_bias(dtype), scaling)
    own, own_mass = (bundle.by_row.gather(x, groups) for x in (own, own_mass))
    shared, shared_mass = (bundle.by_prompt.gather(x, groups) for x in (shared, shared_mass))
    # The softmax over both counts each part as much as its share of the sum of exponentials.
    return shared.lerp_(own, (own_mass - shared_mass).sigmoid_().to(own.dtype))


def can_split(device: torch.device) -> bool:
    """Whether attention there can also give its mass: torch has an operator for that by this name on a CPU only."""
    return device.type == "cpu"


def _with_mass(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None, scaling: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention [b, heads, q, d] and its mass [b, heads, q, 1], the logarithm of its sum of exponentials."""
    mixed, mass = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, attn_mask=bias, scale=scaling
    )
    return mixed, mass[..., None]
