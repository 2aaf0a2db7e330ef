"""Choosing the radius without labels.

Which clusters predict a step's return best when its own trajectory is left out?

A cluster is useful as a baseline where the other trajectories' members foretell a step's return. So the
criterion is

    E = mean_i (R_i - (sum_{j in C_i, other trajectories} R_j + k m_i) / (n_i + k))^2

with n_i the number of those members and m_i the mean return of the prompt group's other trajectories, towards
which a cluster with few of them shrinks. Too small a radius leaves nobody to predict from, too large a one
mixes states; both raise E. No truth is used, so the choice can be made on any batch. Our own addition: the
paper fixes eps by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from bipace.core import segments
from bipace.core.advantages import Recipe, Term
from bipace.core.clustering import (
    ByChance,
    ByFeatures,
    Clustering,
    prompt_groups,
    remove_directions,
    vectors_of,
)
from bipace.core.greedy import Centroid, gram_matrix, greedy_from_gram
from bipace.core.returns import return_to_go
from bipace.core.steps import Bools, Floats, Ints, StepBatch

__all__ = [
    "GRID",
    "ByCalibratedFeatures",
    "ByScannedFeatures",
    "Calibrated",
    "Calibration",
    "calibrate",
    "calibration_metrics",
    "choose",
    "foretold",
    "hold",
    "open_directions",
    "prediction_error",
]

GRID = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35)
"""Radii tried by default: from "the same vector" to beyond the paper's 0.05 and 0.10."""


@dataclass(frozen=True)
class Calibration:
    """The choice and the curve it was made from.

    Attributes:
        eps: the chosen radius.
        whiten: the chosen number of removed directions.
        curve: (whiten, eps, error) of every point of the grid, in grid order.
        labels: [N] the clusters of the chosen point.
    """

    eps: float
    whiten: int
    curve: tuple[tuple[int, float, float], ...]
    labels: Ints


def prediction_error(batch: StepBatch, labels: Ints, returns: Floats, k: float = 1.0) -> float:
    """The criterion E of one clustering, in squared reward units.

    Rows of prompt groups with one trajectory have nobody to be predicted from and are left out; a table
    without other rows gives 0.

    Args:
        batch: N steps.
        labels: [N] clusters, none of which spans two prompt groups.
        returns: [N] what is predicted.
        k: pseudo-members at the group's mean.

    Raises:
        ValueError: k not above 0.
    """
    if not k > 0:
        raise ValueError(
            f"k: {k}, expected > 0: where no other trajectory is in the cluster only the prior predicts"
        )
    if not len(batch):
        return 0.0
    predicted, judged = foretold(batch, labels, returns, k)
    return float(((returns - predicted)[judged] ** 2).mean()) if judged.any() else 0.0


def foretold(batch: StepBatch, labels: Ints, returns: Floats, k: float = 1.0) -> tuple[Floats, Bools]:
    """[N] what the other trajectories say of each step's return, and [N] whether the group has any.

    The mean of the cluster's members in other trajectories, shrunk by k pseudo-members towards the mean of
    the prompt group's other trajectories. Labels and k as in `prediction_error`.
    """
    trajectory, task = segments.compact(batch.trajectory), segments.compact(batch.task)
    prior, others = segments.others(returns, task, trajectory)
    mean, n = segments.others(returns, segments.compact(labels), trajectory)
    return prior + (mean - prior) * n / (n + k), others > 0


def calibrate(
    batch: StepBatch,
    gamma: float = 0.95,
    *,
    grid: Sequence[float] = GRID,
    directions: Sequence[int] = (0,),
    centroid: Centroid = "mean",
    k: float = 1.0,
) -> Calibration:
    """The radius (and whitening) of a grid with the least prediction error.

    Ties go to the first in grid order.

    The inner products of a prompt group are taken once for all radii. A grid of one point is that point.

    Args:
        batch: the table, with features.
        gamma: discount of the returns-to-go that are predicted.
        grid: radii.
        directions: numbers of leading principal directions removed.
        centroid: see `by_features`.
        k: see `prediction_error`.

    Raises:
        ValueError: no features; an empty grid; a radius outside [0, 2]; what `remove_directions` refuses.
    """
    if batch.features is None:
        raise ValueError(
            'features: None, but eps="auto" compares feature vectors; capture hidden states first'
        )
    if not len(grid) or not len(directions) or not all(0.0 <= eps <= 2.0 for eps in grid):
        raise ValueError(
            f"grid: {tuple(grid)} x {tuple(directions)}, expected at least one radius in [0, 2] and one"
        )
    returns = return_to_go(batch, gamma)
    groups = prompt_groups(batch)
    curve: list[tuple[int, float, float]] = []
    labels: list[Ints] = []
    for whiten in directions:
        features = remove_directions(batch.features, whiten) if whiten else batch.features
        grams = [gram_matrix(vectors_of(features, rows)) for rows in groups]
        for eps in grid:
            found, used = np.empty(len(batch), np.int64), 0
            for rows, gram in zip(groups, grams, strict=True):
                found[rows] = greedy_from_gram(gram, eps, centroid) + used
                used = int(found[rows].max()) + 1
            labels.append(found)
            curve.append((whiten, float(eps), prediction_error(batch, found, returns, k)))
    best = int(np.argmin([error for _, _, error in curve]))
    return Calibration(curve[best][1], curve[best][0], tuple(curve), labels[best])


