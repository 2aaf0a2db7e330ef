"""Lock-step decoding of many growing contexts: rows that answer, hear a reply and answer again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.cached_forward import CachedForward
from bipace.policies.language_model import LanguageModel
from bipace.policies.responses import Response, check_request, require_prompts, require_room
from bipace.policies.sampling import sample

__all__ = ["DecodeSession"]


class DecodeSession:
    """Rows that grow together: generate a response, append the environment's reply, and so on.

    Tokens that no forward has seen yet (a response's last token, an environment's reply) wait per row and
    ride in the first forward of the next `generate`. The readable reference is
    `bipace.policies.naive.NaiveSession`.

    Args:
        language_model: the model and its end tokens.
        prompts: token ids of each prompt, at least one token each. Equal prompts are computed once.
        copies: rows per prompt, prompt-major (all copies of prompt 0 first).
        capacity: the most tokens a row may hold.
        layer: index into hidden_states[0..n_layers] of the state kept with each response, or None for none.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        *,
        copies: int,
        capacity: int,
        layer: int | None = None,
    ) -> None:
        if copies < 1:
            raise ValueError(f"copies is {copies}; it must be at least 1")
        require_prompts(prompts, capacity)
        self._lm, self.capacity = language_model, capacity
        self.layer = None if layer is None else language_model.layer_index(layer)
        # A prompt's last token waits in every row, so that each row's first forward has a token to run.
        self._forward = CachedForward(language_model, [[int(t) for t in p[:-1]] for p in prompts], copies)
        self._waiting = [[int(prompt[-1])] for prompt in prompts for _ in range(copies)]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens held per row, those waiting for their forward included."""
        return self._forward.held + np.array([len(tokens) for tokens in self._waiting], dtype=np.int64)

    def extend(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append context tokens to the given rows.

        Raises ValueError where a row would exceed the capacity.
        """
        if len(rows) != len(tokens):
            raise ValueError(
                f"extend got {len(rows)} rows and {len(tokens)} token lists; one list per row is needed"
            )
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
            generator: the only source of randomness; on the model's device.

        Raises:
            ValueError: a row has no room for max_new_tokens, rows repeat, or a number is out of range.
        """
        check_request(rows, max_new_tokens, temperature)
        require_room(self.lengths, rows, [max_new_tokens] * len(rows), self.capacity)
        ends = set(self._lm.end_token_ids)
        answers = [_Answer(row) for row in rows]
        active = answers
        for call in range(max_new_tokens):
            if not active:
                break
            logits, states = self._advance([answer.row for answer in active], None if call else self.layer)
            if states is not None:
                for answer, state in zip(active, states, strict=True):
                    answer.state = state
            for answer, token, logprob in zip(active, *sample(logits, temperature, generator), strict=True):
                answer.tokens.append(token)
                answer.logprobs.append(logprob)
                self._waiting[answer.row].append(token)
            active = [answer for answer in active if answer.tokens[-1] not in ends]
        return [answer.response(ends) for answer in answers]

    def _advance(
        self, rows: Sequence[int], layer: int | None
    ) -> tuple[torch.Tensor, NDArray[np.float32] | None]:
        """Run what waits in these rows.

        Logits [rows, vocabulary] after each, and a layer's states [rows, D].
        """
        final, state = self._forward.append(rows, [self._waiting[row] for row in rows], layer)
        for row in rows:
            self._waiting[row] = []
        return self._lm.logits(final), None if state is None else state.float().cpu().numpy()


@dataclass(slots=True)
class _Answer:
    """A response that is being written."""

    row: int
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    state: NDArray[np.float32] | None = None

    def response(self, ends: set[int]) -> Response:
        return Response(
            np.array(self.tokens, dtype=np.int64),
            np.array(self.logprobs, dtype=np.float32),
            self.tokens[-1] in ends,
            self.state,
        )
