"""Hidden states of whole sequences where they are asked for, at no more than they need.

A loss reads the model at response tokens, a fifth of what it sees. Every other token is needed for its keys
and values alone, so in the last block it needs no query, no output projection and no feed-forward: for the
small actor's two blocks that is a third of the work. A prompt that several sequences begin with is computed
once (`packing.py`), and padding exists in attention alone. The numbers are those of a plain forward up to the
order of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from bipace.policies.language_model import LanguageModel
from bipace.policies.packing import Packed, Spans, pack
from bipace.policies.transformer_block import block_input, has_plain_blocks, rotary_embedding, run_block

__all__ = ["plain_states", "states_at"]

LONG_TAIL = 256  # columns from which on a table of tails is attended to in pieces
PIECE = 128  # queries of a piece


def states_at(
    language_model: LanguageModel,
    sequences: Sequence[NDArray[np.int64]],
    spans: Sequence[Spans],
    rows: torch.Tensor,
    positions: torch.Tensor,
    layer: int | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Final states at some positions, and the states of one layer below there.

    Args:
        language_model: the model.
        sequences: token ids.
        spans: their responses; nothing is asked for before the last token of a sequence's first prompt.
        rows: [n] sequence of each asked position, in ascending order.
        positions: [n] the position itself; no (row, position) twice.
        layer: k in 0..n_layers - 1, or None.

    Returns:
        [n, D] states after the final norm, differentiable; and hidden_states[k] [n, D], detached, or None.
    """
    body = language_model.body
    if not has_plain_blocks(body):
        return plain_states(body, sequences, rows, positions, layer)
    packed = pack(sequences, spans, language_model.device)
    asked = _ask(packed, rows, positions)
    hidden = body.embed_tokens(packed.ids)
    rotary = rotary_embedding(body, hidden, packed.positions)
    bias = _additive(packed.sees(_columns(packed)), hidden.dtype) if packed.prompts.numel() else None
    blocks: list[Any] = list(body.layers)
    kept = None
    for k, block in enumerate(blocks):
        kept = hidden.detach().index_select(0, asked.tokens) if k == layer else kept
        last = k == len(blocks) - 1
        run = partial(
            run_block,
            block,
            rotary=rotary,
            at=asked.tokens if last else None,
            attend=partial(_attend_at, packed, asked) if last else partial(_attend_everywhere, packed, bias),
        )
        again = block.training and block.gradient_checkpointing
        hidden = block._gradient_checkpointing_func(run, hidden) if again else run(hidden)
    return body.norm(hidden), kept


def plain_states(
    body: Any,
    sequences: Sequence[NDArray[np.int64]],
    rows: torch.Tensor,
    positions: torch.Tensor,
    layer: int | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The same for any architecture: a plain padded forward, of which the asked positions are kept."""
    ids = np.zeros((len(sequences), max(len(tokens) for tokens in sequences)), dtype=np.int64)
    for i, tokens in enumerate(sequences):
        ids[i, : len(tokens)] = tokens
    with block_input(body, layer) as kept:
        final = body(input_ids=torch.from_numpy(ids).to(rows.device), use_cache=False).last_hidden_state
    return final[rows, positions], kept[0][rows, positions] if kept else None


@dataclass(frozen=True, slots=True)
class _Asked:
    """The asked positions: [n] tokens, their cells in a padded table [b, width], and what each cell sees."""

    tokens: torch.Tensor
    cells: torch.Tensor
    width: int
    mask: torch.Tensor


def _ask(packed: Packed, rows: torch.Tensor, positions: torch.Tensor) -> _Asked:
    n_rows = len(packed.tails)
    counts = torch.bincount(rows, minlength=n_rows)
    column = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    width = int(counts.max())
    tokens = packed.first[rows] + positions
    # A padding query looks at the first token of the tail, and is dropped.
    seen = positions.new_zeros((n_rows, width)).index_put((rows, column), tokens - packed.tails[rows, 0])
    return _Asked(tokens, rows * width + column, width, packed.sees(seen))


def _columns(packed: Packed) -> torch.Tensor:
    """[b, S] each tail token's own column."""
    return torch.arange(packed.tails.shape[1], device=packed.tails.device).expand(packed.tails.shape)


def _additive(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask as a bias, made once: given as truth values it would be turned into one in every block."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)


def _table(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """States [T, heads, size] of a table of tokens [rows, width], as [rows, heads, width, size]."""
    return states.index_select(0, tokens.flatten()).view(*tokens.shape, *states.shape[1:]).transpose(1, 2)


def _attend_everywhere(
    packed: Packed,
    bias: torch.Tensor | None,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention of all tokens [T, heads * size].

    Prompts among themselves, tails to their prompt and themselves.
    """

    def causal(tokens: torch.Tensor) -> torch.Tensor:
        q, k, v = _table(queries, tokens), _table(keys, tokens), _table(values, tokens)
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)

    if bias is None:
        return _flat(causal(packed.tails)).index_select(0, packed.places)
    of_tails = _causal_pieces(
        _table(queries, packed.tails), _table(keys, packed.shared), _table(values, packed.shared), bias, scale
    )
    return torch.cat([_flat(causal(packed.prompts)), _flat(of_tails)]).index_select(0, packed.places)


def _attend_at(
    packed: Packed,
    asked: _Asked,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention of the asked tokens alone, [n, heads * size]."""
    cells = queries.new_zeros((len(packed.tails) * asked.width, *queries.shape[1:])).index_copy(
        0, asked.cells, queries
    )
    table = cells.view(len(packed.tails), asked.width, *queries.shape[1:]).transpose(1, 2)
    bias = _additive(asked.mask, queries.dtype)
    found = _biased(table, _table(keys, packed.shared), _table(values, packed.shared), bias, scale)
    return _flat(found).index_select(0, asked.cells)


def _causal_pieces(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor, scale: float
) -> torch.Tensor:
    """`_biased` of tails, where a long one is cut: no piece of queries reads the keys behind its last query.

    A bias is no help to the kernel, which computes what it masks: in one piece nearly half of the products
    are wasted.
    """
    width = queries.shape[2]
    if width <= LONG_TAIL:
        return _biased(queries, keys, values, bias, scale)
    before = keys.shape[2] - width
    pieces: list[torch.Tensor] = []
    for start in range(0, width, PIECE):
        stop = min(start + PIECE, width)
        end = before + stop
        part = bias[:, start:stop, :end]
        pieces.append(_biased(queries[:, :, start:stop], keys[:, :, :end], values[:, :, :end], part, scale))
    return torch.cat(pieces, dim=2)


def _flat(table: torch.Tensor) -> torch.Tensor:
    """[rows, heads, width, size] as [rows * width, heads * size]."""
    return table.transpose(1, 2).flatten(2).flatten(0, 1)


def _biased(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attention under a bias [rows, width, keys].

    Query heads that share a key head become more queries of it.
    """
    rows, heads, width, size = queries.shape
    groups = heads // keys.shape[1]
    table = queries.reshape(rows, keys.shape[1], groups * width, size)
    found = scaled_dot_product_attention(
        table, keys, values, attn_mask=bias.repeat(1, groups, 1)[:, None], scale=scale
    )
    return found.reshape(rows, heads, width, size)
