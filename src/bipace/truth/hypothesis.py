"""The method's central hypothesis, measured: are states whose features are near of nearly equal value?

Everything is looked at inside prompt groups, since no cluster spans two. d is the cosine distance, the chord
sqrt(2 d) the metric that goes with it, V the value of the truth (re-rolled values are noisy: the noise adds
to every difference alike, at distance 0 too unless two steps share one state).

- `rank_correlation`: Spearman's, of d with |V - V'| over the pairs of a prompt group, mean over groups.
- `spread`: root mean square of V - mean of V over the cluster, for clusters of two or more, by radius;
  `by_chance`: the same for random clusters of the same sizes.
- `lipschitz_95`, `lipschitz_max`: the L with |V - V'| <= L * chord that 95 % of the pairs need, and all of
  them. Pairs at distance 0 need none where V agrees, and no L helps where it does not: they are left out,
  their share is `same`.
- `bound`: 2 L sqrt(2 eps), what the theory promises of |mean of V over the cluster - V| with leader centroids
  and a metric, with L = `lipschitz_95`; `bias_mean` and `bias_95`: what is seen of it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.clustering import ByChance, ByFeatures, prompt_groups
from bipace.core.features import on_host
from bipace.core.greedy import gram_matrix
from bipace.core.steps import Floats, Ints, StepBatch
from bipace.truth.ranks import ranks
from bipace.truth.table import Truth

__all__ = ["hypothesis", "order_effect", "stay_together"]

RADII = (0.002, 0.01, 0.02, 0.05, 0.1, 0.2)
_NEAR = 1e-6


def hypothesis(truths: Sequence[Truth], radii: Sequence[float] = RADII) -> dict[str, Any]:
    """Layer -> the measures of the module, means over seeds.

    None where no prompt group has two values to compare.
    """
    return {
        name: {
            **_mean([_pairs(t.with_layer(name), t.value) for t in truths]),
            "radii": {f"{eps:g}": _mean([_clusters(t, name, eps) for t in truths]) for eps in radii},
        }
        for name in truths[0].layers
    }


def order_effect(batch: StepBatch, eps: float, shuffles: int = 5) -> float:
    """How much of the greedy pass is an accident of its order.

    The mean over shuffled orders of the trajectories of
    1 - (pairs together in both) / (pairs together in either); 0: the order does not matter.

    Raises:
        ValueError: no features; a radius outside [0, 2]; fewer than one shuffle.
    """
    if shuffles < 1:
        raise ValueError(f"shuffles: {shuffles}, expected at least 1")
    usual = ByFeatures(eps)(batch)
    number = segments.compact(batch.trajectory)
    changed: list[float] = []
    for seed in range(shuffles):
        renamed = np.random.default_rng(seed).permutation(int(number.max(initial=-1)) + 1)
        other = ByFeatures(eps)(replace(batch, trajectory=renamed[number]))
        both, one, two = _together(segments.pair(usual, other)), _together(usual), _together(other)
        changed.append(1 - both / (one + two - both) if one + two else 0.0)
    return float(np.mean(changed))


def stay_together(batch: StepBatch, after: NDArray[np.float32], eps: float) -> dict[str, float]:
    """Drift: what becomes of pairs when the same steps are read by a later policy.

    Args:
        batch: the table with the features of the earlier policy.
        after: [N, D] the features of the later one.
        eps: radius.

    Returns:
        `kept`: share of the pairs together before that are so after; `new`: share of the pairs together after
        that were not before. 0 where there is no pair.
    """
    before, later = ByFeatures(eps)(batch), ByFeatures(eps)(replace(batch, features=after))
    both, one, two = _together(segments.pair(before, later)), _together(before), _together(later)
    return {"kept": both / one if one else 0.0, "new": 1 - both / two if two else 0.0}


def _pairs(batch: StepBatch, value: Floats) -> dict[str, float | None]:
    correlations: list[float] = []
    slopes: list[Floats] = []
    same = total = 0
    for distance, gap in _each_group(batch, value):
        near = distance <= _NEAR
        same, total = same + int(near.sum()), total + len(near)
        slopes.append(gap[~near] / np.sqrt(2 * distance[~near]))
        if len(distance) and distance.std() > 0 and gap.std() > 0:
            correlations.append(float(np.corrcoef(ranks(distance), ranks(gap))[0, 1]))
    needed = np.concatenate(slopes) if slopes else np.zeros(0)
    return {
        "rank_correlation": float(np.mean(correlations)) if correlations else None,
        "groups": float(len(correlations)),
        "same": same / total if total else 0.0,
        "lipschitz_95": float(np.quantile(needed, 0.95)) if len(needed) else None,
        "lipschitz_max": float(needed.max()) if len(needed) else None,
    }


def _each_group(batch: StepBatch, value: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Distance and difference in value of every pair of each prompt group."""
    assert batch.features is not None
    features = on_host(batch.features)
    for rows in prompt_groups(batch):
        upper = np.triu_indices(len(rows), 1)
        distance = np.maximum(1.0 - gram_matrix(features[rows]).astype(np.float64), 0.0)[upper]
        yield distance, np.abs(value[rows][:, None] - value[rows][None, :])[upper]


def _clusters(truth: Truth, layer: str, eps: float) -> dict[str, float | None]:
    batch = truth.with_layer(layer)
    near = ByFeatures(eps)
    leaders = ByFeatures(eps, "leader")(batch)
    off = np.abs(segments.mean(truth.value, leaders) - truth.value)[segments.count(leaders) > 1]
    slope = _pairs(batch, truth.value)["lipschitz_95"]
    return {
        "spread": _spread(truth.value, near(batch)),
        "by_chance": _spread(truth.value, ByChance(near)(batch)),
        "bias_mean": float(off.mean()) if len(off) else None,
        "bias_95": float(np.quantile(off, 0.95)) if len(off) else None,
        "bound": None if slope is None else 2 * slope * float(np.sqrt(2 * eps)),
        "order_effect": order_effect(batch, eps, 2),
    }


def _spread(value: Floats, labels: Ints) -> float | None:
    shared = segments.count(labels) > 1
    off = (value - segments.mean(value, labels))[shared]
    return float(np.sqrt((off**2).mean())) if shared.any() else None


def _together(labels: Ints) -> float:
    """Ordered pairs of distinct steps in one cluster."""
    size = np.bincount(labels)
    return float((size * (size - 1)).sum())


def _mean(found: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Means over seeds; a seed in which a number is not defined is left out of its mean."""
    out: dict[str, float | None] = {}
    for name in found[0]:
        known = [value for entry in found if (value := entry[name]) is not None]
        out[name] = float(np.mean(known)) if known else None
    return out
