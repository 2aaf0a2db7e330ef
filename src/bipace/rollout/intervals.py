"""95 % intervals of what a panel shows: a success rate, a mean score."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import cos, pi, sin, sqrt

import numpy as np

__all__ = ["score_interval", "student_quantile", "success_interval"]

_NORMAL = 1.959963984540054  # 0.975 quantile of the normal distribution


def success_interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate; n = 0 gives (0, 1): nothing is known."""
    if n == 0:
        return 0.0, 1.0
    p, z = successes / n, _NORMAL
    whole = 2 * (n + z**2)
    center, half = (2 * n * p + z**2) / whole, z / whole * sqrt(4 * n * p * (1 - p) + z**2)
    return 0.0 if successes == 0 else center - half, 1.0 if successes == n else center + half


def score_interval(scores: Sequence[float]) -> list[float] | None:
    """95 % interval of a mean score, from Student's t over the tasks.

    None for fewer than two: nothing is known.
    """
    n = len(scores)
    if n < 2:
        return None
    half = student_quantile(n - 1) * float(np.std(scores, ddof=1)) / sqrt(n)
    mean = float(np.mean(scores))
    return [mean - half, mean + half]


@cache
def student_quantile(freedom: int) -> float:
    """0.975 quantile of Student's t with a whole number of degrees of freedom, at least 1.

    The probability between -t and t is a finite sum in theta = atan(t / sqrt(freedom)) (Abramowitz and Stegun
    1964, 26.7.3 and 26.7.4); theta is found by bisection.
    """
    low, high = 0.0, pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return sqrt(freedom) * sin(low) / cos(low)


def _within(theta: float, freedom: int) -> float:
    """P(-t < T < t) for t = sqrt(freedom) tan(theta)."""
    odd = freedom % 2
    k = np.arange(1, (freedom - odd) // 2)  # terms after the first
    factors = 2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k)
    series = 1.0 + float(np.cumprod(factors * cos(theta) ** 2).sum())
    if not odd:
        return sin(theta) * series
    return 2 / pi * (theta + (sin(theta) * cos(theta) * series if freedom > 1 else 0.0))
