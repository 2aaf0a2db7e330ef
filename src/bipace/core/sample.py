"""Four steps small enough to reckon by hand: what the examples of the docstrings run on."""

from __future__ import annotations

import numpy as np

from bipace.core.baselines import Peers
from bipace.core.rows import build_batch
from bipace.core.steps import StepBatch

__all__ = ["sample_batch", "sample_peers"]


def sample_batch() -> StepBatch:
    """Two trajectories of one task.

    Both open the door, then one walks on (reward 1) and one waits (reward 0).

    Features of the four states: the two at the door are equal, the two in the hall are 0.05 apart by cosine.

    Examples:
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> batch.trajectory.tolist(), batch.t.tolist(), batch.reward.tolist()
        ([0, 0, 1, 1], [0, 1, 0, 1], [0.0, 1.0, 0.0, 0.0])
        >>> batch.observation.tolist(), batch.action.tolist()
        ([0, 1, 0, 1], [0, 1, 0, 2])
    """
    near = 0.95
    return build_batch(
        task=["fetch"] * 4,
        trajectory=["first", "first", "second", "second"],
        t=[0, 1, 0, 1],
        reward=[0, 1, 0, 0],
        observation=["a door", "a hall", "a door", "a hall"],
        action=["open", "walk", "open", "wait"],
        features=np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, near, (1 - near**2) ** 0.5]]),
    ).batch


def sample_peers() -> Peers:
    """One cluster of three steps.

    The first two took the same action and earned 1 and 0, the third earned 0.5.

    Examples:
        >>> from bipace.core.sample import sample_peers
        >>> peers = sample_peers()
        >>> peers.returns.tolist(), peers.n.tolist(), peers.n_same.tolist()
        ([1.0, 0.0, 0.5], [3, 3, 3], [2, 2, 1])
    """
    return Peers(
        returns=np.array([1.0, 0.0, 0.5]),
        cluster=np.array([0, 0, 0]),
        action=np.array([0, 0, 1]),
        trajectory=np.array([0, 0, 1]),
    )
