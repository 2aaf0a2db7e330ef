"""What a decoding session answers, and what every session refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Response", "check_request", "require_prompts", "require_room"]


@dataclass(frozen=True, slots=True)
class Response:
    """One model call.

    Attributes:
        tokens: sampled ids, the end token included when one was sampled.
        logprobs: natural log-probability of each sampled token under the distribution it was drawn from; of
            greedy decoding (temperature 0), under the model's at temperature 1.
        state: [D] float32, hidden state at the last token before the response, or None where no layer was
            asked for.
        finished: False when the token limit cut the response off.
    """

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    finished: bool
    state: NDArray[np.float32] | None = None


def check_request(rows: Sequence[int], max_new_tokens: int, temperature: float) -> None:
    """Raises ValueError where rows repeat or a number is out of range."""
    if max_new_tokens < 1 or temperature < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens}, temperature={temperature}: need >= 1 and >= 0")
    if len(set(rows)) != len(rows):
        raise ValueError("rows must be distinct")


def require_prompts(prompts: Sequence[Sequence[int]], capacity: int) -> None:
    """Raises ValueError where a prompt is empty or longer than a row may be."""
    for number, prompt in enumerate(prompts):
        if not 1 <= len(prompt) <= capacity:
            raise ValueError(
                f"prompt {number} has {len(prompt)} tokens; it must have 1 to {capacity} (the capacity)"
            )


def require_room(
    lengths: NDArray[np.int64], rows: Sequence[int], extra: Sequence[int], capacity: int
) -> None:
    """Raises ValueError where a row of `lengths` tokens cannot take `extra` more."""
    for row, more in zip(rows, extra, strict=True):
        if lengths[row] + more > capacity:
            raise ValueError(
                f"row {row} holds {lengths[row]} tokens and cannot take {more} more: the capacity is "
                f"{capacity}; "
                "check `lengths` first or open the session with a larger capacity"
            )
