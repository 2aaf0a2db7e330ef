"""Lock-step decoding of many growing contexts: rows that answer, hear a reply and answer again (slabs: `slab.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.blocks import angles, has_plain_blocks, run_block
from bipace.policies.bundles import Bundle, Chunks, make_bundles
from bipace.policies.foreign import final_states
from bipace.policies.singles import Singles, make_singles
from bipace.policies.slab import Plan, Slabs, Window, attend, can_split
from bipace.policies.states import block_input

if TYPE_CHECKING:
    from bipace.policies.hf import Actor

__all__ = ["DecodeSession", "Response", "require_prompts", "require_room"]

PREFILL_TOKENS = 8192  # of one forward
PREFILL_CHUNK = 1024
BUNDLES = 16  # tables a forward is cut into for attention on a CPU: more of them leave less padding but cost calls
SLOTS = 256  # a slab grows by so many


@dataclass(frozen=True, slots=True)
class Response:
    """One model call.

    Attributes:
        tokens: sampled ids, the end token included when one was sampled.
        logprobs: natural log-probability of each sampled token under the distribution it was drawn from; of greedy
            decoding (temperature 0), under the model's at temperature 1.
        state: [D] float32, hidden state at the last token before the response, or None where no layer was asked for.
        finished: False when the token limit cut the response off.
    """

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    finished: bool
    state: NDArray[np.float32] | None = None


class DecodeSession:
    """Rows that grow together: generate a response, append the environment's reply, and so on.

    Tokens that no forward has seen yet (a response's last token, an environment's reply) wait per row and ride in the
    first forward of the next `generate`.

    Args:
        actor: the model and its end tokens.
        prompts: token ids of each prompt, at least one token each. Equal prompts are computed once.
        copies: rows per prompt, prompt-major (all copies of prompt 0 first).
        capacity: the most tokens a row may hold.
        layer: index into hidden_states[0..n_layers] of the state kept with each response, or None for none.
    """

    def __init__(
        self,
        actor: Actor,
        prompts: Sequence[Sequence[int]],
        *,
        copies: int,
        capacity: int,
        layer: int | None = None,
    ) -> None:
        if copies < 1:
            raise ValueError(f"copies is {copies}; it must be at least 1")
        self.actor, self.capacity = actor, capacity
        self.layer = None if layer is None else actor.layer_index(layer)
        self._body = actor.model.base_model
        self._slabs = [Slabs() for _ in range(actor.n_layers)]
        self._copies = copies
        self._slots = {True: 0, False: 0}  # of the prompts' slab, and of the rows'
        self._opened = np.zeros(len(prompts), dtype=np.int64)
        self._prefill([list(map(int, prompt)) for prompt in prompts])
        self._base = self._opened.repeat(copies)
        self._held = self._base.copy()
        self._waiting = [[int(prompt[-1])] for prompt in prompts for _ in range(copies)]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens held per row, those waiting for their forward included."""
        return self._held + np.array([len(tokens) for tokens in self._waiting], dtype=np.int64)

    def extend(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append context tokens to the given rows. Raises ValueError where a row would exceed the capacity."""
        if len(rows) != len(tokens):
            raise ValueError(f"extend got {len(rows)} rows and {len(tokens)} token lists; one list per row is needed")
        require_room(self.lengths, rows, [len(chunk) for chunk in tokens], self.capacity)
        for row, chunk in zip(rows, tokens, strict=True):
            self._waiting[row].extend(map(int, chunk))

    @torch.no_grad()
    def generate(
        self, rows: Sequence[int], *, max_new_tokens: int, temperature: float, generator: torch.Generator
    ) -> list[Response]:
        """One response for each of the given rows, in their order.

        Args:
            rows: distinct rows of the session; the others rest.
            max_new_tokens: most tokens of one response.
            temperature: 0 takes the likeliest token (the first of equals).
            generator: the only source of randomness; on the actor's device.

        Raises:
            ValueError: a row has no room for max_new_tokens, rows repeat, or a number is out of range.
        """
        if max_new_tokens < 1 or temperature < 0:
            raise ValueError(f"max_new_tokens={max_new_tokens}, temperature={temperature}: need >= 1 and >= 0")
        if len(set(rows)) != len(rows):
            raise ValueError("rows must be distinct")
        require_room(self.lengths, rows, [max_new_tokens] * len(rows), self.capacity)
        ends = set(self.actor.end_token_ids)
        tokens: dict[int, list[int]] = {row: [] for row in rows}
        logprobs: dict[int, list[float]] = {row: [] for row in rows}
        active = list(rows)
        states: NDArray[np.float32] | None = None
        for call in range(max_new_tokens):
            if not active:
                break
            logits, state = self._advance(active, None if call else self.layer)
            states = states if call or state is None else state.float().cpu().numpy()
            sampled, chosen = _sample(logits, temperature, generator)
            for row, token, logprob in zip(active, sampled, chosen, strict=True):
                tokens[row].append(token)
                logprobs[row].append(logprob)
                self._waiting[row].append(token)
            active = [row for row, token in zip(active, sampled, strict=True) if token not in ends]
        return [
            Response(
                np.array(tokens[row], dtype=np.int64),
                np.array(logprobs[row], dtype=np.float32),
                tokens[row][-1] in ends,
                None if states is None else states[k],
            )
            for k, row in enumerate(rows)
        ]

    @torch.no_grad()
    def _prefill(self, prompts: list[list[int]]) -> None:
        """Compute each different prompt once, but for its last token, which waits in every row."""
        require_prompts(prompts, self.capacity)
        first: dict[tuple[int, ...], int] = {}
        for number, prompt in enumerate(prompts):
            first.setdefault(tuple(prompt), number)
        unique = list(first)
        longest = max((len(prompt) for prompt in unique), default=0) - 1
        for start in range(0, longest, PREFILL_CHUNK):
            members = [p for p in unique if len(p) - 1 > start]
            chunks = [list(p[:-1][start : start + PREFILL_CHUNK]) for p in members]
            for part in _parts(chunks):
                self._forward([first[members[i]] for i in part], [chunks[i] for i in part], opening=True)
        end = int(self._opened.max(initial=0))
        if end and len(first) < len(prompts):
            source = np.array([first[tuple(prompt)] for prompt in prompts])
            self._opened = self._opened[source]
            for slabs in self._slabs:
                slabs.copy_prompts(torch.from_numpy(source).to(self.actor.device), end)

    def _tensor(self, values: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.actor.device)

    def _advance(self, rows: list[int], layer: int | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Feed what waits in these rows; after each row's last token, logits [rows, vocabulary] and a layer's state."""
        chunks = [self._waiting[row] for row in rows]
        parts = [self._forward([rows[i] for i in p], [chunks[i] for i in p], layer) for p in _parts(chunks)]
        for row in rows:
            self._waiting[row] = []
        hidden = torch.cat([hidden for hidden, _ in parts])
        states = [state for _, state in parts if state is not None]
        return self.actor.model.get_output_embeddings()(hidden).float(), torch.cat(states) if states else None

    def _forward(
        self, rows: list[int], chunks: list[list[int]], layer: int | None = None, *, opening: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append a chunk of tokens to each row; at each chunk's last token, the final state and a layer's.

        While opening, the rows are prompts.
        """
        held = self._opened if opening else self._held
        base = np.zeros_like(held) if opening else self._base
        where, counts = np.array(rows), np.array([len(chunk) for chunk in chunks])
        end = int(((held - base)[where] + counts).max())
        size = self._slots[opening] = max(self._slots[opening], -(-end // SLOTS) * SLOTS)
        order: NDArray[np.int64] = np.arange(len(rows))
        plan: list[Bundle] | None = None
        if opening or counts.max() > 1:
            whose = where if opening else where // self._copies
            order, plan = make_bundles(
                Chunks(where, counts, (held - base)[where], whose, base[where]),
                most=BUNDLES if can_split(self.actor.device) else 1,
                device=self.actor.device,
            )
        taken, widths = where[order], counts[order]
        stops = np.cumsum(widths)
        positions = np.arange(stops[-1]) + (held[taken] - stops + widths).repeat(widths)
        window = Window(
            opening=opening,
            rows=len(held),
            size=size,
            write=self._tensor(taken.repeat(widths)),
            slots=self._tensor(positions - base[taken].repeat(widths)),
        )
        held[where] += counts
        last = np.empty_like(order)
        last[order] = stops - 1
        at, ids = self._tensor(last), self._tensor(np.array([token for i in order for token in chunks[i]]))
        if has_plain_blocks(self._body):
            asked = None if opening else self._singles(where)
            return self._through_blocks(ids, self._tensor(positions), at, window, plan, asked, layer)
        below = None if layer == self.actor.n_layers else layer
        with block_input(self._body, below) as kept:
            final = final_states(
                self._body, ids, self._tensor(positions), self._slabs, window, plan or self._singles(where)
            )[at]
        return final, None if layer is None else kept[0][0, at] if kept else final

    def _singles(self, rows: NDArray[np.int64]) -> Singles:
        """What the last token of each of these rows reads."""
        model = self.actor.model
        return make_singles(
            rows,
            self._held - self._base,
            self._base,
            self._opened,
            self._copies,
            dtype=model.dtype,
            device=model.device,
        )

    def _through_blocks(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        at: torch.Tensor,
        window: Window,
        plan: list[Bundle] | None,
        asked: Singles | None,
        layer: int | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """States at the tokens `at`; the last block is computed there alone, or nowhere while prompts are read.

        Args:
            ids: [T] tokens.
            positions: [T] theirs.
            at: [b] each row's last token.
            window: where they are written.
            plan: what all tokens read; None where they are one a row.
            asked: what the tokens `at` read; None where nothing is asked.
            layer: as in `_forward`.
        """
        hidden = self._body.embed_tokens(ids)
        turn = angles(self._body, hidden, positions)
        kept = None
        for k, (block, slabs) in enumerate(zip(self._body.layers, self._slabs, strict=True)):
            kept = hidden.index_select(0, at) if k == layer else kept
            last = k == len(self._slabs) - 1
            places = None if plan is None or not last else at if asked else at[:0]
            attend = partial(_write_and_attend, slabs, window, asked if last or plan is None else plan)
            hidden = run_block(block, hidden, turn=turn, at=places, attend=attend)
        final = self._body.norm(hidden)
        return final, None if layer is None else final if kept is None else kept


def require_prompts(prompts: Sequence[Sequence[int]], capacity: int) -> None:
    """Raises ValueError where a prompt is empty or longer than a row may be."""
    for number, prompt in enumerate(prompts):
        if not 1 <= len(prompt) <= capacity:
            raise ValueError(f"prompt {number} has {len(prompt)} tokens; it must have 1 to {capacity} (the capacity)")


def require_room(lengths: NDArray[np.int64], rows: Sequence[int], extra: Sequence[int], capacity: int) -> None:
    """Raises ValueError where a row of `lengths` tokens cannot take `extra` more."""
    for row, more in zip(rows, extra, strict=True):
        if lengths[row] + more > capacity:
            raise ValueError(
                f"row {row} holds {lengths[row]} tokens and cannot take {more} more: the capacity is {capacity}; check "
                "`lengths` first or open the session with a larger capacity"
            )


def _parts(chunks: Sequence[Sequence[int]]) -> Iterator[range]:
    """Split chunks over forwards of PREFILL_TOKENS at most, in their order; a longer one gets a forward of its own."""
    start = tokens = 0
    for i, chunk in enumerate(chunks):
        if i > start and tokens + len(chunk) > PREFILL_TOKENS:
            yield range(start, i)
            start, tokens = i, 0
        tokens += len(chunk)
    if chunks:
        yield range(start, len(chunks))


def _write_and_attend(
    slabs: Slabs,
    window: Window,
    plan: Plan | None,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    slabs.write(keys, values, window)
    if plan is None:
        return queries.flatten(1)
    grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[2])
    return attend(grouped, slabs, plan, scaling, opening=window.opening).reshape(len(queries), -1)


def _sample(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> tuple[list[int], list[float]]:
    """One token per row and the logarithm of the probability it had."""
    if temperature == 0:
        logprobs = torch.log_softmax(logits, dim=-1)
        tokens = logits.argmax(dim=-1, keepdim=True)
    else:
        logprobs = torch.log_softmax(logits / temperature, dim=-1)
        # One uniform number a row, put through the inverse distribution function: a tenth of multinomial's time here.
        mass = logprobs.exp().cumsum(dim=-1)
        draw = torch.rand((len(logits), 1), generator=generator, device=logits.device) * mass[:, -1:]
        tokens = torch.searchsorted(mass, draw, right=True).clamp_(max=logits.shape[-1] - 1)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()
