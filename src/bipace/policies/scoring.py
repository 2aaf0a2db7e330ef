"""Log-probabilities and step features of finished trajectories, from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.language_model import LanguageModel
from bipace.policies.packing import Spans
from bipace.policies.scoring_forward import states_at

__all__ = ["Scores", "buckets", "score"]


@dataclass(frozen=True, slots=True)
class Scores:
    """Flat results in sequence-major, then span-major, then token order.

    Attributes:
        logprobs: [response tokens] natural log-probabilities, float32; differentiable where gradients are on.
        entropy: [response tokens] entropy in nats of the distribution each token was drawn from, or None.
        features: [spans, D] hidden state of the last token before each span, float32, detached; or None.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor | None
    features: torch.Tensor | None


def buckets(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Pack sequences of similar length so that count times longest stays within max_tokens.

    Sequences are taken from the longest to the shortest (ties by index). One longer than max_tokens gets a
    bucket of its own. No sequences give no buckets. Raises ValueError where max_tokens is below 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}; it must be at least 1")
    packed: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if packed and (len(packed[-1]) + 1) * lengths[packed[-1][0]] <= max_tokens:
            packed[-1].append(i)
        else:
            packed.append([i])
    return packed


def score(
    language_model: LanguageModel,
    sequences: Sequence[NDArray[np.int64]],
    spans: Sequence[Spans],
    *,
    layer: int | None,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> Scores:
    """Score the response spans of token sequences in one forward.

    Positions are natural, padding is never seen, and a prompt that several sequences begin with is computed
    once. Logits are computed at response positions only. Works with and without gradients.

    Args:
        language_model: the model.
        sequences: token ids, one array per trajectory.
        spans: per sequence the responses as half-open (start, end) with 1 <= start < end <= length.
        layer: index into hidden_states[0..n_layers] for the features (see LanguageModel.layer_index), or None
            for none. Index n_layers is the state after the final norm.
        temperature: divides the logits.
        with_entropy: also compute the entropy.

    Raises:
        ValueError: a span is out of range, temperature is not positive, or there is no sequence or no span.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; it must be positive")
    rows, positions, targets, firsts = (
        torch.from_numpy(x).to(language_model.device) for x in _responses(sequences, spans)
    )
    # A token is drawn from the state before it.
    under = None if layer == language_model.n_layers else layer
    final, below = states_at(language_model, sequences, spans, rows, positions - 1, under)
    logits = language_model.logits(final) / temperature
    everything = torch.log_softmax(logits, dim=-1)
    logprobs = everything.gather(1, targets[:, None])[:, 0]
    entropy = -(everything.exp() * everything).sum(-1) if with_entropy else None
    features = None if layer is None else (final.detach() if below is None else below)[firsts].float()
    return Scores(logprobs, entropy, features)


def _responses(
    sequences: Sequence[NDArray[np.int64]], spans: Sequence[Spans]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sequence, position and id of every response token; and which of them is the first of each span."""
    if len(sequences) != len(spans):
        raise ValueError(
            f"{len(sequences)} sequences and {len(spans)} lists of spans; one list per sequence is needed"
        )
    flat = [(i, start, end) for i, of_sequence in enumerate(spans) for start, end in of_sequence]
    if not flat:
        raise ValueError("there is no span to score")
    for i, start, end in flat:
        if not 1 <= start < end <= len(sequences[i]):
            raise ValueError(
                f"sequence {i}: span ({start}, {end}) is not within 1 <= start < end <= {len(sequences[i])}"
            )
    row = np.concatenate([np.full(end - start, i, dtype=np.int64) for i, start, end in flat])
    position = np.concatenate([np.arange(start, end, dtype=np.int64) for _, start, end in flat])
    targets = np.concatenate([sequences[i][start:end] for i, start, end in flat]).astype(np.int64, copy=False)
    return row, position, targets, np.cumsum([0, *(end - start for _, start, end in flat[:-1])])
