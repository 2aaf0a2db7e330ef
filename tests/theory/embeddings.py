"""Features that are the truth: one-hot vectors of states, or of the classes of states that are alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bipace.core.steps import Ints
from bipace.theory.sampling import Embedding

__all__ = ["class_embedding", "identity_embedding"]


def identity_embedding(n_states: int) -> Embedding:
    """One-hot features of the state itself: what a perfect encoder that merges nothing would give."""
    return class_embedding(np.arange(n_states))


def class_embedding(classes: Ints) -> Embedding:
    """One-hot features of the state's class: exact bisimulation features with `bisimulation_classes`.

    Args:
        classes: [S] labels from 0.
    """
    one_hot = np.eye(int(classes.max()) + 1, dtype=np.float32)

    def embed(state: Ints, shown: Ints, rng: np.random.Generator) -> NDArray[np.float32]:
        del shown, rng
        return one_hot[classes[state]]

    return embed
