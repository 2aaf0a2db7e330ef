"""Ranks of values, for Spearman's correlation."""

from __future__ import annotations

import numpy as np

from bipace.core.steps import Floats

__all__ = ["ranks"]


def ranks(values: Floats) -> Floats:
    """[N] ranks from 1, in the order of the values; equal values share the mean of their places."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
