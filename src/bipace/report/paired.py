"""How fast a method learns: means over its whole run, and the difference from the baseline seed by seed.

Runs of one seed draw the same tasks and start from the same validation, so their difference is less noisy
than that of two means. A mean over the curve is less noisy than its last point, and rewards rising early.
Success over all training episodes is the least noisy of all: an iteration of 128 episodes for forty
iterations is 5,120 episodes, where four validations are 1,024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bipace.report.curves import series
from bipace.report.runs import RunRecord
from bipace.report.stats import mean_std, stratified_interval

__all__ = ["training_success", "whole_curves"]

_Levels = dict[int, tuple[tuple[int, ...], float]]
"""Seed -> the iterations that count, and the mean over them."""


def whole_curves(
    methods: Mapping[str, Sequence[RunRecord]], baseline: str, *, resamples: int, confidence: float
) -> dict[str, Any]:
    """Mean of the validations after the start (iteration 0), and its paired difference from the baseline's.

    Args:
        methods: an environment's runs.
        baseline: one of them.
        resamples: bootstrap samples of the interval, a percentile bootstrap over pairs.
        confidence: of the interval.

    Returns:
        Per method `mean`, `std` (sample deviation over seeds) and `difference`: `mean`, `interval`, and in
        `ahead` of `n` pairs the method is higher. A pair is two runs of one seed that validated at the same
        iterations. None for the baseline and where there is no pair; one pair has no interval.
    """
    levels = {method: _validated(runs) for method, runs in methods.items()}
    return _compared(levels, baseline, resamples, confidence)


def training_success(
    methods: Mapping[str, Sequence[RunRecord]], baseline: str, *, resamples: int, confidence: float
) -> dict[str, Any]:
    """Success over all training episodes, every iteration alike, and its paired difference.

    Episodes are played while the method learns, on the tasks it trains on: how much was won on the way, not
    how well it plays in the end or elsewhere. Arguments and result as `whole_curves`; a pair is two runs of
    one seed with the same iterations.
    """
    levels = {method: _played(runs) for method, runs in methods.items()}
    return _compared(levels, baseline, resamples, confidence)


def _compared(
    levels: Mapping[str, _Levels], baseline: str, resamples: int, confidence: float
) -> dict[str, Any]:
    theirs = levels.get(baseline, {})
    found: dict[str, Any] = {}
    for method, own in levels.items():
        if not own:
            continue
        mean, std = mean_std([level for _, level in own.values()])
        pairs = [
            own[seed][1] - theirs[seed][1]
            for seed in own
            if seed in theirs and own[seed][0] == theirs[seed][0]
        ]
        found[method] = {"mean": mean, "std": std, "difference": None}
        if pairs and method != baseline:
            found[method]["difference"] = {
                "mean": float(np.mean(pairs)),
                "interval": stratified_interval(
                    [np.array(pairs)], lambda x: x.mean(axis=-1), resamples=resamples, confidence=confidence
                ),
                "ahead": sum(pair > 0 for pair in pairs),
                "n": len(pairs),
            }
    return found


def _validated(runs: Sequence[RunRecord]) -> _Levels:
    found: _Levels = {}
    for run in runs:
        iterations, values = series(run, f"val/{run.panels[0]}/success") if run.panels else ([], [])
        kept = [(i, v) for i, v in zip(iterations, values, strict=True) if i > 0]
        if kept:
            found[run.seed] = tuple(i for i, _ in kept), float(np.mean([v for _, v in kept]))
    return found


def _played(runs: Sequence[RunRecord]) -> _Levels:
    found: _Levels = {}
    for run in runs:
        iterations, values = series(run, "episode/success_rate")
        if values:
            found[run.seed] = tuple(iterations), float(np.mean(values))
    return found
