"""How far a finding reaches: which prompt groups it hits, how hard, and what share of all steps is harmed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.analyze.evidence import Evidence, Worst
from bipace.core import segments

__all__ = ["WORST", "alone", "one_action", "others", "reach"]

WORST = 3

Mask = NDArray[np.bool_]


def reach(
    e: Evidence,
    rows: Mask,
    words: str,
    *,
    count: float | None = None,
    unit: str = "steps",
    weight: float = 1.0,
) -> dict[str, Any]:
    """What a finding about some steps says of groups: keyword arguments of `Finding`.

    Args:
        e: the evidence.
        rows: [N] True for the steps it is about.
        words: what these steps are, after "12 of 48 steps".
        count: what the title counts; the steps where None.
        unit: "steps", or "rollouts" where whole trajectories are meant.
        weight: how much of a step's credit is harmed: 1/2 where its step term is lost and its outcome still
            counts.

    Returns:
        harm: the share of all steps times the weight; groups: the prompt groups with such a step, most of
            them first;
        worst: the first three with their numbers; count.
    """
    batch = e.table.batch
    hit, size = np.bincount(batch.task, rows), np.bincount(batch.task)
    order = [int(g) for g in np.lexsort((np.arange(len(hit)), -hit / np.maximum(size, 1), -hit)) if hit[g]]
    if unit == "rollouts":
        first = segments.first_rows(batch.trajectory)
        hit, size = np.bincount(batch.task[first], rows[first]), np.bincount(batch.task[first])
        order.sort(key=lambda g: (-hit[g], g))
    worst = [Worst(g, f"{hit[g]:.0f} of {size[g]} {unit} {words}") for g in order[:WORST]]
    found = int(rows.sum()) if count is None else int(count)
    return {"harm": weight * float(rows.mean()), "groups": order, "worst": worst, "count": found}


def alone(e: Evidence, recipe: str) -> Mask:
    """[N] True where the cluster of the recipe's step term holds no other step."""
    return segments.count(_clusters(e, recipe)) == 1


def others(e: Evidence, recipe: str) -> Mask:
    """[N] True where the cluster of the recipe's step term holds a step of another trajectory."""
    return _distinct(_clusters(e, recipe), e.table.batch.trajectory) > 1


def one_action(e: Evidence, recipe: str) -> Mask:
    """[N] True where the cluster holds several steps and all of them took one action."""
    clusters = _clusters(e, recipe)
    return (segments.count(clusters) > 1) & (_distinct(clusters, e.table.batch.action) == 1)


def _clusters(e: Evidence, recipe: str) -> NDArray[np.int64]:
    return segments.compact(next(t for t in e.credits[recipe].terms if t.unit == "step").cluster)


def _distinct(clusters: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """[N] how many distinct labels each row's cluster holds."""
    pairs = segments.first_rows(segments.pair(clusters, labels))
    return np.bincount(clusters[pairs])[clusters]
