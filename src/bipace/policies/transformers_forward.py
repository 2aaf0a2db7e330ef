"""The key-value cache behind transformers' own forward, for a model whose blocks are not ours to compute.

transformers is given one sequence of all tokens; its cache layers keep nothing, and its attention is ours,
which writes into the cache and reads from it.
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

from bipace.policies.kv_cache import KVCache
from bipace.policies.token_batch import TokenBatch

__all__ = ["run_transformers"]

ATTENTION = "bipace_cache"  # its name among transformers' attention functions


@dataclass(frozen=True, slots=True)
class _Work:
    """One forward's tokens, and the caches by layer: those that are written, and the prompts'."""

    batch: TokenBatch
    own: Sequence[KVCache]
    prompts: Sequence[KVCache]


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


def run_transformers(
    body: Any, batch: TokenBatch, own: Sequence[KVCache], prompts: Sequence[KVCache]
) -> torch.Tensor:
    """States [T, D] after the final norm, for all tokens of the batch."""
    # transformers 5 renamed the argument within its major version.
    cache = "cache" if "cache" in inspect.signature(body.forward).parameters else "past_key_values"
    with _attention(body.config):
        output = body(
            input_ids=batch.ids[None],
            position_ids=batch.positions[None],
            # A mask of four dimensions is taken as it is; ours is in the batch.
            attention_mask=torch.zeros((1, 1, 1, 1), dtype=body.dtype, device=batch.ids.device),
            use_cache=True,
            work=_Work(batch, own, prompts),
            **{cache: Cache(layers=[_Layer() for _ in own])},
        )
    return output.last_hidden_state[0]


@contextmanager
def _attention(config: Any) -> Iterator[None]:
    """Use ours for the forward inside, then the model's own again."""
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def _cached_attention(
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
    own, prompts = work.own[module.layer_idx], work.prompts[module.layer_idx]
    queries, keys, values = (x[0].transpose(0, 1) for x in (query, key, value))
    own.write(keys, values, work.batch.write)
    grouped = queries.reshape(len(queries), keys.shape[1], -1, queries.shape[2])
    mixed = work.batch.attention.attend(grouped, own, prompts, scaling)
    return mixed.reshape(1, *queries.shape), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _cached_attention)
