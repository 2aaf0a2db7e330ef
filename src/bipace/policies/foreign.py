"""Slabs behind transformers' own forward, for a model whose blocks are not ours to compute.

transformers is given one sequence of all tokens; its cache layers write into the slabs, and its attention is ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from bipace.policies.slab import Plan, Slabs, Window, attend

__all__ = ["final_states"]

ATTENTION = "bipace_slab"  # its name among transformers' attention functions


@dataclass(frozen=True, slots=True)
class _Work:
    """One forward's slabs by layer, and how they are written and read."""

    slabs: Sequence[Slabs]
    window: Window
    plan: Plan


class _Layer(CacheLayerMixin):
    """A cache layer that keeps nothing: keys and values pass through to attention, which writes them."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:  # noqa: ARG002  (the base class's signature)
        """Nothing to make."""
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What came in."""
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002  (the base class's signature)
        """Nothing is held."""
        return 0, 0

    def get_seq_length(self) -> int:
        """Nothing is held."""
        return 0

    def get_max_length(self) -> int:
        """Nothing is held."""
        return 0


def final_states(
    body: Any,
    ids: torch.Tensor,
    positions: torch.Tensor,
    slabs: Sequence[Slabs],
    window: Window,
    plan: Plan,
) -> torch.Tensor:
    """States [T, D] after the final norm, for tokens [T] at positions [T]."""
    # transformers 5 renamed the argument within its major version.
    cache = "cache" if "cache" in inspect.signature(body.forward).parameters else "past_key_values"
    with _attention(body.config):
        output = body(
            input_ids=ids[None],
            position_ids=positions[None],
            # A mask of four dimensions is taken as it is; ours is in the plan.
            attention_mask=torch.zeros((1, 1, 1, 1), dtype=body.dtype, device=ids.device),
            use_cache=True,
            work=_Work(slabs, window, plan),
            **{cache: Cache(layers=[_Layer() for _ in slabs])},
        )
    return output.last_hidden_state[0]


@contextmanager
def _attention(config: Any) -> Iterator[None]:
    """Use ours for the forward inside, then the model's own again."""
    own = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = own


def _slab_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,  # noqa: ARG001  (transformers' signature)
    scaling: float,
    *,
    work: _Work,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of queries [1, heads, T, d] after keys and values [1, key heads, T, d] have been written."""
    slabs = work.slabs[module.layer_idx]
    queries, keys, values = (x[0].transpose(0, 1) for x in (query, key, value))
    slabs.write(keys, values, work.window)
    grouped = queries.reshape(len(queries), keys.shape[1], -1, queries.shape[2])
    mixed = attend(grouped, slabs, work.plan, scaling, opening=work.window.opening)
    return mixed.reshape(1, *queries.shape), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _slab_attention)
