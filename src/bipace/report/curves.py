"""Series of one run and curves of several: values over iterations with a band over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bipace.report.runs import RunRecord
from bipace.report.stats import resampled

__all__ = ["curve", "series"]

_POINTS = 400
_RESAMPLES = 1000


def series(run: RunRecord, metric: str) -> tuple[list[int], list[float]]:
    """Iterations at which a run logged a metric, and its values.

    A name "a / b" divides two metrics of one line.

    Values that are not finite are left out: JSON has no name for them.
    """
    iterations: list[int] = []
    values: list[float] = []
    for line in run.metrics:
        value = _value(line, metric)
        if value is not None and np.isfinite(value):
            iterations.append(int(line["iteration"]))
            values.append(value)
    return iterations, values


def curve(runs: Sequence[RunRecord], metric: str, band: bool = False) -> dict[str, Any] | None:
    """Mean over seeds at every iteration that all of them logged.

    Args:
        runs: the seeds of one method.
        metric: see `series`.
        band: the band is a 95 % bootstrap interval of the mean over seeds, and every seed's values are kept;
            else it is the least and the greatest seed. One seed has no band.

    Returns:
        iterations, mean, low and high (absent for one seed), and with band `seeds` (seed -> values); None
        where nothing was logged. Long curves are thinned to 400 points, evenly.
    """
    found = [(run.seed, series(run, metric)) for run in runs]
    found = [(seed, pair) for seed, pair in found if pair[0]]
    if not found:
        return None
    common = sorted(set.intersection(*(set(iterations) for _, (iterations, _) in found)))
    if not common:
        return None
    if len(common) > _POINTS:
        common = [common[i] for i in np.unique(np.linspace(0, len(common) - 1, _POINTS).astype(int))]
    table = np.array([[dict(zip(*pair, strict=True))[i] for i in common] for _, pair in found])
    made: dict[str, Any] = {"iterations": common, "mean": _short(table.mean(axis=0))}
    if len(table) > 1:
        if band:
            drawn = resampled(table, _RESAMPLES, np.random.default_rng(0)).mean(axis=1)
            low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        else:
            low, high = table.min(axis=0), table.max(axis=0)
        made |= {"low": _short(low), "high": _short(high)}
    if band:
        made["seeds"] = {str(seed): _short(row) for (seed, _), row in zip(found, table, strict=True)}
    return made


def _value(line: Mapping[str, Any], metric: str) -> float | None:
    above, slash, below = metric.partition(" / ")
    value, divisor = line.get(above), line.get(below) if slash else 1.0
    if not isinstance(value, (int, float)) or not isinstance(divisor, (int, float)) or divisor == 0:
        return None
    return value / divisor


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{v:.6g}") for v in values.tolist()]
