"""The model's view of rollouts.

Hidden states of every layer, and a sketch of every step's policy gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bipace.policies.gradients import gradient_sketches, layer_states
from bipace.policies.hf import Actor
from bipace.rollout.records import Trajectory

__all__ = ["describe"]


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
    tokens, spans = [s.tokens for s in sequences], [s.spans for s in sequences]
    layers = layer_states(actor, tokens, spans, range(actor.n_layers + 1))
    return layers, gradient_sketches(actor, tokens, spans, width, temperature)
