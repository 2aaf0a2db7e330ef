"""A language model's forward over its key-value cache.

Prompts once, then chunks behind the rows that share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.decode_attention import DecodeAttention
from bipace.policies.kv_cache import KVCache, LayerCache
from bipace.policies.language_model import LanguageModel
from bipace.policies.token_batch import (
    CachedAttention,
    Lengths,
    TokenBatch,
    append_batch,
    parts,
    prefill_batch,
)
from bipace.policies.transformer_block import block_input, has_plain_blocks, rotary_embedding, run_block
from bipace.policies.transformers_forward import run_transformers

__all__ = ["CachedForward"]

PREFILL_CHUNK = 1024


class CachedForward:
    """Prompts, and rows that continue them, in one cache.

    Args:
        language_model: whose forward it is.
        prompts: P token lists, which may be empty. Equal ones are computed once.
        copies: rows per prompt, prompt-major.
    """

    def __init__(self, language_model: LanguageModel, prompts: Sequence[Sequence[int]], copies: int) -> None:
        self._lm, self._copies = language_model, copies
        self._layers = [LayerCache() for _ in range(language_model.n_layers)]
        self._lengths = Lengths(
            np.zeros(len(prompts), np.int64), np.zeros(len(prompts) * copies, np.int64), copies
        )
        self._prefill(prompts)

    @property
    def held(self) -> NDArray[np.int64]:
        """[P * copies] tokens of each row that a forward has seen, its prompt's included."""
        return self._lengths.prompts.repeat(self._copies) + self._lengths.rows

    @torch.no_grad()
    def append(
        self, rows: Sequence[int], chunks: Sequence[Sequence[int]], layer: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Put a chunk of tokens, at least one, behind each of some rows.

        Args:
            rows: distinct rows.
            chunks: theirs.
            layer: index into hidden_states[0..n_layers], or None.

        Returns:
            At each chunk's last token: states [rows, D] after the final norm, and hidden_states[layer] or
            None.
        """
        finals: list[torch.Tensor] = []
        states: list[torch.Tensor] = []
        where = np.array(rows)
        for part in parts(chunks):
            batch = append_batch(
                self._lengths, where[part], [chunks[i] for i in part], self._lm.device, self._lm.dtype
            )
            final, state = self._run(batch, [cache.rows for cache in self._layers], layer)
            finals.append(final)
            states += [] if state is None else [state]
        return torch.cat(finals), torch.cat(states) if states else None

    @torch.no_grad()
    def _prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute each different prompt once, all of them PREFILL_CHUNK tokens at a time."""
        first: dict[tuple[int, ...], int] = {}
        for number, prompt in enumerate(prompts):
            first.setdefault(tuple(prompt), number)
        own = [cache.prompts for cache in self._layers]
        for start in range(0, max(map(len, first), default=0), PREFILL_CHUNK):
            members = [prompt for prompt in first if len(prompt) > start]
            chunks = [prompt[start : start + PREFILL_CHUNK] for prompt in members]
            for part in parts(chunks):
                numbers = np.array([first[members[i]] for i in part])
                batch = prefill_batch(self._lengths, numbers, [chunks[i] for i in part], self._lm.device)
                self._run(batch, own, None)
        end = int(self._lengths.prompts.max(initial=0))
        if end and len(first) < len(prompts):
            source = np.array([first[tuple(prompt)] for prompt in prompts])
            self._lengths.prompts = self._lengths.prompts[source]
            for cache in own:
                cache.copy_rows(torch.from_numpy(source).to(self._lm.device), end)

    def _run(
        self, batch: TokenBatch, own: Sequence[KVCache], layer: int | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Final states, and those of a layer, at the batch's last tokens; keys and values go into `own`."""
        prompts = [cache.prompts for cache in self._layers]
        if has_plain_blocks(self._lm.body):
            return _run_blocks(self._lm, batch, own, prompts, layer)
        below = None if layer == self._lm.n_layers else layer
        with block_input(self._lm.body, below) as kept:
            final = run_transformers(self._lm.body, batch, own, prompts)[batch.last]
        return final, None if layer is None else kept[0][0, batch.last] if kept else final


def _run_blocks(
    lm: LanguageModel,
    batch: TokenBatch,
    own: Sequence[KVCache],
    prompts: Sequence[KVCache],
    layer: int | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The same through our blocks.

    The last block is computed at the last tokens alone, or nowhere where nothing is asked of them.
    """
    hidden = lm.body.embed_tokens(batch.ids)
    rotary = rotary_embedding(lm.body, hidden, batch.positions)
    asked = batch.last_attention
    kept = None
    for k, block in enumerate(lm.body.layers):
        kept = hidden.index_select(0, batch.last) if k == layer else kept
        top = k == len(own) - 1
        # One token a row: the last tokens are all tokens.
        at = None if not top or batch.attention is asked else batch.last if asked else batch.last[:0]
        attend = _Attend(batch, own[k], prompts[k], asked if top else batch.attention)
        hidden = run_block(block, hidden, rotary=rotary, at=at, attend=attend)
    final = lm.body.norm(hidden)
    return final, None if layer is None else final if kept is None else kept


@dataclass(frozen=True, slots=True)
class _Attend:
    """Write the new keys and values, then attend; without an attention there are no queries."""

    batch: TokenBatch
    own: KVCache
    prompts: KVCache
    attention: CachedAttention | DecodeAttention | None

    def __call__(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        self.own.write(keys, values, self.batch.write)
        if self.attention is None:
            return queries.flatten(1)
        grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[2])
        return self.attention.attend(grouped, self.own, self.prompts, scaling).reshape(len(queries), -1)
