# long: every public part carries an example that a test runs; without them it is under 300 lines.
"""The one formula: an advantage is a sum of terms, each (Q - V) / scale inside its own clusters.

    A(i) = sum_terms  w * (Q_i - V_i) / scale_i

A term chooses a return, a clustering, a Q, a V and a scale; the published methods are short lists of such
choices (`bipace.core.estimators`). A reader's own method is another list, in the reader's own file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.baselines import Peers, cluster_mean, leave_one_out, never, no_scale, own_return
from bipace.core.clustering import Clustering
from bipace.core.parts import needs_of, part_name
from bipace.core.returns import Return
from bipace.core.steps import Bools, Floats, Ints, StepBatch

__all__ = ["Advantages", "Blend", "Branch", "Outcome", "Recipe", "Term", "advantages"]

Baseline = Callable[[Peers], Floats]
Fallback = Callable[[Peers], Bools]
Number = TypeVar("Number", np.float64, np.int64)


class Branch(IntEnum):
    """Which rule gave a row its value.

    Examples:
        >>> from bipace import Branch
        >>> [branch.name for branch in Branch]
        ['LONE', 'FALLBACK', 'COMPARED']
    """

    LONE = 0
    FALLBACK = 1
    COMPARED = 2


@dataclass(frozen=True)
class Term:
    """w * (Q - V) / scale, evaluated inside clusters.

    Attributes:
        returns: what a row earned: `trajectory_return`, or `return_to_go`.
        clusters: who is compared with whom: [N] labels, or [N, L] labels of nested clusters, widest first, of
            which the last column is compared and the others are there for baselines that use them.
        q: the value credited to the row's action.
        v: the baseline.
        scale: the divisor.
        fallback: rows on which the leave-one-out baseline with the own return replaces Q - V.
        weight: w.
        unit: "step": every row is a member. "trajectory": each trajectory is one member, however long, and
            the value is written to all its rows (long episodes must not weigh more).
        lone: a cluster of one gives "zero", its "raw" return (only for parity with code that does so), or
            what (Q - V) / scale says of it ("compared": for baselines that reach beyond the cluster).
        alone: a cluster counts as one of one where it holds one "step", or steps of one "trajectory" (for
            baselines that leave the step's own trajectory out).

    Raises:
        ValueError: an unknown word; a weight that is not finite.

    Examples:
        >>> from bipace import Term
        >>> from bipace.core.baselines import leave_one_out
        >>> from bipace.core.clustering import by_observation
        >>> from bipace.core.returns import ReturnToGo
        >>> Term(ReturnToGo(0.9), by_observation, v=leave_one_out).needs
        frozenset()
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
    alone: Literal["step", "trajectory"] = "step"

    def __repr__(self) -> str:
        q, v, scale, clusters, returns = map(
            part_name, (self.q, self.v, self.scale, self.clusters, self.returns)
        )
        return f"<Term of a {self.unit}: {self.weight:g} ({q} - {v}) / {scale}, {returns} in {clusters}>"

    def __post_init__(self) -> None:
        _check_word("unit", self.unit, ("step", "trajectory"))
        _check_word("lone", self.lone, ("zero", "raw", "compared"))
        _check_word("alone", self.alone, ("step", "trajectory"))
        _check_finite("weight", self.weight)

    @property
    def needs(self) -> frozenset[str]:
        """Optional columns of the table that the term's parts declare."""
        parts = (self.returns, self.clusters, self.q, self.v, self.scale, self.fallback)
        return frozenset[str]().union(*map(needs_of, parts))


@dataclass(frozen=True)
class Blend:
    """A weighted mean of terms over the terms that have something to say about a row.

    For row i, with K_i the terms whose value is not exactly 0: weight * sum_{k in K_i} w_k a_k / sum_{k in
    K_i} w_k. A row with no such term gets 0 (HGPO's adaptive weighting).

    Examples:
        >>> from bipace import Blend, Term
        >>> from bipace.core.clustering import ByHistory
        >>> from bipace.core.returns import return_to_go
        >>> levels = tuple(Term(return_to_go, ByHistory(k)) for k in (1, 2))
        >>> Blend(levels, weights=(1.0, 2.0)).weights
        (1.0, 2.0)
    """

    terms: tuple[Term, ...]
    weights: tuple[float, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if len(self.terms) != len(self.weights) or not self.terms:
            raise ValueError(
                f"weights: {len(self.weights)} for {len(self.terms)} terms, expected one weight a term"
            )
        for weight in (*self.weights, self.weight):
            _check_finite("weights", weight)


@dataclass(frozen=True)
class Recipe:
    """A named list of terms.

    Attributes:
        name: how configs and reports call it.
        parts: the terms and blends that are summed.
        penalty: where a step's penalty goes: "own_row" subtracts it from its own row's advantage, after
            everything else, so that an all-fail group with penalties keeps a small signal [our decision];
            "in_return" leaves it to the recipe's own returns (parity with verl-agent).

    Examples:
        >>> import bipace
        >>> from bipace.core.baselines import leave_one_out
        >>> from bipace.core.clustering import by_observation
        >>> from bipace.core.returns import return_to_go
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> mine = bipace.Recipe("mine", (bipace.Term(return_to_go, by_observation, v=leave_one_out),))
        >>> bipace.advantages(batch, mine).values.round(2).tolist()
        [0.95, 1.0, -0.95, -1.0]
        >>> mine.compares_steps, sorted(mine.needs)
        (True, [])
    """

    name: str
    parts: tuple[Term | Blend, ...]
    penalty: Literal["own_row", "in_return"] = "own_row"

    def __repr__(self) -> str:
        count = len(self.terms)
        return (
            f"<Recipe {self.name!r} of {count} term{'s' * (count != 1)}; bipace.describe(it) names the parts>"
        )

    def __post_init__(self) -> None:
        _check_word("penalty", self.penalty, ("own_row", "in_return"))

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms, blends opened."""
        return tuple(t for part in self.parts for t in (part.terms if isinstance(part, Blend) else (part,)))

    @property
    def needs(self) -> frozenset[str]:
        """Optional columns of the table that some part declares: "features", "texts"."""
        return frozenset[str]().union(*(term.needs for term in self.terms))

    @property
    def compares_steps(self) -> bool:
        """True where some term compares steps rather than trajectories."""
        return any(term.unit == "step" for term in self.terms)

    def map(self, change: Callable[[Term], Term]) -> Recipe:
        """The recipe with every term, those inside blends too, replaced by what `change` makes of it."""
        parts = tuple(
            replace(part, terms=tuple(map(change, part.terms))) if isinstance(part, Blend) else change(part)
            for part in self.parts
        )
        return replace(self, parts=parts)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one term said of every row, all [N]: value = weight * (q - v) / scale, unless the branch is LONE.

    For a term with unit "trajectory" everything is written to all rows of the trajectory, and `peers` holds
    step rows.

    Attributes:
        term: the choices.
        value: the weighted value.
        peers: returns, clusters and actions.
        branch: the rule that decided.
        q: the value credited to the action; on the fallback branch the own return.
        v: the baseline; on the fallback branch the mean of the others.
        scale: the divisor.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> found = bipace.advantages(batch, bipace.recipe("gigpo"))
        >>> step = found.outcomes[1]
        >>> step.q.round(2).tolist(), step.v.round(3).tolist()
        ([0.95, 1.0, 0.0, 0.0], [0.475, 0.5, 0.475, 0.5])
    """

    term: Term
    value: Floats
    peers: Peers
    branch: NDArray[np.int8]
    q: Floats
    v: Floats
    scale: Floats

    def __repr__(self) -> str:
        counts = np.bincount(self.branch, minlength=len(Branch))
        said = ", ".join(f"{counts[branch]} {branch.name.lower()}" for branch in Branch)
        return f"<Outcome of a {self.term.unit} term: {len(self.value)} rows, {said}>"


@dataclass(frozen=True, eq=False)
class Advantages:
    """Values [N] in row order, and the outcome of every term (for diagnostics and reports).

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> found = bipace.advantages(batch, bipace.recipe("gigpo"))
        >>> found.values.shape, len(found.outcomes)
        ((4,), 2)
    """

    values: Floats
    outcomes: tuple[Outcome, ...]

    def __repr__(self) -> str:
        span = f" from {self.values.min():.3g} to {self.values.max():.3g}" if len(self.values) else ""
        return f"<Advantages: {len(self.values)} values{span}, {len(self.outcomes)} terms>"


def advantages(batch: StepBatch, recipe: Recipe) -> Advantages:
    """Evaluate a recipe on a table of steps.

    The result of a row does not depend on the row order, bit for bit: the table is brought into (task,
    trajectory, t) order first and the values are written back. Rows of an empty table: empty values.

    Args:
        batch: N steps.
        recipe: the terms to sum.

    Returns:
        One value a row: the same advantage for every response token of that step.

    Raises:
        ValueError: what the recipe's parts refuse (missing features, eps out of range, ...), a part of a
            user's own that returns the wrong shape or a non-finite number, a scale of 0, or a value that is
            not finite.
        TypeError: something else than a table, or than a recipe; the message says how to come by one.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("rloo")).values.tolist()
        [1.0, 1.0, -1.0, -1.0]
    """
    _check_arguments(batch, recipe)
    order = batch.order()
    ordered = batch.take(order)
    outcomes: list[Outcome] = []
    values = np.zeros(len(batch))
    for part in recipe.parts:
        terms = part.terms if isinstance(part, Blend) else (part,)
        said = [_evaluate(ordered, term) for term in terms]
        values += _blend(part, said) if isinstance(part, Blend) else said[0].value
        outcomes += said
    if batch.penalty is not None and ordered.penalty is not None and recipe.penalty == "own_row":
        values -= ordered.penalty
    if not np.isfinite(values).all():
        raise ValueError(f"recipe {recipe.name}: its values overflow; rewards or weights are too large")
    back = np.empty(len(batch), np.int64)
    back[order] = np.arange(len(batch))
    return Advantages(values[back], tuple(_rows(outcome, back) for outcome in outcomes))


def _check_arguments(batch: Any, recipe: Any) -> None:
    if not isinstance(batch, StepBatch):
        held = isinstance(getattr(batch, "batch", None), StepBatch)  # Rows, which knows this module
        way_out = "give its table, rows.batch" if held else "bipace.build_batch(...).batch is one"
        raise TypeError(f"batch: a {type(batch).__name__}, expected a bipace.StepBatch; {way_out}")
    if not isinstance(recipe, Recipe):
        way_out = f"bipace.recipe({recipe!r})" if isinstance(recipe, str) else "bipace.recipe('gigpo')"
        raise TypeError(f"recipe: a {type(recipe).__name__}, expected a bipace.Recipe; give {way_out}")


def _evaluate(batch: StepBatch, term: Term) -> Outcome:
    n = len(batch)
    returns = _checked("returns", term.returns, term.returns(batch), n)
    labels: Ints = np.asarray(term.clusters(batch))
    levels = None if labels.ndim != 2 or not labels.shape[1] else labels
    finest = labels if levels is None else levels[:, -1]
    cluster = segments.compact(_checked("clusters", term.clusters, finest, n))
    trajectory = segments.compact(batch.trajectory)
    if term.unit == "step":
        nested = None if levels is None else _compact_levels(levels)
        peers = Peers(returns, cluster, batch.action, segments.compact(batch.task), trajectory, nested)
        return _compare(term, peers)
    first = segments.first_rows(trajectory)
    said = _compare(term, Peers(returns[first], segments.compact(cluster[first]), batch.action[first]))
    every = _rows(said, trajectory)
    return replace(every, peers=Peers(returns, cluster, batch.action))


def _compact_levels(levels: Ints) -> Ints:
    return np.stack([segments.compact(levels[:, level]) for level in range(levels.shape[1])], axis=1)


def _compare(term: Term, peers: Peers) -> Outcome:
    n = len(peers.returns)
    falls = term.fallback(peers)
    q = np.where(falls, peers.returns, _checked("q", term.q, term.q(peers), n))
    v = np.where(falls, leave_one_out(peers), _checked("v", term.v, term.v(peers), n))
    scale = _checked("scale", term.scale, term.scale(peers), n).astype(np.float64)
    if (scale == 0).any():
        raise ValueError(
            f"scale: {part_name(term.scale)} gives 0 at row {int(np.argmin(np.abs(scale)))}; add a delta"
        )
    single = peers.n == 1 if term.alone == "step" else peers.n_trajectories == 1
    lone = single & (term.lone != "compared")
    value = np.where(lone, peers.returns if term.lone == "raw" else 0.0, (q - v) / scale)
    branch = np.where(lone, Branch.LONE, np.where(falls, Branch.FALLBACK, Branch.COMPARED)).astype(np.int8)
    return Outcome(term, term.weight * value, peers, branch, q, v, scale)


def _blend(blend: Blend, outcomes: list[Outcome]) -> Floats:
    values = np.stack([outcome.value for outcome in outcomes])
    weights = np.asarray(blend.weights)[:, None] * (values != 0)
    total = weights.sum(axis=0)
    return blend.weight * (weights * values).sum(axis=0) / np.where(total > 0, total, 1.0)


def _rows(outcome: Outcome, rows: Ints) -> Outcome:
    """The outcome of the given rows, peers included."""
    columns = {name: getattr(outcome, name)[rows] for name in ("value", "branch", "q", "v", "scale")}
    return replace(outcome, peers=outcome.peers.take(rows), **columns)


def _checked(name: str, part: Callable[..., Any], values: NDArray[Number], n: int) -> NDArray[Number]:
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(
            f"{name}: {part_name(part)} gives shape {values.shape}, expected ({n},): one entry per row"
        )
    if not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"{name}: {part_name(part)} gives {values[bad]} at row {bad}; must be finite")
    return values


def _check_word(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}: unknown {value!r}, expected one of {', '.join(known)}")


def _check_finite(name: str, value: float) -> None:
    if not np.isfinite(value):
        raise ValueError(f"{name}: {value}, expected a finite number")