@dataclass(frozen=True)
class ByCalibratedFeatures:
    """`by_features` at the radius that `calibrate` chooses on the very batch it is asked about.

    Attributes:
        gamma: discount of the returns-to-go that are predicted.
        grid: radii.
        directions: numbers of leading principal directions removed.
        centroid: see `by_features`.
    """

    gamma: float = 0.95
    grid: tuple[float, ...] = GRID
    directions: tuple[int, ...] = (0,)
    centroid: Centroid = "mean"
    name: ClassVar[str] = "by_calibrated_features"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        return self.choose(batch).labels

    def choose(self, batch: StepBatch) -> Calibration:
        """The choice on a batch, with its curve."""
        return calibrate(
            batch, self.gamma, grid=self.grid, directions=self.directions, centroid=self.centroid
        )

    def at(self, eps: float, whiten: int) -> Clustering:
        """The clustering with the choice frozen."""
        return ByFeatures(eps, self.centroid, whiten)


@dataclass(frozen=True)
class ByScannedFeatures:
    """`by_features` with layer and radius open until `bipace.core.scan` has chosen them (eps = "calibrate").

    Attributes:
        gamma: discount of the returns.
        centroid: see `by_features`.
        directions: numbers of leading principal directions removed that are tried.
    """

    gamma: float = 0.95
    centroid: Centroid = "mean"
    directions: tuple[int, ...] = (0,)
    name: ClassVar[str] = "by_scanned_features"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def __call__(self, _batch: StepBatch) -> Ints:
        """Refused: nothing has been chosen yet."""
        raise ValueError(
            'eps: "calibrate" is chosen from the first rollouts of a training run; here give a number: '
            "`bipace calibrate ACTOR` prints the pair of layer and eps to take"
        )

    def at(self, eps: float, whiten: int) -> Clustering:
        """The clustering with the choice frozen."""
        return ByFeatures(eps, self.centroid, whiten)


@runtime_checkable
class Open(Protocol):
    """A clustering whose radius can be fixed."""

    def at(self, eps: float, whiten: int) -> Clustering:
        """The clustering with the choice frozen."""
        ...


@runtime_checkable
class Calibrated(Protocol):
    """A clustering that chooses its radius on a batch and can be frozen at a choice."""

    def choose(self, batch: StepBatch) -> Calibration:
        """The choice on a batch, with its curve."""
        ...

    def at(self, eps: float, whiten: int) -> Clustering:
        """The clustering with the choice frozen."""
        ...


def choose(batch: StepBatch, terms: Iterable[Term]) -> Calibration | None:
    """What the first term whose clustering calibrates itself chooses on this batch; None where there is none.

    Raises:
        ValueError: what `calibrate` refuses.
    """
    first = next((term.clusters for term in terms if isinstance(term.clusters, Calibrated)), None)
    return None if first is None else first.choose(batch)


def hold(recipe: Recipe, eps: float, whiten: int) -> Recipe:
    """The recipe with a fixed radius and whitening wherever a clustering would calibrate itself."""
    return recipe.map(lambda term: replace(term, clusters=_fixed(term.clusters, eps, whiten)))


def open_directions(recipe: Recipe) -> tuple[int, ...] | None:
    """The whitenings to try where a clustering waits for `bipace.core.scan` (eps = "calibrate"), or None."""
    inner = (t.clusters.clusters if isinstance(t.clusters, ByChance) else t.clusters for t in recipe.terms)
    return next((found.directions for found in inner if isinstance(found, ByScannedFeatures)), None)


def _fixed(clusters: Clustering, eps: float, whiten: int) -> Clustering:
    if isinstance(clusters, ByChance):
        return replace(clusters, clusters=_fixed(clusters.clusters, eps, whiten))
    return clusters.at(eps, whiten) if isinstance(clusters, Open) else clusters


def calibration_metrics(found: Calibration) -> dict[str, float]:
    """The choice and its curve, as metrics."""
    curve = {f"eps_error/{whiten}/{eps:g}": error for whiten, eps, error in found.curve}
    return {"eps": found.eps, "whiten": float(found.whiten), **curve}
