"""How close a recipe's advantages are to the true ones, on the very same rollouts, with bootstrap intervals.

| metric | what it says | a recipe that predicts 0 everywhere |
|---|---|---|
| pearson | linear correlation over steps | 0 |
| spearman | the same over ranks | 0 |
| sign | share of steps with the right sign, among those whose |A| exceeds twice its error; a 0 is wrong | 0 |
| rmse | root mean squared error after the best single scale, in reward units | that of 0 |
| zero_share | share of steps with exactly no signal | 1 |
| gradient_cosine | cosine of the policy gradient with that of the true advantages, on the same tokens | 0 |

No single metric is safe where most true advantages are near zero: read all of them. Where the truth itself
does not vary (a subset of steps, a resample) there is nothing to agree with, and the metrics are NaN, `null`
in JSON. Every metric is a function of sums over prompt groups, so that resampling prompt groups is one matrix
product. Ranks are taken once, over all steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.steps import Bools, Floats, Ints
from bipace.truth.candidates import Candidate
from bipace.truth.ranks import ranks
from bipace.truth.table import Truth

__all__ = ["METRICS", "NoVariance", "best", "noise_ceiling", "samples", "score", "score_all"]

METRICS = ("pearson", "spearman", "sign", "rmse", "zero_share", "gradient_cosine")
_EXACT = 1e-9  # a true advantage below this is 0 where truth is exact
_LAST_INDEX = 8  # step indices from here on are reported together


class NoVariance(ValueError):
    """The policy always or never succeeds: no recipe can be judged on such rollouts."""


@dataclass(frozen=True)
class _Groups:
    """Prompt groups as labels and resampling weights [B + 1, P]; the first row counts every group once."""

    label: Ints
    weights: Floats

    def total(self, values: NDArray[Any]) -> Floats:
        """[B + 1, ...] weighted sums of [N, ...] values."""
        columns = values.reshape(len(values), -1).T
        sums = [
            np.bincount(self.label, weights=column, minlength=self.weights.shape[1]) for column in columns
        ]
        return (self.weights @ np.stack(sums, axis=1)).reshape(-1, *values.shape[1:])


def score(
    truth: Truth, values: Floats, *, bootstraps: int = 500, rows: Bools | None = None
) -> dict[str, Floats]:
    """Every metric of one recipe: [B + 1] numbers, the estimate first, then B resamples of prompt groups.

    Args:
        truth: N steps.
        values: [N] the recipe's advantages.
        bootstraps: B.
        rows: [N] steps to judge on; default all.

    Raises:
        NoVariance: the true advantages are all equal.
    """
    _require_variance(truth)
    chosen = np.flatnonzero(np.ones(len(values), np.bool_) if rows is None else rows)
    x, y = values[chosen], truth.advantage[chosen]
    if not len(chosen) or y.std() <= _EXACT:
        return {name: np.full(bootstraps + 1, np.nan) for name in METRICS}
    groups = _resample(segments.compact(truth.batch.task)[chosen], bootstraps)
    matters = np.abs(y) > np.maximum(2 * truth.error[chosen], _EXACT)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "pearson": _correlation(groups, x, y),
            "spearman": _correlation(groups, ranks(x), ranks(y)),
            "sign": groups.total((np.sign(x) == np.sign(y)) * matters) / groups.total(matters.astype(float)),
            "rmse": _scaled_error(groups, x, y),
            "zero_share": groups.total((x == 0).astype(float)) / groups.total(np.ones(len(x))),
            "gradient_cosine": _cosine(groups, truth.gradient[chosen], x, y),
        }


def noise_ceiling(truth: Truth) -> float:
    """The correlation a perfect recipe would show with this noisy truth: sqrt of the split-half reliability.

    Reliability of K re-rolls from the correlation r of their halves: 2r / (1 + r) (Spearman and Brown). 1
    where truth is exact, 0 where the halves do not agree at all.
    """
    if not len(truth.halves):
        return 1.0
    a, b = truth.halves
    if not (a.std() > 0 and b.std() > 0):
        return 0.0
    r = max(float(np.corrcoef(a, b)[0, 1]), 0.0)
    return float(np.sqrt(2 * r / (1 + r)))


def score_all(
    truths: Sequence[Truth],
    candidates: Sequence[Candidate],
    *,
    group_sizes: Sequence[int] = (),
    bootstraps: int = 500,
    details: bool = True,
) -> dict[str, Any]:
    """Judge recipes on the rollouts of several seeds and at several group sizes, as JSON.

    A metric is the mean over seeds; its 95 % interval resamples the prompt groups of each seed. `seeds` lists
    the estimates of each. With `details`, each recipe is also judged without first steps and by step index.

    Args:
        truths: one a seed.
        candidates: what is judged.
        group_sizes: smaller G to judge on as well, using the first members of each group.
        bootstraps: resamples.
        details: judge subsets of the steps too.

    Raises:
        NoVariance: on every seed; seeds without variance are left out and counted otherwise.
        ValueError: a candidate asks for a layer the truth does not hold; a group size above the one
            collected.
    """
    usable = [truth for truth in truths if truth.advantage.std() > _EXACT]
    if not usable:
        _require_variance(truths[0])
    out: dict[str, Any] = {
        "steps": [len(t.batch) for t in usable],
        "seeds": len(usable),
        "seeds_without_variance": len(truths) - len(usable),
        "noise_ceiling": float(np.mean([noise_ceiling(t) for t in usable])),
        "advantage_std": float(np.mean([t.advantage.std() for t in usable])),
        "identity": [_brief(t) for t in usable],
        "recipes": _judge(usable, candidates, bootstraps, details),
    }
    for size in group_sizes:
        smaller = [truth.first_members(size) for truth in usable]
        out.setdefault("group_sizes", {})[str(size)] = _judge(smaller, candidates, bootstraps, False)
    return out


def _brief(truth: Truth) -> dict[str, Any]:
    """The identity with the number of tasks in place of their names."""
    identity = dict(truth.identity)
    tasks = identity.pop("tasks", None)
    return identity if tasks is None else {**identity, "groups": len(tasks)}


def _judge(
    truths: Sequence[Truth], candidates: Sequence[Candidate], bootstraps: int, details: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ceiling = float(np.mean([noise_ceiling(t) for t in truths]))
    for candidate in candidates:
        values = [candidate.values(truth) for truth in truths]
        entry = samples(truths, values, bootstraps)
        if ceiling > 0:
            entry["pearson_corrected"] = {
                k: _over(v, ceiling) for k, v in entry["pearson"].items() if k != "seeds"
            }
        if details:
            later = [truth.batch.t > 0 for truth in truths]
            entry["without_first"] = samples(truths, values, bootstraps, later)
            entry["by_step"] = _by_step(truths, values)
        found[candidate.label] = entry
    return found


def samples(
    truths: Sequence[Truth], values: Sequence[Floats], bootstraps: int, rows: Sequence[Bools] | None = None
) -> dict[str, Any]:
    """Metric -> value, low, high and the seeds' own estimates; null where it is not defined."""
    picked = rows or [None] * len(truths)
    each = [
        score(t, v, bootstraps=bootstraps, rows=r) for t, v, r in zip(truths, values, picked, strict=True)
    ]
    out: dict[str, Any] = {}
    for name in METRICS:
        # Seeds on which the metric is not defined (no step stands out of the noise) are left out of its mean.
        defined = [scores[name] for scores in each if np.isfinite(scores[name][0])]
        drawn = np.mean(defined, axis=0) if defined else np.full(bootstraps + 1, np.nan)
        usual = drawn[1:][np.isfinite(drawn[1:])]
        low, high = _interval(float(drawn[0]), usual)
        seeds = [_number(scores[name][0]) for scores in each]
        out[name] = {"value": _number(drawn[0]), "low": _number(low), "high": _number(high), "seeds": seeds}
    return out


