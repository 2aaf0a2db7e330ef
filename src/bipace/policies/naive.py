"""The readable reference of decoding.

No cache, no batch, one plain forward of the whole context for every token.

Slow, and the oracle that the fast session is held to: for the same seed both draw the same tokens, up to the
rounding of a probability that stands exactly on a drawn number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.language_model import LanguageModel
from bipace.policies.responses import Response

__all__ = ["NaiveSession"]


class NaiveSession:
    """Rows that grow together, as `bipace.policies.session.DecodeSession` describes them."""

    def __init__(
        self,
        language_model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        *,
        copies: int = 1,
        layer: int | None = None,
    ) -> None:
        self._lm, self._layer = language_model, layer
        self.rows = [list(prompt) for prompt in prompts for _ in range(copies)]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row."""
        return np.array([len(row) for row in self.rows], dtype=np.int64)

    def extend(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append context tokens to some rows."""
        for row, chunk in zip(rows, tokens, strict=True):
            self.rows[row] += chunk

    @torch.no_grad()
    def generate(
        self, rows: Sequence[int], *, max_new_tokens: int, temperature: float, generator: torch.Generator
    ) -> list[Response]:
        """One response for each of the rows.

        Token by token, every row that has not ended draws one number.
        """
        ends = self._lm.end_token_ids
        tokens: dict[int, list[int]] = {row: [] for row in rows}
        logprobs: dict[int, list[float]] = {row: [] for row in rows}
        states: dict[int, NDArray[np.float32] | None] = dict.fromkeys(rows)
        for call in range(max_new_tokens):
            going = [row for row in rows if not (tokens[row] and tokens[row][-1] in ends)]
            draws = torch.rand((len(going), 1), generator=generator) if going and temperature else None
            for k, row in enumerate(going):
                output = self._lm.model(torch.tensor([self.rows[row]]), output_hidden_states=True)
                if call == 0 and self._layer is not None:
                    states[row] = output.hidden_states[self._layer][0, -1].float().numpy()
                logp = torch.log_softmax(output.logits[0, -1].float() / (temperature or 1.0), dim=-1)
                token = int(logp.argmax()) if draws is None else _inverse(logp.exp(), float(draws[k]))
                tokens[row].append(token)
                logprobs[row].append(float(logp[token]))
                self.rows[row].append(token)
        return [
            Response(
                np.array(tokens[row]),
                np.array(logprobs[row], np.float32),
                tokens[row][-1] in ends,
                states[row],
            )
            for row in rows
        ]


def _inverse(probabilities: torch.Tensor, uniform: float) -> int:
    """The first token at which the distribution function exceeds the number."""
    total = 0.0
    for token, probability in enumerate(probabilities.tolist()):
        total += probability
        if total > uniform:
            return token
    return len(probabilities) - 1
