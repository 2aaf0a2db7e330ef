"""Held-out agreement: does the gradient that some trajectories make also pay off on another trajectory?

What a recipe is for is the policy gradient, so its clusters are judged by it. For every trajectory tau of a
prompt group p, the recipe is evaluated on the table without tau. With g_i the policy gradient of step i (any
vectors whose inner products are those of the gradients),

    d = sum_{i in p, not in tau} A_i(without tau) g_i        h = sum_{j in tau} (R_j - b_j) g_j
    agreement = sum_{p, tau} <d, h> / sqrt(sum_{p, tau} |d|^2)

b_j is the mean return-to-go of the other trajectories' steps with j's observation, shrunk to their prompt
group's mean. It does not depend on j's action, so h is an unbiased estimate of the true gradient, and it
shares no return with d. The expectation of the agreement is therefore the cosine of d with the true gradient,
up to a factor that is the same for all recipes: no truth is needed to rank them. Inner products across prompt
groups are left out: they are few signals in much noise. Our own addition; what it picks is measured in
docs/results/credit-measured.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.advantages import Recipe, advantages
from bipace.core.calibrate import foretold
from bipace.core.clustering import by_observation
from bipace.core.returns import return_to_go
from bipace.core.steps import Floats, Ints, StepBatch

__all__ = ["Agreement", "HeldOut", "reference_advantage"]


@dataclass(frozen=True, eq=False)
class Agreement:
    """How well a recipe's gradient agrees with held-out trajectories.

    Attributes:
        gained: [P] sum of <d, h> of each prompt group.
        square: [P] sum of |d|^2 of each prompt group.
    """

    gained: Floats
    square: Floats

    @property
    def value(self) -> float:
        """The agreement; 0 where the recipe credits nothing."""
        return _ratio(self.gained.sum(), self.square.sum())

    def without_each(self) -> Floats:
        """[P] the agreement without each prompt group, for a jackknife."""
        gained, square = self.gained.sum() - self.gained, self.square.sum() - self.square
        return np.array([_ratio(a, b) for a, b in zip(gained, square, strict=True)])

    def behind(self, other: Agreement) -> tuple[float, float]:
        """How far this one is behind another, and the standard error of that (jackknife over groups)."""
        gaps = other.without_each() - self.without_each()
        n = len(gaps)
        error = float(np.sqrt((n - 1) / n * ((gaps - gaps.mean()) ** 2).sum())) if n else 0.0
        return other.value - self.value, error


def reference_advantage(batch: StepBatch, gamma: float = 0.95, k: float = 1.0) -> Floats:
    """[N] R_j - b_j: an unbiased, noisy advantage whose baseline leaves the step's own trajectory out.

    b_j = (sum of R over the other trajectories' steps with j's observation + k m) / (their number + k), m the
    mean return-to-go of the other trajectories of the prompt group. 0 where the prompt group has one
    trajectory.
    """
    if not len(batch):
        return np.zeros(0)
    returns = return_to_go(batch, gamma)
    predicted, judged = foretold(batch, by_observation(batch), returns, k)
    return np.where(judged, returns - predicted, 0.0)


class HeldOut:
    """The criterion on one table: its gradients, its folds and what the held-out trajectories say.

    Args:
        batch: N steps.
        gradients: [N, W] vectors whose inner products are those of the steps' policy gradients.
        gamma: discount of the returns-to-go.

    Raises:
        ValueError: gradients of another number of steps.
    """

    def __init__(self, batch: StepBatch, gradients: NDArray[np.float32], gamma: float = 0.95) -> None:
        if len(gradients) != len(batch):
            raise ValueError(
                f"gradients: {len(gradients)} vectors for {len(batch)} steps; one a step is needed"
            )
        self.reference = reference_advantage(batch, gamma)
        self.member = _members(batch)
        task = segments.compact(batch.task)
        self.groups = [np.flatnonzero(task == p) for p in range(int(task.max(initial=-1)) + 1)]
        self.products = [_products(gradients[rows]) for rows in self.groups]

    def judge(self, batch: StepBatch, recipe: Recipe) -> Agreement:
        """The agreement of a recipe on the table (with the features that the recipe is to read).

        Raises:
            ValueError: what `advantages` refuses.
        """
        gained, square = np.zeros(len(self.groups)), np.zeros(len(self.groups))
        for held in range(int(self.member.max(initial=-1)) + 1):
            kept = np.flatnonzero(self.member != held)
            values = np.zeros(len(batch))
            values[kept] = advantages(batch.take(kept), recipe).values
            outside = np.where(self.member == held, self.reference, 0.0)
            for p, (rows, products) in enumerate(zip(self.groups, self.products, strict=True)):
                towards = values[rows] @ products
                gained[p] += towards @ outside[rows]
                square[p] += towards @ values[rows]
        return Agreement(gained, square)


def _products(vectors: NDArray[np.float32]) -> Floats:
    """[n, n] inner products."""
    products: NDArray[np.float32] = vectors @ np.transpose(vectors)
    return products.astype(np.float64)


def _members(batch: StepBatch) -> Ints:
    """[N] the number of a step's trajectory inside its prompt group: 0..G-1."""
    trajectory = segments.compact(batch.trajectory)
    first = segments.first_rows(trajectory)
    task = segments.compact(batch.task)[first]
    order = np.argsort(task, kind="stable")
    sizes = np.bincount(task)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank[trajectory]


def _ratio(gained: float, square: float) -> float:
    return float(gained / np.sqrt(square)) if square > 0 else 0.0