def _by_step(truths: Sequence[Truth], values: Sequence[Floats]) -> list[dict[str, Any]]:
    """Correlation and share of steps by step index; the last entry holds all later ones."""
    out: list[dict[str, Any]] = []
    total = sum(len(t.batch) for t in truths)
    for index in range(_LAST_INDEX + 1):
        rows = [t.batch.t >= index if index == _LAST_INDEX else t.batch.t == index for t in truths]
        n = sum(int(r.sum()) for r in rows)
        scores = [
            score(t, v, bootstraps=0, rows=r) for t, v, r in zip(truths, values, rows, strict=True) if r.any()
        ]
        defined = [s["pearson"][0] for s in scores if np.isfinite(s["pearson"][0])]
        pearson = float(np.mean(defined)) if defined else None
        out.append({"t": index, "share": n / max(total, 1), "pearson": pearson})
    return out


def _require_variance(truth: Truth) -> None:
    if truth.advantage.std() <= _EXACT:
        raise NoVariance(
            "advantage: every true advantage is the same, so there is nothing to compare: the policy always "
            "or never succeeds on these tasks. Measure another panel or checkpoint"
        )


def _resample(label: Ints, bootstraps: int) -> _Groups:
    label = segments.compact(label)
    groups = int(label.max()) + 1
    drawn = (
        np.random.default_rng(0)
        .multinomial(groups, np.full(groups, 1 / groups), size=bootstraps)
        .astype(np.float64)
    )
    return _Groups(label, np.concatenate([np.ones((1, groups)), drawn]))


