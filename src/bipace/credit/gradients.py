"""The model's view of rollouts: hidden states of every layer, and a sketch of every step's policy gradient.

The gradient that a recipe's advantages A make is sum_i A_i g_i with g_i = grad log pi(response_i). Where each g_i is
known, any recipe's gradient, and its cosine with the true one, follows without another backward pass. A g_i has as
many entries as the model has parameters, so a count sketch is kept: every parameter is added, with a random sign, to
one of W bins. Inner products of sketches are unbiased, with a relative error of about 1 / sqrt(W).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.hf import Actor
from bipace.policies.scoring import score
from bipace.rollout.records import TokenSequence, Trajectory

__all__ = ["describe", "gradient_sketches"]


def describe(
    actor: Actor, trajectories: Sequence[Trajectory], *, width: int = 4096, temperature: float = 1.0
) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.float32]]:
    """Features at the last prompt token of every step, for each layer, and the steps' gradient sketches.

    Args:
        actor: the policy.
        trajectories: N steps in all.
        width: W.
        temperature: the rollouts' own.

    Returns:
        layer index as text -> [N, D], from the embedding (0) to the last block; and [N, W].
    """
    sequences = [s for t in trajectories for s in t.sequences]
    layers: dict[str, NDArray[np.float32]] = {}
    with torch.no_grad():
        for layer in range(actor.n_layers + 1):
            found = [_features(actor, sequence, layer) for sequence in sequences]
            layers[str(layer)] = np.concatenate(found)
    return layers, gradient_sketches(actor, sequences, width, temperature)


def gradient_sketches(
    actor: Actor, sequences: Sequence[TokenSequence], width: int, temperature: float = 1.0
) -> NDArray[np.float32]:
    """[N, W] count sketches of grad log pi(response) for every span, with signs and bins fixed for all time."""
    parameters = [p for p in actor.model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in parameters)
    generator = torch.Generator().manual_seed(0)
    bins = torch.randint(width, (total,), generator=generator).to(actor.device)
    signs = torch.randint(2, (total,), generator=generator).to(actor.device).float() * 2 - 1
    rows: list[NDArray[np.float32]] = []
    for sequence in sequences:
        logprobs = score(actor, [sequence.tokens], [sequence.spans], layer=None, temperature=temperature).logprobs
        for part in logprobs.split([end - start for start, end in sequence.spans]):
            gradients = torch.autograd.grad(part.sum(), parameters, retain_graph=True)
            flat = torch.cat([g.reshape(-1) for g in gradients])
            rows.append(torch.zeros(width, device=flat.device).index_add_(0, bins, flat * signs).cpu().numpy())
    return np.stack(rows)


def _features(actor: Actor, sequence: TokenSequence, layer: int) -> NDArray[np.float32]:
    scores = score(actor, [sequence.tokens], [sequence.spans], layer=layer)
    if scores.features is None:
        raise ValueError(f"layer: {layer} gave no features")
    return scores.features.cpu().numpy()
