"""Nested clusters: the value of a wide cluster is the prior of the narrow ones inside it.

No radius fits everywhere: small clusters are unbiased and noisy, wide ones the reverse. So several are taken
at once. Level 0 is the prompt group; level l splits the clusters of level l - 1 by a smaller radius. Values
shrink down the chain, with k_l pseudo-members at the value of the level above:

    v_0 = mean of R over the group,   v_l = (sum_{C_l} R + k_l v_{l-1}) / (n_l + k_l),   V = v_L
    Q = (sum_{C_L, a} R + k_a V) / (n_a + k_a)

This is the posterior mean of a hierarchical normal model: with variance sigma^2 of a return inside a cluster
and variance tau_l^2 of cluster means around their parent's, k_l = sigma^2 / tau_l^2 (Gelman and Hill 2007,
chapter 12). Our own; what it is worth stands in docs/results/credit-measured.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np

from bipace.core import segments
from bipace.core.baselines import Peers
from bipace.core.clustering import prompt_groups, vectors_of
from bipace.core.greedy import Centroid, gram_matrix, greedy_cosine, greedy_from_gram
from bipace.core.steps import Floats, Ints, StepBatch

__all__ = [
    "GRAM_ROWS",
    "PSEUDO_MEMBERS",
    "ByNestedFeatures",
    "Chain",
    "NestedQ",
    "NestedV",
    "nested_features",
]

Chain = float | tuple[float, ...] | Literal["auto"]
"""Pseudo-members of every level, of each level, or chosen on the batch."""

GRAM_ROWS = 4096
"""Steps of a prompt group up to which its inner products are taken at once."""

PSEUDO_MEMBERS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""What "auto" chooses from."""


def nested_features(batch: StepBatch, radii: Sequence[float], centroid: Centroid = "mean") -> Ints:
    """[N, L] labels of greedy cosine clusters at falling radii, each level inside the one before it.

    One product of a prompt group's vectors serves all radii. A later level is the clustering of its radius,
    cut by the level above, so that every cluster of level l lies in one of level l - 1.

    Args:
        batch: the table, with features.
        radii: cosine radii, each smaller than the one before.
        centroid: see `by_features`.

    Raises:
        ValueError: no features; no radius; radii that do not fall, or lie outside [0, 2].
    """
    if batch.features is None:
        raise ValueError(
            "features: None, but nested clusters compare feature vectors; capture hidden states first"
        )
    falls = all(wide > narrow for wide, narrow in pairwise(radii))
    if not radii or not falls or not all(0.0 <= eps <= 2.0 for eps in radii):
        raise ValueError(
            f"radii: {tuple(radii)}, expected at least one cosine distance in [0, 2], each below the last"
        )
    found = np.empty((len(batch), len(radii)), np.int64)
    used = [0] * len(radii)
    for rows in prompt_groups(batch):
        vectors = vectors_of(batch.features, rows)
        # Of a huge group the [n, n] products cost more memory than they save time.
        gram = gram_matrix(vectors) if len(rows) <= GRAM_ROWS else None
        for level, eps in enumerate(radii):
            if gram is None:
                own = greedy_cosine(vectors, eps, centroid, "plain")
            else:
                own = greedy_from_gram(gram, eps, centroid)
            found[rows, level] = own + used[level]
            used[level] += int(own.max()) + 1
    for level in range(1, len(radii)):
        found[:, level] = segments.pair(found[:, level - 1], found[:, level])
    return found


@dataclass(frozen=True)
class ByNestedFeatures:
    """`nested_features` with its radii, as a term holds it."""

    radii: tuple[float, ...] = (0.2, 0.1, 0.05, 0.02)
    centroid: Centroid = "mean"
    name: ClassVar[str] = "by_nested_features"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def __call__(self, batch: StepBatch) -> Ints:
        """[N, L] labels, widest first."""
        return nested_features(batch, self.radii, self.centroid)


