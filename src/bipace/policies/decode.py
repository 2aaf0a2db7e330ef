"""Lock-step decoding of many growing contexts: rows that answer, hear a reply and answer again (slabs: `slab.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import Cache

from bipace.policies.scoring import buckets
from bipace.policies.slab import ATTENTION, SlabLayer, Window
from bipace.policies.states import block_input

if TYPE_CHECKING:
    from bipace.policies.hf import Actor

__all__ = ["DecodeSession", "Response", "require_prompts", "require_room"]

PREFILL_TOKENS = 8192
PREFILL_CHUNK = 1024
CALL_TOKENS = 128  # what one more forward costs, in tokens (measured with both actors on one core)
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


@contextmanager
def _attention_of(config: Any, name: str) -> Iterator[None]:
    """Use one attention function for the forwards inside, then the model's own again."""
    own = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = own


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
        # transformers 5 renamed the argument within its major version.
        parameters = inspect.signature(self._body.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._layers = [SlabLayer() for _ in range(actor.n_layers)]
        self._cache = Cache(layers=[*self._layers])
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
        for bucket in buckets([len(prompt) for prompt in unique], PREFILL_TOKENS):
            longest = max(len(unique[i]) for i in bucket) - 1
            for start in range(0, longest, PREFILL_CHUNK):
                members = [unique[i] for i in bucket if len(unique[i]) - 1 > start]
                chunks = [list(p[:-1][start : start + PREFILL_CHUNK]) for p in members]
                self._forward([first[p] for p in members], chunks, opening=True)
        end = int(self._opened.max(initial=0))
        if end and len(first) < len(prompts):
            source = np.array([first[tuple(prompt)] for prompt in prompts])
            self._opened = self._opened[source]
            for layer in self._layers:
                layer.copy_prompts(torch.from_numpy(source).to(self.actor.device), end)

    def _tensor(self, values: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.actor.device)

    def _mask(self, window: Window, base: NDArray[np.int64]) -> torch.Tensor:
        """[b, 1, q, prompt_end + end]: 0 where a query sees a slot, minus infinity where not."""
        device, slots = self.actor.device, window.slots[:, None, :, None]
        beyond = torch.arange(window.prompt_end, device=device) >= self._tensor(base)[:, None, None, None]
        later = torch.arange(window.end, device=device) > slots
        unseen = torch.cat([beyond.expand(-1, -1, slots.shape[2], -1), later], dim=3)
        return torch.zeros(unseen.shape, dtype=self.actor.model.dtype, device=device).masked_fill_(unseen, -torch.inf)

    def _advance(self, rows: list[int], layer: int | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Feed what waits in these rows; after each row's last token, logits [rows, vocabulary] and a layer's state."""
        chunks = [self._waiting[row] for row in rows]
        packed = _pack([len(chunk) for chunk in chunks])
        parts = [self._forward([rows[i] for i in part], [chunks[i] for i in part], layer) for part in packed]
        order = torch.tensor([i for part in packed for i in part], device=self.actor.device).argsort()
        for row in rows:
            self._waiting[row] = []
        hidden = torch.cat([hidden for hidden, _ in parts])[order]
        states = [state for _, state in parts if state is not None]
        return self.actor.model.get_output_embeddings()(hidden).float(), torch.cat(states)[order] if states else None

    def _forward(
        self, rows: list[int], chunks: list[list[int]], layer: int | None = None, *, opening: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append a chunk of tokens to each row; at each chunk's last token, the final state and a layer's.

        While opening, the rows are prompts.
        """
        held = self._opened if opening else self._held
        base = np.zeros_like(held) if opening else self._base
        where = np.array(rows)
        # A gather of the slab costs more than the few idle rows it would leave out.
        whole = 4 * len(rows) > 3 * len(held)
        read, at = (np.arange(len(held)), where) if whole else (where, np.arange(len(rows)))
        counts = np.array([len(chunk) for chunk in chunks])
        ids = np.zeros((len(read), int(counts.max())), dtype=np.int64)
        positions = np.zeros_like(ids)
        end = int(((held - base)[where] + counts).max())
        size = self._slots[opening] = max(self._slots[opening], -(-end // SLOTS) * SLOTS)
        slots = np.full_like(ids, size)
        for i, chunk, start, below in zip(at, chunks, held[where], base[where], strict=True):
            ids[i, : len(chunk)] = chunk
            positions[i, : len(chunk)] = np.arange(start, start + len(chunk))
            slots[i, : len(chunk)] = positions[i, : len(chunk)] - below
        held[where] += counts
        window = Window(
            opening=opening,
            rows=len(held),
            size=size,
            write=self._tensor(read),
            slots=self._tensor(slots),
            read=None if whole else self._tensor(where),
            end=end,
            copies=1 if opening else self._copies,
            prompt_end=0 if opening else int(self._opened.max(initial=0)),
        )
        for slab in self._layers:
            slab.window = window
        below = None if layer == self.actor.n_layers else layer
        with _attention_of(self._body.config, ATTENTION), block_input(self._body, below) as kept:
            output = self._body(
                input_ids=self._tensor(ids),
                attention_mask=self._mask(window, base[read]),
                position_ids=self._tensor(positions),
                use_cache=True,
                slabs=self._layers,
                **{self._cache_name: self._cache},
            )
        last = self._tensor(at), self._tensor(counts - 1)
        final = output.last_hidden_state[last]
        return final, None if layer is None else kept[0][last] if kept else final


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


def _pack(lengths: Sequence[int]) -> list[list[int]]:
    """Split chunks of these lengths over forwards so that padding and the cost of a forward are least together.

    Sorted by length, the best split is a cut of the line; each of its parts costs CALL_TOKENS plus what it pads to.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    if lengths[order[0]] == lengths[order[-1]] and len(order) * lengths[order[0]] <= PREFILL_TOKENS:
        return [order]
    best, cut = [0.0], [0]
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        costs = [
            best[start] + CALL_TOKENS + (end - start) * longest
            for start in range(max(0, end - max(1, PREFILL_TOKENS // longest)), end)
        ]
        least = min(costs)
        best.append(least)
        cut.append(end - len(costs) + costs.index(least))
    parts: list[list[int]] = []
    end = len(order)
    while end:
        parts.append(order[cut[end] : end])
        end = cut[end]
    return parts


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