def _correlation(groups: _Groups, x: Floats, y: Floats) -> Floats:
    x, y = x - x.mean(), y - y.mean()
    n, sx, sy, sxx, syy, sxy = groups.total(np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)).T
    known, said = np.maximum(syy - sy * sy / n, 0), np.maximum(sxx - sx * sx / n, 0)
    spread = np.sqrt(said * known)
    correlation = np.where(spread > 1e-12 * np.maximum(syy, 1e-300), (sxy - sx * sy / n) / spread, 0.0)
    return np.where(known > _EXACT**2, correlation, np.nan)


def _scaled_error(groups: _Groups, x: Floats, y: Floats) -> Floats:
    n, sxx, syy, sxy = groups.total(np.stack([np.ones(len(x)), x * x, y * y, x * y], axis=1)).T
    explained = np.where(sxx > 0, sxy * sxy / np.where(sxx > 0, sxx, 1.0), 0.0)
    return np.sqrt(np.maximum(syy - explained, 0) / n)


def _cosine(groups: _Groups, gradient: NDArray[np.float32], x: Floats, y: Floats) -> Floats:
    if not gradient.shape[1]:
        return np.full(len(groups.weights), np.nan)
    estimated, true = (_by_group(groups.label, gradient, weight) for weight in (x, y))
    inner = {"xy": estimated @ true.T, "xx": estimated @ estimated.T, "yy": true @ true.T}
    xy, xx, yy = (
        np.einsum("bp,pq,bq->b", groups.weights, inner[k], groups.weights) for k in ("xy", "xx", "yy")
    )
    return np.where(yy > 0, np.where(xx > 0, xy / np.sqrt(xx * yy), 0.0), np.nan)


def _by_group(label: Ints, gradient: NDArray[np.float32], weight: Floats) -> Floats:
    """[P, W] the gradient each prompt group contributes."""
    out = np.zeros((int(label.max()) + 1, gradient.shape[1]))
    for group in range(len(out)):
        rows = label == group
        out[group] = weight[rows] @ gradient[rows]
    return out


def _interval(value: float, drawn: Floats) -> tuple[float, float]:
    """95 % percentile interval of the resamples, moved so that their mean is the estimate.

    Resampled groups are fewer different groups, and noise that has averaged out over all of them comes back:
    cosines of resamples are too small. The move takes that bias out.
    """
    if not len(drawn):
        return np.nan, np.nan
    low, high = np.quantile(drawn - drawn.mean() + value, [0.025, 0.975])
    return float(low), float(high)


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _over(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def best(scores: Mapping[str, Any], metric: str = "pearson") -> str:
    """The label with the highest value of a metric; one for which it is not defined comes last."""

    def value(label: str) -> float:
        found = scores[label][metric]["value"]
        return -np.inf if found is None else found

    return max(scores, key=value)
