"""The one formula: an advantage is a sum of terms, each (Q - V) / scale inside its own clusters.

    A(i) = sum_terms  w * (Q_i - V_i) / scale_i

A term chooses a return, a clustering, a Q, a V and a scale; the published methods are short lists of such choices
(`bipace.core.estimators`). A reader's own method is another list, in the reader's own file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.baselines import Peers, cluster_mean, leave_one_out, never, no_scale, own_return
from bipace.core.steps import Bools, Floats, Ints, StepBatch

__all__ = ["Advantages", "Blend", "Branch", "Outcome", "Recipe", "Term", "advantages"]

Return = Callable[[StepBatch], Floats]
Clustering = Callable[[StepBatch], Ints]
Baseline = Callable[[Peers], Floats]
Fallback = Callable[[Peers], Bools]
Number = TypeVar("Number", np.float64, np.int64)


class Branch(IntEnum):
    """Which rule gave a row its value."""

    LONE = 0
    FALLBACK = 1
    COMPARED = 2


@dataclass(frozen=True)
class Term:
    """w * (Q - V) / scale, evaluated inside clusters.

    Attributes:
        returns: what a row earned: `trajectory_return`, or `return_to_go`.
        clusters: who is compared with whom.
        q: the value credited to the row's action.
        v: the baseline.
        scale: the divisor.
        fallback: rows on which the leave-one-out baseline with the own return replaces Q - V.
        weight: w.
        unit: "step": every row is a member. "trajectory": each trajectory is one member, however long, and the
            value is written to all its rows (long episodes must not weigh more).
        lone: a cluster of one gives "zero", its "raw" return (only for parity with code that does so), or what
            (Q - V) / scale says of it ("compared": for baselines that reach beyond the cluster).
    """

    returns: Return
    clusters: Clustering
    q: Baseline = own_return
    v: Baseline = cluster_mean
    scale: Baseline = no_scale
    fallback: Fallback = never
    weight: float = 1.0
    unit: Literal["step", "trajectory"] = "step"
    lone: Literal["zero", "raw", "compared"] = "zero"


@dataclass(frozen=True)
class Blend:
    """A weighted mean of terms over the terms that have something to say about a row.

    For row i, with K_i the terms whose value is not exactly 0: weight * sum_{k in K_i} w_k a_k / sum_{k in K_i} w_k.
    A row with no such term gets 0 (HGPO's adaptive weighting).
    """

    terms: tuple[Term, ...]
    weights: tuple[float, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if len(self.terms) != len(self.weights) or not self.terms:
            raise ValueError(f"weights: {len(self.weights)} for {len(self.terms)} terms, expected one weight a term")


@dataclass(frozen=True)
class Recipe:
    """A named list of terms.

    Attributes:
        name: how configs and reports call it.
        parts: the terms and blends that are summed.
        penalty: where a step's penalty goes: "own_row" subtracts it from its own row's advantage, after everything
            else, so that an all-fail group with penalties keeps a small signal [our decision]; "in_return" leaves it
            to the recipe's own returns (parity with verl-agent).
    """

    name: str
    parts: tuple[Term | Blend, ...]
    penalty: Literal["own_row", "in_return"] = "own_row"

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms, blends opened."""
        return tuple(t for part in self.parts for t in (part.terms if isinstance(part, Blend) else (part,)))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one term said: its weighted value, clusters, peers and the branch that decided, all [N].

    For a term with unit "trajectory", `peers` and `branch` are still written to every row.
    """

    term: Term
    value: Floats
    peers: Peers
    branch: NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Advantages:
    """Values [N] in row order, and the outcome of every term (for diagnostics and reports)."""

    values: Floats
    outcomes: tuple[Outcome, ...]


def advantages(batch: StepBatch, recipe: Recipe) -> Advantages:
    """Evaluate a recipe on a table of steps.

    The result of a row does not depend on the row order, bit for bit: the table is brought into (task, trajectory, t)
    order first and the values are written back. Rows of an empty table: empty values.

    Args:
        batch: N steps.
        recipe: the terms to sum.

    Returns:
        One value a row: the same advantage for every response token of that step.

    Raises:
        ValueError: what the recipe's parts refuse (missing features, eps out of range, ...), or a part of a user's
            own that returns the wrong shape or a non-finite number.
    """
    order = batch.order()
    ordered = batch.take(order)
    outcomes: list[Outcome] = []
    values = np.zeros(len(batch))
    for part in recipe.parts:
        terms = part.terms if isinstance(part, Blend) else (part,)
        found = [_evaluate(ordered, term) for term in terms]
        values += _blend(part, found) if isinstance(part, Blend) else found[0].value
        outcomes += found
    if batch.penalty is not None and ordered.penalty is not None and recipe.penalty == "own_row":
        values -= ordered.penalty
    back = np.empty(len(batch), np.int64)
    back[order] = np.arange(len(batch))
    return Advantages(values[back], tuple(_rows(outcome, back) for outcome in outcomes))


def _evaluate(batch: StepBatch, term: Term) -> Outcome:
    returns = _checked("returns", term.returns(batch), len(batch))
    cluster = segments.compact(_checked("clusters", term.clusters(batch), len(batch)))
    if term.unit == "step":
        peers = Peers(returns, cluster, batch.action, segments.compact(batch.task))
        value, branch = _value(term, peers)
        return Outcome(term, value, peers, branch)
    trajectory = segments.compact(batch.trajectory)
    first = segments.first_rows(trajectory)
    value, branch = _value(term, Peers(returns[first], segments.compact(cluster[first]), batch.action[first]))
    return Outcome(term, value[trajectory], Peers(returns, cluster, batch.action), branch[trajectory])


def _value(term: Term, peers: Peers) -> tuple[Floats, NDArray[np.int8]]:
    difference = _checked("q", term.q(peers), len(peers.returns)) - _checked("v", term.v(peers), len(peers.returns))
    falls = term.fallback(peers)
    difference = np.where(falls, peers.returns - leave_one_out(peers), difference)
    lone = (peers.n == 1) & (term.lone != "compared")
    value = difference / _checked("scale", term.scale(peers), len(peers.returns))
    value = np.where(lone, peers.returns if term.lone == "raw" else 0.0, value)
    branch = np.where(lone, Branch.LONE, np.where(falls, Branch.FALLBACK, Branch.COMPARED)).astype(np.int8)
    return term.weight * value, branch


def _blend(blend: Blend, outcomes: list[Outcome]) -> Floats:
    values = np.stack([outcome.value for outcome in outcomes])
    weights = np.asarray(blend.weights)[:, None] * (values != 0)
    total = weights.sum(axis=0)
    return blend.weight * (weights * values).sum(axis=0) / np.where(total > 0, total, 1.0)


def _rows(outcome: Outcome, rows: Ints) -> Outcome:
    was = outcome.peers
    group = None if was.group is None else was.group[rows]
    peers = Peers(was.returns[rows], was.cluster[rows], was.action[rows], group)
    return Outcome(outcome.term, outcome.value[rows], peers, outcome.branch[rows])


def _checked(name: str, values: NDArray[Number], n: int) -> NDArray[Number]:
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{name}: shape {values.shape}, expected ({n},): one entry per row")
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: a non-finite number at row {int(np.flatnonzero(~np.isfinite(values))[0])}")
    return values
