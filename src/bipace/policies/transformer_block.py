"""A Llama or Qwen2 block on a flat list of tokens, at all of them or only where its output is asked for.

A token that only serves others as a key needs, in the last block, no query, no output projection and no
feed-forward. transformers' own forward computes them for every cell of a padded table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.models.llama.modeling_llama import LlamaModel, rotate_half
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model

__all__ = ["Attend", "block_input", "has_plain_blocks", "rotary_embedding", "run_block"]

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]
"""Queries [n, heads, d], keys and values [T, key heads, d], the products' factor -> [n, heads * d]."""


def has_plain_blocks(body: Any) -> bool:
    """Whether this model's blocks are what `run_block` computes."""
    return isinstance(body, (LlamaModel, Qwen2Model)) and body.config._attn_implementation == "sdpa"


def rotary_embedding(
    body: Any, hidden: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine [T, d] of the rotary position embedding at positions [T]; `hidden` shows the type."""
    cos, sin = body.rotary_emb(hidden, positions[None])
    return cos[0], sin[0]


def run_block(
    block: Any,
    hidden: torch.Tensor,
    *,
    rotary: tuple[torch.Tensor, torch.Tensor],
    at: torch.Tensor | None,
    attend: Attend,
) -> torch.Tensor:
    """A block's output [n, D] for tokens [T, D] with this rotary embedding, at n of them or (None) at all."""
    attention = block.self_attn
    normed = block.input_layernorm(hidden)
    # index_select, whose gradient is a sum over rows; indexing's own is several times slower on a CPU.
    some, cos, sin = (x if at is None else x.index_select(0, at) for x in (normed, *rotary))
    keys = _rotate(_heads(attention.k_proj(normed), attention), *rotary)
    values = _heads(attention.v_proj(normed), attention)
    queries = _rotate(_heads(attention.q_proj(some), attention), cos, sin)
    mixed = attend(queries, keys, values, attention.scaling)
    after = (hidden if at is None else hidden.index_select(0, at)) + attention.o_proj(mixed)
    return after + block.mlp(block.post_attention_layernorm(after))


@contextmanager
def block_input(body: Any, layer: int | None) -> Iterator[list[torch.Tensor]]:
    """Keep what block `layer` reads, hidden_states[layer], detached, in forwards of transformers' model.

    Yields a list that receives it at each forward inside; without a layer it stays empty.
    """
    kept: list[torch.Tensor] = []

    def keep(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept.append((args[0] if args else kwargs["hidden_states"]).detach())

    hook = None if layer is None else body.layers[layer].register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield kept
    finally:
        if hook is not None:
            hook.remove()


def _heads(projected: torch.Tensor, attention: Any) -> torch.Tensor:
    return projected.unflatten(1, (-1, attention.head_dim))


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return states * cos[:, None] + rotate_half(states) * sin[:, None]