@dataclass(frozen=True)
class NestedV:
    """V = v_L: the value of the finest cluster, shrunk down the chain.

    Attributes:
        k: pseudo-members >= 0 of every level, a tuple with one number a level, or "auto": level by level from
            the wide end, the number of `PSEUDO_MEMBERS` that predicts a step's return best from the chain in
            which the step's own trajectory is left out; the smallest of equals. A batch in which every group
            has one trajectory has nobody to predict from and takes 1.

    Raises:
        ValueError: a number below 0, another length than the levels, an unknown word; peers without prompt
            groups.
    """

    k: Chain = "auto"
    name: ClassVar[str] = "nested_v"

    def __call__(self, peers: Peers) -> Floats:
        """[N] v_L."""
        value = segments.mean(peers.returns, _group(peers))
        for labels, k in zip(_levels(peers), self.chain(peers), strict=True):
            n = segments.count(labels)
            value = value + (segments.mean(peers.returns, labels) - value) * n / (n + k)
        return value

    def chain(self, peers: Peers) -> tuple[float, ...]:
        """The pseudo-members of each level, widest first."""
        levels = _levels(peers)
        if self.k == "auto":
            return _foretelling(peers, levels)
        given = self.k if isinstance(self.k, tuple) else (self.k,) * len(levels)
        for k in given:
            if isinstance(k, str) or not 0 <= k < np.inf:
                raise ValueError(
                    f'k: {k!r}, expected a number of pseudo-members >= 0, a tuple of them, or "auto"'
                )
        if len(given) != len(levels):
            raise ValueError(f"k: {given}, expected one number for each of {len(levels)} levels")
        return given


@dataclass(frozen=True)
class NestedQ:
    """Q = (sum_{C_L, a} R + k_a V) / (n_a + k_a): the action's mean in the finest cluster, shrunk towards V.

    In a prompt group of one trajectory Q = V: nothing is compared with anything there.

    Attributes:
        v: the baseline.
        k_action: pseudo-members >= 0 at V.

    Raises:
        ValueError: k_action below 0; what `v` refuses.
    """

    v: NestedV = NestedV()
    k_action: float = 0.5
    name: ClassVar[str] = "nested_q"

    def __call__(self, peers: Peers) -> Floats:
        """[N] Q."""
        if not 0 <= self.k_action < np.inf:
            raise ValueError(f"k_action: {self.k_action!r}, expected a number of pseudo-members >= 0")
        value = self.v(peers)
        same = segments.mean(peers.returns, peers.cluster_action)
        q = value + (same - value) * peers.n_same / (peers.n_same + self.k_action)
        return np.where(_lone_groups(peers), value, q)


def _foretelling(peers: Peers, levels: list[Ints]) -> tuple[float, ...]:
    if peers.trajectory is None:
        raise ValueError('peers: no trajectories; nested values are for step terms (unit="step")')
    prior, n = segments.others(peers.returns, _group(peers), peers.trajectory)
    judged = n > 0
    chosen: list[float] = []
    for labels in levels:
        mean, n = segments.others(peers.returns, labels, peers.trajectory)
        predicted = [prior + (mean - prior) * n / (n + k) for k in PSEUDO_MEMBERS]
        errors = [float(((peers.returns - p)[judged] ** 2).sum()) for p in predicted]
        # Rounding must not decide between equals: the smallest k within a relative 1e-12 of the best.
        best = next(i for i, error in enumerate(errors) if error <= min(errors) * (1 + 1e-12))
        chosen.append(PSEUDO_MEMBERS[best] if judged.any() else 1.0)
        prior = predicted[best]
    return tuple(chosen)


def _levels(peers: Peers) -> list[Ints]:
    if peers.levels is None:
        return [peers.cluster]
    return [peers.levels[:, level] for level in range(peers.levels.shape[1])]


def _lone_groups(peers: Peers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    group = _group(peers)
    if not len(group) or peers.trajectory is None:
        return np.zeros(len(group), np.bool_)
    first = segments.first_rows(segments.pair(group, peers.trajectory))
    return np.bincount(group[first])[group] == 1


def _group(peers: Peers) -> Ints:
    if peers.group is None:
        raise ValueError('peers: no prompt groups; nested values are for step terms (unit="step")')
    return peers.group
