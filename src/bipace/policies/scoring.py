"""Log-probabilities and step features of finished trajectories, from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bipace.policies.hf import Actor

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

    Sequences are taken from the longest to the shortest (ties by index). One longer than max_tokens gets a bucket of
    its own. No sequences give no buckets. Raises ValueError where max_tokens is below 1.
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
    actor: Actor,
    sequences: Sequence[NDArray[np.int64]],
    spans: Sequence[Sequence[tuple[int, int]]],
    *,
    layer: int | None,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> Scores:
    """Score the response spans of token sequences in one forward.

    Sequences are padded on the right under a causal mask, so positions are natural and padding is never seen.
    Logits are computed at response positions only. Works with and without gradients.

    Args:
        actor: the model.
        sequences: token ids, one array per trajectory.
        spans: per sequence the responses as half-open (start, end) with 1 <= start < end <= length.
        layer: index into hidden_states[0..n_layers] for the features (see Actor.layer_index), or None for none.
            Index n_layers is the state after the final norm.
        temperature: divides the logits.
        with_entropy: also compute the entropy.

    Raises:
        ValueError: a span is out of range, temperature is not positive, or there is no sequence or no span.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; it must be positive")
    row, position, starts = _positions(sequences, spans)
    ids = np.zeros((len(sequences), max(len(tokens) for tokens in sequences)), dtype=np.int64)
    for i, tokens in enumerate(sequences):
        ids[i, : len(tokens)] = tokens
    device = actor.device
    inputs = torch.from_numpy(ids).to(device)
    rows, targets = torch.from_numpy(row).to(device), torch.from_numpy(position).to(device)
    final, chosen = _hidden(actor, inputs, layer)
    logits = actor.model.get_output_embeddings()(final[rows, targets - 1]).float() / temperature
    everything = torch.log_softmax(logits, dim=-1)
    logprobs = everything.gather(1, inputs[rows, targets][:, None])[:, 0]
    entropy = -(everything.exp() * everything).sum(-1) if with_entropy else None
    features = None
    if chosen is not None:
        at = torch.from_numpy(starts).to(device)
        features = chosen.detach()[at[:, 0], at[:, 1] - 1].float()
    return Scores(logprobs, entropy, features)


def _positions(
    sequences: Sequence[NDArray[np.int64]], spans: Sequence[Sequence[tuple[int, int]]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sequence and position of every response token, and (sequence, start) of every span."""
    if len(sequences) != len(spans):
        raise ValueError(f"{len(sequences)} sequences and {len(spans)} lists of spans; one list per sequence is needed")
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
    return row, position, np.array([(i, start) for i, start, _ in flat], dtype=np.int64)


def _hidden(actor: Actor, inputs: torch.Tensor, layer: int | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The final hidden states and those of one layer, keeping no other."""
    body: Any = actor.model.base_model
    if layer is None or layer == actor.n_layers:
        final = body(input_ids=inputs, use_cache=False).last_hidden_state
        return final, None if layer is None else final
    kept: list[torch.Tensor] = []

    def keep(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept.append((args[0] if args else kwargs["hidden_states"]).detach())

    # hidden_states[k] is what block k reads.
    hook = body.layers[actor.layer_index(layer)].register_forward_pre_hook(keep, with_kwargs=True)
    try:
        final = body(input_ids=inputs, use_cache=False).last_hidden_state
    finally:
        hook.remove()
    return final, kept[0]
