# long: every public part carries an example that a test runs; without them it is under 300 lines.
"""Clusterings: which steps of a prompt group are compared with each other.

Each function maps a table to compact integer labels [N]. Two rows with one label are *peers*. No cluster ever
spans two prompt groups. A clustering of your own is any function with this shape; where it reads features or
texts it declares so (`bipace.core.parts.needs`). `ByHistory`, `BySimilarity`, `ByFeatures`, `ByNgrams` and
`ByChance` are the functions with their options fixed, as terms hold them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.features import Features, on_host
from bipace.core.greedy import Centroid, Form, greedy_cosine, unit
from bipace.core.ngrams import ngram_vectors
from bipace.core.parts import needs, needs_of
from bipace.core.similarity import BySimilarity, by_similarity
from bipace.core.steps import Ints, StepBatch

__all__ = [
    "ByChance",
    "ByFeatures",
    "ByHistory",
    "ByNgrams",
    "BySimilarity",
    "Clustering",
    "by_chance",
    "by_features",
    "by_history",
    "by_ngrams",
    "by_observation",
    "by_prompt_group",
    "by_similarity",
    "prompt_groups",
    "remove_directions",
    "vectors_of",
]

Clustering = Callable[[StepBatch], Ints]


def by_prompt_group(batch: StepBatch) -> Ints:
    """All steps (or, in a trajectory term, all trajectories) of one task instance are peers.

    Examples:
        >>> from bipace.core.clustering import by_prompt_group
        >>> from bipace.core.sample import sample_batch
        >>> by_prompt_group(sample_batch()).tolist()
        [0, 0, 0, 0]
    """
    return segments.compact(batch.task)


def by_observation(batch: StepBatch) -> Ints:
    """Peers saw the same observation in the same prompt group (GiGPO, arXiv 2505.10978, Eq. 6).

    Examples:
        >>> from bipace.core.clustering import by_observation
        >>> from bipace.core.sample import sample_batch
        >>> by_observation(sample_batch()).tolist()
        [0, 1, 0, 1]
    """
    return segments.pair(batch.task, batch.observation)


def by_history(batch: StepBatch, k: int = 1) -> Ints:
    """Peers share their last k observations, the current one included (HGPO, arXiv 2602.22817).

    k = 1 is `by_observation`. A step with fewer than k observations behind it (t < k - 1) is a cluster of its
    own.

    Raises:
        ValueError: k below 1.

    Examples:
        >>> from bipace.core.clustering import by_history
        >>> from bipace.core.sample import sample_batch
        >>> by_history(sample_batch(), k=2).tolist()
        [1, 0, 2, 0]
    """
    if k < 1:
        raise ValueError(f"k: {k}, expected a history of at least 1 observation")
    if not len(batch):
        return np.zeros(0, np.int64)
    order = batch.order()
    observation, labels = batch.observation[order], by_observation(batch)[order]
    for back in range(1, k):
        # Inside one trajectory the row `back` places earlier is the step `back` steps earlier; the rows for
        # which that is not so have t < back and are set apart below.
        labels = segments.pair(labels, np.roll(observation, back))
    out = np.empty(len(batch), np.int64)
    out[order] = labels
    short = np.flatnonzero(batch.t < k - 1)
    out[short] = len(batch) + np.arange(len(short))
    return segments.compact(out)


@needs("features")
def by_features(
    batch: StepBatch, eps: float = 0.1, centroid: Centroid = "mean", whiten: int = 0, form: Form = "gram"
) -> Ints:
    """Peers have nearby feature vectors: greedy cosine clustering per prompt group (BiGPO, arXiv 2606.25556).

    Steps are visited by (trajectory, t). Each joins the cluster with the nearest centroid if 1 - u.v <= eps
    (+ 1e-6), else opens a new one; ties go to the oldest cluster. A zero vector is at distance 1 from
    everything. eps = 0 with one-hot identity features gives `by_observation` exactly.

    Args:
        batch: the table with features [N, D].
        eps: cosine radius in [0, 2]. Paper: 0.05 (Qwen2.5-1.5B, layer -12), 0.10 (7B, layer -8).
        centroid: "mean" (re-normalised running mean of the members [our decision]) or "leader" (the first
            member).
        whiten: leading principal directions removed from the batch's unit features before clustering (0 or 3;
            a few large directions squeeze raw cosines). The mean is removed with them.
        form: "gram" (one matrix product a group, then a pass over the small matrix) or "plain" (a product a
            step). Both give the same labels.

    Returns:
        [N] compact labels.

    Raises:
        ValueError: no features in the table; eps outside [0, 2]; whiten < 0 or not below D; an unknown
            switch.

    Examples:
        >>> from bipace.core.clustering import by_features
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> by_features(batch, eps=0.1).tolist()
        [0, 1, 0, 1]
    """
    if batch.features is None:
        raise ValueError(
            "features: None, but by_features compares feature vectors; capture hidden states first"
        )
    _check_radius(eps)
    features = remove_directions(batch.features, whiten) if whiten else batch.features
    return _greedy_by_group(batch, features, eps, centroid, form)


@needs("texts")
def by_ngrams(batch: StepBatch, eps: float = 0.1, n: int = 3, centroid: Centroid = "mean") -> Ints:
    """Peers have observation texts that share most character n-grams: `by_features` over `ngram_vectors`.

    The paper's lexical control: the same greedy pass and the same radius, words in place of hidden states.

    Raises:
        ValueError: the table carries no texts; eps outside [0, 2]; n below 1.

    Examples:
        >>> from bipace.core.clustering import by_ngrams
        >>> from bipace.core.sample import sample_batch
        >>> by_ngrams(sample_batch(), eps=0.2).tolist()
        [0, 1, 0, 1]
    """
    if batch.texts is None:
        raise ValueError("texts: None, but by_ngrams compares observation texts; build the table with text")
    _check_radius(eps)
    vectors = ngram_vectors(batch.texts, n)
    return _greedy_by_group(batch, vectors[batch.observation], eps, centroid, "gram")


def by_chance(batch: StepBatch, clusters: Clustering, seed: int = 0) -> Ints:
    """Random clusters with the sizes of another clustering's: the control that tells structure from size.

    Inside each prompt group the labels of `clusters` are dealt anew. The deal follows from the seed and from
    the group's own rows (steps, rewards, sizes), so it depends neither on row order nor on other groups.

    Args:
        batch: the table.
        clusters: whose sizes are kept.
        seed: another deal.

    Raises:
        ValueError: what `clusters` refuses; a negative seed.

    Examples:
        >>> from bipace.core.clustering import by_chance, by_observation
        >>> from bipace.core.sample import sample_batch
        >>> sorted(by_chance(sample_batch(), by_observation).tolist())
        [0, 0, 1, 1]
    """
    if seed < 0:
        raise ValueError(f"seed: {seed}, expected an integer >= 0")
    labels = segments.compact(clusters(batch))
    dealt = np.empty(len(batch), np.int64)
    for rows in prompt_groups(batch):
        own = labels[rows]
        content = (batch.t[rows], batch.reward[rows], segments.compact(own))
        deal = np.random.default_rng([seed, *(zlib.crc32(column.tobytes()) for column in content)])
        dealt[rows] = deal.permutation(own)
    return segments.compact(dealt)


@dataclass(frozen=True)
class ByHistory:
    """`by_history` with its k.

    Examples:
        >>> from bipace.core.clustering import ByHistory
        >>> from bipace.core.sample import sample_batch
        >>> ByHistory(k=2)(sample_batch()).tolist()
        [1, 0, 2, 0]
    """

    k: int = 1
    name: ClassVar[str] = "by_history"

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        return by_history(batch, self.k)


@dataclass(frozen=True)
class ByFeatures:
    """`by_features` with its options.

    Examples:
        >>> from bipace.core.clustering import ByFeatures
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> ByFeatures(eps=0.1)(batch).tolist()
        [0, 1, 0, 1]
    """

    eps: float = 0.1
    centroid: Centroid = "mean"
    whiten: int = 0
    name: ClassVar[str] = "by_features"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        return by_features(batch, self.eps, self.centroid, self.whiten)


@dataclass(frozen=True)
class ByNgrams:
    """`by_ngrams` with its options.

    Examples:
        >>> from bipace.core.clustering import ByNgrams
        >>> sorted(ByNgrams.needs)
        ['texts']
    """

    eps: float = 0.1
    n: int = 3
    centroid: Centroid = "mean"
    name: ClassVar[str] = "by_ngrams"
    needs: ClassVar[frozenset[str]] = frozenset({"texts"})

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        return by_ngrams(batch, self.eps, self.n, self.centroid)


@dataclass(frozen=True)
class ByChance:
    """`by_chance` of another clustering; it needs what that one needs.

    Examples:
        >>> from bipace.core.clustering import ByChance, by_observation
        >>> from bipace.core.sample import sample_batch
        >>> sorted(ByChance(by_observation)(sample_batch()).tolist())
        [0, 0, 1, 1]
    """

    clusters: Clustering
    seed: int = 0
    name: ClassVar[str] = "by_chance"

    @property
    def needs(self) -> frozenset[str]:
        """What the clustering needs whose sizes are kept."""
        return needs_of(self.clusters)

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        return by_chance(batch, self.clusters, self.seed)


def prompt_groups(batch: StepBatch) -> list[Ints]:
    """Rows of each prompt group in visit order.

    Examples:
        >>> from bipace.core.clustering import prompt_groups
        >>> from bipace.core.sample import sample_batch
        >>> [rows.tolist() for rows in prompt_groups(sample_batch())]
        [[0, 1, 2, 3]]
    """
    order = batch.order()
    return np.split(order, np.flatnonzero(np.diff(batch.task[order])) + 1) if len(batch) else []


def vectors_of(features: Features, rows: Ints) -> Features:
    """The vectors of a prompt group.

    A view where they lie side by side, since a gather is a pass over all of them.
    """
    first = int(rows[0])
    if isinstance(features, np.ndarray) and np.array_equal(rows, np.arange(first, first + len(rows))):
        return features[first : first + len(rows)]
    return features[rows]


def remove_directions(features: Features, directions: int) -> NDArray[np.float32]:
    """Unit features [N, D] without their mean and their leading principal directions, float32 on the host.

    Raises:
        ValueError: directions < 0 or >= D.
    """
    if not 0 <= directions < features.shape[1]:
        raise ValueError(
            f"whiten: {directions}, expected 0 <= directions < {features.shape[1]} (the feature width)"
        )
    vectors = unit(on_host(features))
    if not len(vectors):
        return vectors
    vectors = vectors - vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    # eigh of the small D x D covariance: N can be large, D is the hidden width.
    covariance = (np.transpose(vectors) @ vectors).astype(np.float64)
    top = np.linalg.eigh(covariance)[1][:, ::-1][:, :directions].astype(np.float32)
    return vectors - (vectors @ top) @ np.transpose(top)


def _check_radius(eps: float) -> None:
    if not 0.0 <= eps <= 2.0:
        raise ValueError(f"eps: {eps}, expected a cosine distance in [0, 2]")


def _greedy_by_group(
    batch: StepBatch, features: Features, eps: float, centroid: Centroid, form: Form
) -> Ints:
    labels = np.empty(len(batch), np.int64)
    used = 0
    for rows in prompt_groups(batch):
        own = greedy_cosine(vectors_of(features, rows), eps, centroid, form)
        labels[rows] = own + used
        used += int(own.max()) + 1
    return segments.compact(labels)
