"""Log-probabilities and features of what was sampled: as the rollout kept them, or from a forward over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bipace.core.features import Features
from bipace.policies.device_features import as_features
from bipace.policies.hf import Actor
from bipace.policies.packing import micro_batches
from bipace.policies.scoring import Scores, score
from bipace.rollout.records import TokenSequence

__all__ = ["Scored", "engine_gap", "sampled_scores", "score_part", "score_sequences"]

LARGEST_GAP = 0.2  # nats a token, many times what bfloat16 leaves between two programs


@dataclass(frozen=True)
class Scored:
    """Old log-probabilities and features of all steps.

    Attributes:
        logprobs: for each sequence, [n_i] log-probabilities of its response tokens in order.
        features: [N, D] float32, one row per step in step order, or None. Those of an actor on a GPU stay
            there.
    """

    logprobs: list[torch.Tensor]
    features: Features | None


def sampled_scores(sequences: Sequence[TokenSequence]) -> Scored:
    """What the rollout already knows.

    Each response token's log-probability when drawn, and the states kept with it.

    The policy has not moved since, so these are the old log-probabilities, equal to `score_sequences` up to
    rounding (1e-5 in float32; in lower precision score anew).

    Raises:
        ValueError: a sequence that was not sampled.
    """
    logprobs = [s.logprobs for s in sequences if s.logprobs is not None]
    if len(logprobs) < len(sequences):
        raise ValueError(
            "sequences: some carry no log-probabilities, so they were not sampled; use score_sequences"
        )
    states = [s.states for s in sequences if s.states is not None]
    return Scored([torch.from_numpy(x) for x in logprobs], np.concatenate(states) if states else None)


def score_sequences(
    actor: Actor,
    sequences: Sequence[TokenSequence],
    *,
    layer: int | None,
    micro_tokens: int,
    temperature: float = 1.0,
) -> Scored:
    """Log-probabilities of response tokens and the state at each step's last prompt token, in one forward.

    Args:
        actor: the policy.
        sequences: what was sampled.
        layer: index into hidden_states, or None for no features.
        micro_tokens: padded tokens per forward.
        temperature: the rollouts' own, so that probabilities are those the tokens were sampled with.
    """
    logprobs: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
    features: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
    with torch.no_grad():
        for chosen in micro_batches(
            [s.tokens for s in sequences], [s.spans for s in sequences], micro_tokens
        ):
            scores = score_part(actor, [sequences[i] for i in chosen], layer, temperature)
            tokens = [_response_length(sequences[i]) for i in chosen]
            spans = [len(sequences[i].spans) for i in chosen]
            for k, part in zip(chosen, scores.logprobs.split(tokens), strict=True):
                logprobs[k] = part
            if scores.features is not None:
                for k, part in zip(chosen, scores.features.split(spans), strict=True):
                    features[k] = part
    if layer is None:
        return Scored(logprobs, None)
    nothing = np.zeros((0, actor.hidden_size), np.float32)
    return Scored(logprobs, as_features(torch.cat(features)) if sequences else nothing)


def engine_gap(sequences: Sequence[TokenSequence], scored: Scored) -> dict[str, float]:
    """How far the engine that sampled is from the actor.

    |log-probability when drawn - scored anew|, over all tokens.

    Args:
        sequences: what was sampled.
        scored: their old log-probabilities (`score_sequences`).

    Returns:
        Mean and largest gap in nats; nothing where no token was sampled.

    Raises:
        RuntimeError: a mean gap that rounding does not explain: the engine speaks with other weights than the
            actor.
    """
    gaps = [
        torch.from_numpy(s.logprobs).sub(found.cpu()).abs()
        for s, found in zip(sequences, scored.logprobs, strict=True)
        if s.logprobs is not None
    ]
    if not gaps:
        return {}
    everything = torch.cat(gaps)
    if everything.mean() > LARGEST_GAP:
        raise RuntimeError(
            f"rollout/logprob_gap: {float(everything.mean()):.3f} nats between the engine that sampled and "
            f"the actor, more than the {LARGEST_GAP} that rounding explains: it speaks with other weights; "
            "use rollout.engine=hf"
        )
    return {
        "rollout/logprob_gap": float(everything.mean()),
        "rollout/logprob_gap_max": float(everything.max()),
    }


def score_part(
    actor: Actor,
    sequences: Sequence[TokenSequence],
    layer: int | None,
    temperature: float,
    entropy: bool = False,
) -> Scores:
    """`score` of some records, all in one forward."""
    return score(
        actor,
        [s.tokens for s in sequences],
        [s.spans for s in sequences],
        layer=layer,
        temperature=temperature,
        with_entropy=entropy,
    )


def _response_length(sequence: TokenSequence) -> int:
    return sum(end - start for start, end in sequence.spans)
