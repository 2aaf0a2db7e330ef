"""Intervals for what we print. A success rate without one is an anecdote."""

from __future__ import annotations

from scipy.stats import binomtest

__all__ = ["success_interval"]


def success_interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate.

    Args:
        successes: tasks solved.
        n: tasks tried; 0 gives (0, 1): nothing is known.
    """
    if n == 0:
        return 0.0, 1.0
    interval = binomtest(successes, n).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)
