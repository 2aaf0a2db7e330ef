"""Statistics of a few runs a method, as pure functions of arrays.

Few seeds make a mean jumpy and a standard deviation a guess; beside both stand the interquartile mean, its
stratified bootstrap interval and the probability of improvement (Agarwal et al. 2021, "Deep reinforcement
learning at the edge of the statistical precipice", arXiv 2108.13264), and their performance profiles and
optimality gap. Their library rliable would bring arch, pandas and seaborn for these few lines; tests hold
them to scipy and to plain loops instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "first_reaching",
    "improvement",
    "improvement_interval",
    "interquartile_mean",
    "mean_std",
    "optimality_gap",
    "performance_profile",
    "resampled",
    "stratified_interval",
]

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]


def interquartile_mean(values: Floats) -> Floats:
    """Mean of what is left when a quarter of the values, rounded down, is cut at each end of the last axis.

    Args:
        values: [..., n], n >= 1; of three or fewer nothing is cut, so it is the mean.

    Returns:
        [...]. Equal to `scipy.stats.trim_mean(values, 0.25, axis=-1)`.
    """
    ordered = np.sort(values, axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def optimality_gap(values: Floats, target: float = 1.0) -> Floats:
    """Mean of max(target - value, 0) over the last axis: how far runs fall short of the target; 0 is best.

    Args:
        values: [..., n], n >= 1.
        target: the score beyond which more does not count; 1 for a success rate.
    """
    return np.maximum(target - values, 0.0).mean(axis=-1)


def performance_profile(
    strata: Sequence[Floats],
    taus: Floats,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[Floats, tuple[Floats, Floats] | None]:
    """The share of runs that score above tau, for every tau, and its pointwise bootstrap band.

    Runs of all environments together; a curve above another at every tau is a method that is better at every
    level. Runs are redrawn inside their environment.

    Args:
        strata: one array of runs an environment.
        taus: [T] scores.
        resamples: bootstrap samples.
        confidence: of the band.
        seed: of the draws.

    Returns:
        [T] shares, and [T] low and high; None for the band where no stratum has two runs.
    """
    shares = (np.concatenate(strata)[:, None] > taus).mean(axis=0)
    if max(len(s) for s in strata) < 2:
        return shares, None
    drawn = _drawn(strata, resamples, seed)
    n = drawn.shape[1]
    above = np.stack([n - (drawn <= tau).sum(axis=1) for tau in taus]) / n
    low, high = np.quantile(above, [(1 - confidence) / 2, (1 + confidence) / 2], axis=1)
    return shares, (low, high)


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (ddof 1); one value has no deviation: None."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def resampled(values: Floats, resamples: int, generator: np.random.Generator) -> Floats:
    """Bootstrap samples of the first axis: [n, ...] gives [resamples, n, ...]."""
    return values[generator.integers(0, len(values), (resamples, len(values)))]


def stratified_interval(
    strata: Sequence[Floats],
    statistic: Statistic,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of a statistic; runs are redrawn inside their stratum (environment).

    Args:
        strata: one array of runs an environment.
        statistic: of [..., n] over the last axis, n being all runs together.
        resamples: bootstrap samples.
        confidence: of the interval.
        seed: of the draws: the same runs give the same interval.

    Returns:
        (low, high); None where no stratum has two runs: one run says nothing about its spread.
    """
    if max(len(s) for s in strata) < 2:
        return None
    return _percentiles(statistic(_drawn(strata, resamples, seed)), confidence)


def improvement(strata: Sequence[tuple[Floats, Floats]]) -> float:
    """P(X > Y) + P(X = Y) / 2 for runs of X and Y in the same environment, averaged over environments.

    Per environment the Mann-Whitney statistic U / (n m).
    """
    return float(np.mean([_above(x, y) for x, y in strata]))


def improvement_interval(
    strata: Sequence[tuple[Floats, Floats]], *, resamples: int = 2000, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of `improvement`; None where X or Y has one run in every environment."""
    if max(min(len(x), len(y)) for x, y in strata) < 2:
        return None
    generator = np.random.default_rng(seed)
    drawn = [
        _above(resampled(x, resamples, generator), resampled(y, resamples, generator)) for x, y in strata
    ]
    return _percentiles(np.mean(drawn, axis=0), confidence)


def first_reaching(iterations: Sequence[int], values: Sequence[float], threshold: float) -> int | None:
    """The first iteration whose value is at least the threshold, None where none is ("never")."""
    return next((i for i, v in zip(iterations, values, strict=True) if v >= threshold), None)


def _drawn(strata: Sequence[Floats], resamples: int, seed: int) -> Floats:
    """[resamples, n] runs redrawn, each inside its stratum."""
    generator = np.random.default_rng(seed)
    parts = [resampled(np.asarray(s, np.float64), resamples, generator) for s in strata]
    return np.concatenate(parts, axis=1)


def _above(x: Floats, y: Floats) -> Floats:
    difference = np.asarray(x)[..., :, None] - np.asarray(y)[..., None, :]
    return ((difference > 0) + 0.5 * (difference == 0)).mean(axis=(-1, -2))


def _percentiles(values: Floats, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
