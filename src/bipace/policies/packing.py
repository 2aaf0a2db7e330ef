"""Token sequences side by side for one forward, a prompt that several of them begin with kept once.

The members of a prompt group read the same first prompt; under a causal mask its states are the same for all
of them. In a transcript that is two fifths of an update's tokens (benchmarks/update.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.padding import token_table

__all__ = ["Packed", "Spans", "micro_batches", "pack"]

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Packed:
    """T tokens of b sequences: F shared prompts, then each sequence's tail.

    A sequence that shares its prompt with no other is all tail. Tables are padded with token 0.

    Attributes:
        ids: [T] token ids.
        positions: [T] position of each token within its sequence.
        prompts: [F, P] tokens of the shared prompts.
        tails: [b, S] tokens of the tails.
        shared: [b, P + S] the tokens a sequence consists of: its prompt's row of `prompts`, then its row of
            `tails`.
        real: [b, P] True where the sequence's prompt has a token.
        places: [T] row of each token in the tables laid end to end, `prompts` first.
        first: [b] token at which a sequence would begin if its prompt stood right before its tail.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    prompts: torch.Tensor
    tails: torch.Tensor
    shared: torch.Tensor
    real: torch.Tensor
    places: torch.Tensor
    first: torch.Tensor

    def sees(self, positions: torch.Tensor) -> torch.Tensor:
        """[b, w, P + S] which of a sequence's tokens are seen from positions [b, w] of its tail."""
        after = torch.arange(self.tails.shape[1], device=positions.device) <= positions[:, :, None]
        return torch.cat([self.real[:, None].expand(-1, positions.shape[1], -1), after], dim=2)


def pack(sequences: Sequence[NDArray[np.int64]], spans: Sequence[Spans], device: torch.device) -> Packed:
    """Lay sequences side by side.

    What may be shared is the prompt before the first response but for its last token: the states asked for,
    from that token on, are then each sequence's own.
    """
    families = list(_families(sequences, spans).values())
    heads = [_head(sequences[f[0]], spans[f[0]]) if len(f) > 1 else sequences[f[0]][:0] for f in families]
    head_of = np.zeros(len(sequences), dtype=np.int64)
    for number, members in enumerate(families):
        head_of[members] = number
    kept = [number for number, head in enumerate(heads) if len(head)]
    tails = [tokens[len(heads[h]) :] for tokens, h in zip(sequences, head_of, strict=True)]
    parts = [*(heads[h] for h in kept), *tails]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    prompt_table, real = token_table([len(heads[h]) for h in kept], starts)
    tail_table, real_tail = token_table([len(tail) for tail in tails], starts[len(kept) :])
    row_of = {h: row for row, h in enumerate(kept)}
    rows = np.array([row_of.get(int(h), -1) for h in head_of])
    # The last row of these stands for no prompt at all.
    contexts = np.vstack([prompt_table, np.zeros((1, prompt_table.shape[1]), np.int64)])[rows]
    reals = np.vstack([real, np.zeros((1, real.shape[1]), bool)])[rows]
    lengths = np.array([len(heads[h]) for h in head_of])
    own = [np.arange(len(heads[h])) for h in kept]
    own += [np.arange(len(tail)) + length for tail, length in zip(tails, lengths, strict=True)]

    def tensor(values: NDArray[np.int64] | NDArray[np.bool_]) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    return Packed(
        ids=tensor(np.concatenate(parts)),
        positions=tensor(np.concatenate(own)),
        prompts=tensor(prompt_table),
        tails=tensor(tail_table),
        shared=tensor(np.hstack([contexts, tail_table])),
        real=tensor(reals),
        places=tensor(np.flatnonzero(np.concatenate([real.ravel(), real_tail.ravel()]))),
        first=tensor(starts[len(kept) : -1] - lengths),
    )


def micro_batches(
    sequences: Sequence[NDArray[np.int64]], spans: Sequence[Spans], max_tokens: int
) -> list[list[int]]:
    """Split sequences over forwards of at most max_tokens padded tokens, shared prompts counted once.

    Sequences that share a prompt stay together unless they are too many for one forward; the longest come
    first (ties by index), so that similar lengths meet. A sequence longer than max_tokens gets a forward of
    its own. No sequences give no forwards. Raises ValueError where max_tokens is below 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}; it must be at least 1")
    parts: list[tuple[int, int, list[int]]] = []  # (shared tokens, longest tail, members)
    for members in _families(sequences, spans).values():
        members.sort(key=lambda i: (-len(sequences[i]), i))
        head = len(_head(sequences[members[0]], spans[members[0]]))
        fitting = max(1, (max_tokens - head) // (len(sequences[members[0]]) - head))
        for start in range(0, len(members), fitting):
            part = members[start : start + fitting]
            shared = head if len(part) > 1 else 0
            parts.append((shared, len(sequences[part[0]]) - shared, part))
    batches: list[list[int]] = []
    prompts, prompt, tail = 0, 0, 0  # the open forward's tables: [prompts, prompt] and [members, tail]
    for shared, longest, part in sorted(parts, key=lambda part: (-part[0] - part[1], part[2][0])):
        rows, wide, deep = prompts + (shared > 0), max(prompt, shared), max(tail, longest)
        if batches and rows * wide + (len(batches[-1]) + len(part)) * deep <= max_tokens:
            batches[-1] += part
            prompts, prompt, tail = rows, wide, deep
        else:
            batches.append(list(part))
            prompts, prompt, tail = int(shared > 0), shared, longest
    return batches


def _head(tokens: NDArray[np.int64], spans: Spans) -> NDArray[np.int64]:
    return tokens[: spans[0][0] - 1 if spans else 0]


def _families(sequences: Sequence[NDArray[np.int64]], spans: Sequence[Spans]) -> dict[bytes, list[int]]:
    """Sequences by the prompt they may share."""
    families: dict[bytes, list[int]] = {}
    for i, (tokens, found) in enumerate(zip(sequences, spans, strict=True)):
        families.setdefault(_head(tokens, found).tobytes(), []).append(i)
    return families
