"""The streams of random numbers of a run: one table, so that no two parts draw from one stream.

A generator follows from (seed, iteration, stream) alone. A resumed run therefore draws what an uninterrupted
one would have, and a new stream changes nothing that the others draw.
"""

from __future__ import annotations

from enum import IntEnum, unique

import numpy as np

__all__ = ["Stream", "stream"]


@unique
class Stream(IntEnum):
    """What is drawn; a number belongs to its stream for good."""

    TASKS = 0
    """The tasks of an iteration, `rollout.order=draws`."""
    SAMPLING = 1
    """The seed of the tokens' sampling."""
    SHUFFLE = 2
    """The order of sequences in the update."""
    PASSES = 3
    """The order of a pass through the split, `rollout.order=passes`; counted in passes, not in iterations."""


def stream(seed: int, iteration: int, kind: Stream) -> np.random.Generator:
    """The generator of a stream in an iteration, from 0."""
    return np.random.default_rng((seed, iteration, int(kind)))
