"""Greedy cosine clustering of one prompt group: the state side of BiPACE (arXiv 2606.25556, BiGPO).

One pass in the given order: a vector joins the cluster whose centroid is nearest if 1 - cos <= eps +
TOLERANCE, else it opens a new cluster. Clusters whose distances differ by less than TOLERANCE count as
equally near; the oldest wins. Two forms give the same labels. The Gram form needs the features once, as one
matrix product on whichever device holds them; the pass itself then runs on the [n, n] matrix of inner
products alone.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bipace.core.features import Features, FeaturesElsewhere, on_host
from bipace.core.steps import Ints

__all__ = ["TOLERANCE", "Centroid", "Form", "gram_matrix", "greedy_cosine", "greedy_from_gram", "unit"]

Centroid = Literal["mean", "leader"]
Form = Literal["gram", "plain"]

# float32 inner products of unit vectors are off by about 1e-7; a vector at distance exactly eps must still
# join.
TOLERANCE = 1e-6

# Squared lengths between which products of float32 vectors neither overflow nor lose digits to underflow.
_SMALLEST, _LARGEST = 1e-12, 1e30


def greedy_cosine(features: Features, eps: float, centroid: Centroid = "mean", form: Form = "gram") -> Ints:
    """Cluster the rows of one prompt group, in the given order.

    Args:
        features: [n, D], not necessarily of unit length; a zero vector is at distance 1 from everything.
        eps: cosine radius.
        centroid: "mean" (re-normalised running mean) or "leader" (first member, never moved).
        form: "gram" or "plain".

    Returns:
        [n] labels in the order the clusters were opened. Empty in, empty out.

    Raises:
        ValueError: an unknown centroid rule or form.
    """
    if form not in ("gram", "plain"):
        raise ValueError(f'form: {form!r}, expected "gram" or "plain"')
    if form == "gram":
        return greedy_from_gram(gram_matrix(features), eps, centroid)
    return _greedy_plain(unit(on_host(features)), eps, centroid)


def gram_matrix(features: Features) -> NDArray[np.float32]:
    """[n, n] float32 inner products of the unit vectors of [n, D] features.

    Vectors of ordinary length are multiplied as they are and the small matrix is scaled: a pass over the
    features less. Of features on a device, the small matrix is all that leaves it (very short or long vectors
    come whole).
    """
    if isinstance(features, FeaturesElsewhere):
        gram = features.gram()
    else:
        vectors: NDArray[np.float32] = np.ascontiguousarray(features, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            gram = vectors @ np.transpose(vectors)
    square = np.diagonal(gram).astype(np.float64)
    if len(gram) and square.min() > _SMALLEST and square.max() < _LARGEST:
        inverse = (1 / np.sqrt(square)).astype(np.float32)
        np.multiply(gram, inverse[:, None], out=gram)
        np.multiply(gram, inverse, out=gram)
        return gram
    vectors = unit(on_host(features))
    return vectors @ np.transpose(vectors)


def unit(features: NDArray[np.floating]) -> NDArray[np.float32]:
    """Rows scaled to length 1, float32; a zero row stays zero."""
    features = np.asarray(features, np.float32)
    # Scaling by the largest entry first keeps the squares of tiny and huge vectors inside float32.
    largest = np.abs(features).max(axis=1, keepdims=True, initial=0.0)
    scaled = features / np.where(largest > 0, largest, 1)
    norm = np.linalg.norm(scaled, axis=1, keepdims=True)
    return (scaled / np.where(norm > 0, norm, 1)).astype(np.float32)


def greedy_from_gram(gram: NDArray[np.floating], eps: float, centroid: Centroid = "mean") -> Ints:
    """The same clustering from the inner products of unit vectors.

    With members M of cluster C, the centroid is c = sum_M u / |sum_M u|, so u_i.c = S[C, i] / sqrt(Q[C])
    where S[C, i] = sum_{m in M} u_m.u_i and Q[C] = |sum_M u|^2. Both are updated as members join; no vector
    is touched.

    Args:
        gram: [n, n] float inner products u_i.u_j.
        eps: cosine radius.
        centroid: "mean" or "leader".

    Returns:
        [n] labels in the order the clusters were opened.

    Raises:
        ValueError: an unknown centroid rule; a gram that is not square.
    """
    moves = _moves(centroid)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"gram: shape {gram.shape}, expected a square matrix [n, n]")
    n = len(gram)
    labels = np.empty(n, np.int64)
    sums = np.empty((min(n, 16), n))
    cosines = np.empty_like(sums)  # of every cluster's centroid with every vector
    square: list[float] = []
    used = 0
    for i in range(n):
        nearest = _nearest(cosines[:used, i], eps)
        if nearest < 0:
            if used == len(sums):
                more = np.empty((min(used, n - used), n))
                sums, cosines = np.concatenate([sums, more]), np.concatenate([cosines, more])
            nearest, used = used, used + 1
            sums[nearest] = gram[i]
            square.append(float(gram[i, i]))
            np.multiply(sums[nearest], _inverse_root(square[nearest]), out=cosines[nearest])
        elif moves:
            total = sums[nearest]
            square[nearest] += 2 * float(total[i]) + float(gram[i, i])
            total += gram[i]
            np.multiply(total, _inverse_root(square[nearest]), out=cosines[nearest])
        labels[i] = nearest
    return labels


def _greedy_plain(vectors: NDArray[np.float32], eps: float, centroid: Centroid) -> Ints:
    moves = _moves(centroid)
    n, width = vectors.shape
    labels = np.empty(n, np.int64)
    sums = np.empty((min(n, 16), width))
    centroids = np.empty((min(n, 16), width), np.float32)
    used = 0
    for i in range(n):
        nearest = _nearest((centroids[:used] @ vectors[i]).astype(np.float64), eps)
        if nearest < 0:
            if used == len(sums):
                grown = min(used, n - used)
                sums = np.concatenate([sums, np.empty((grown, width))])
                centroids = np.concatenate([centroids, np.empty((grown, width), np.float32)])
            nearest, used = used, used + 1
            sums[nearest] = vectors[i]
            centroids[nearest] = vectors[i]
        elif moves:
            sums[nearest] += vectors[i]
            centroids[nearest] = sums[nearest] * _inverse_root(float(sums[nearest] @ sums[nearest]))
        labels[i] = nearest
    return labels


def _nearest(cosines: NDArray[np.float64], eps: float) -> int:
    """Index of the cluster to join, or -1 to open a new one."""
    if not len(cosines):
        return -1
    first = int(cosines.argmax())
    largest = float(cosines[first])
    if 1.0 - largest > eps + TOLERANCE:
        return -1
    return int((cosines >= largest - TOLERANCE).argmax()) if first else 0


def _inverse_root(square: float) -> float:
    # Members that cancel leave a centroid without direction: at distance 1 from everything, like a zero
    # vector.
    return 1.0 / square**0.5 if square > TOLERANCE else 0.0


def _moves(centroid: Centroid) -> bool:
    if centroid not in ("mean", "leader"):
        raise ValueError(f'centroid: {centroid!r}, expected "mean" or "leader"')
    return centroid == "mean"
