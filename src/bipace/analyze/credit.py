"""Every recipe's advantages on the table, with the arithmetic behind each number: R, Q, V, scale and branch.

Nothing is computed twice: `bipace.core.advantages` gives the values, and the same term functions on the same peers give
the Q and V that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bipace.core import segments
from bipace.core.advantages import Advantages, Blend, Outcome, Recipe, Term, advantages
from bipace.core.baselines import Peers, leave_one_out
from bipace.core.clustering import by_features, by_history
from bipace.core.diagnostics import cluster_diagnostics, term_diagnostics
from bipace.core.estimators import RECIPES, recipe
from bipace.core.steps import Floats, Ints, StepBatch

__all__ = [
    "BY_FEATURES",
    "Arithmetic",
    "Credit",
    "agreement",
    "arithmetic",
    "credit_of",
    "feature_clusters",
    "recipe_options",
]

BY_FEATURES = ("bigpo", "diff_peer", "bipace")
# Above this the [n, n] matrix of inner products of one prompt group costs more memory than it saves time.
GRAM_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """One term, row by row: value = weight * (q - v) / scale, or 0 for a lone row.

    Attributes:
        name: what the term compares, in words.
        unit: "trajectory" or "step".
        weight: w.
        returns: [N] R.
        q: [N].
        v: [N].
        scale: [N].
        branch: [N] 0 lone, 1 leave-one-out fallback, 2 compared.
        value: [N].
        cluster: [N] labels.
    """

    name: str
    unit: str
    weight: float
    returns: Floats
    q: Floats
    v: Floats
    scale: Floats
    branch: Ints
    value: Floats
    cluster: Ints


@dataclass(frozen=True, eq=False)
class Credit:
    """A recipe's advantages [N], the diagnostics of its last step term, and the arithmetic of each term."""

    recipe: Recipe
    values: Floats
    diagnostics: dict[str, float]
    terms: tuple[Arithmetic, ...]


def recipe_options(name: str, gamma: float, w: float, mode: str, eps: float) -> dict[str, object]:
    """The options out of these that the recipe takes."""
    import inspect

    given = {"gamma": gamma, "w": w, "mode": mode, "eps": eps}
    known = inspect.signature(RECIPES[name]).parameters
    return {key: value for key, value in given.items() if key in known}


def feature_clusters(batch: StepBatch, eps: float) -> Ints:
    """`by_features` labels of one radius, computed once for the three recipes that share them."""
    largest = int(segments.count(segments.compact(batch.task)).max())
    return by_features(batch, eps, form="gram" if largest <= GRAM_ROWS else "plain")


def credit_of(batch: StepBatch, name: str, options: dict[str, object], labels: Ints | None = None) -> Credit:
    """Evaluate one recipe.

    Args:
        batch: N steps in (task, trajectory, t) order.
        name: a key of RECIPES.
        options: its options.
        labels: clusters by features, from `feature_clusters`; the recipe's own clustering where None.
    """
    made = recipe(name, **options)
    found = advantages(batch, made if labels is None else _with_labels(made, labels))
    steps = [outcome for outcome in found.outcomes if outcome.term.unit == "step"]
    numbers = {"zero_advantage_share": float((found.values == 0).mean())}
    for outcome in steps[:1]:
        numbers |= cluster_diagnostics(batch, outcome) | term_diagnostics(outcome)
    return Credit(made, found.values, numbers, _terms(batch, made, found))


def arithmetic(batch: StepBatch, outcome: Outcome, name: str) -> Arithmetic:
    """What a term's value was made of, per row.

    For a term whose unit is the trajectory, each trajectory is one member, as in `advantages`.
    """
    term = outcome.term
    peers, back = outcome.peers, np.arange(len(batch))
    if term.unit == "trajectory":
        back = segments.compact(batch.trajectory)
        first = segments.first_rows(back)
        peers = Peers(peers.returns[first], segments.compact(peers.cluster[first]), peers.action[first])
    falls = term.fallback(peers)
    q = np.where(falls, peers.returns, term.q(peers))
    v = np.where(falls, leave_one_out(peers), term.v(peers))
    return Arithmetic(
        name=name,
        unit=term.unit,
        weight=term.weight,
        returns=peers.returns[back],
        q=q[back],
        v=v[back],
        scale=np.asarray(term.scale(peers), np.float64)[back],
        branch=outcome.branch.astype(np.int64),
        value=outcome.value,
        cluster=outcome.peers.cluster,
    )


def _with_labels(made: Recipe, labels: Ints) -> Recipe:
    """The recipe with its clustering by features replaced by its result; the table must be in visit order."""

    def swap(term: Term) -> Term:
        by = getattr(term.clusters, "func", None)
        return replace(term, clusters=lambda _batch: labels) if by is by_features else term

    parts = tuple(p if isinstance(p, Blend) else swap(p) for p in made.parts)
    return replace(made, parts=parts)


def _terms(batch: StepBatch, made: Recipe, found: Advantages) -> tuple[Arithmetic, ...]:
    names = [_name(term) for term in made.terms]
    return tuple(arithmetic(batch, outcome, name) for outcome, name in zip(found.outcomes, names, strict=True))


def _name(term: Term) -> str:
    if term.unit == "trajectory":
        return "trajectory: whole returns of the prompt group"
    clusters = term.clusters
    options: dict[str, object] = getattr(clusters, "keywords", {})
    function = getattr(clusters, "func", clusters)
    if function is by_features:
        return f"step: features within eps = {options['eps']}"
    if function is by_history:
        return f"step: same last {options['k']} observations"
    return "step: same observation"


def agreement(credits: Sequence[Credit]) -> tuple[list[list[float | None]], list[list[float | None]]]:
    """Pearson correlation of advantages, and share of steps with one sign among those where both are not 0.

    None where a recipe is constant, or no step has two non-zero values.
    """
    values = [credit.values for credit in credits]
    correlation = [[_correlation(a, b) for b in values] for a in values]
    sign = [[_same_sign(a, b) for b in values] for a in values]
    return correlation, sign


def _correlation(a: Floats, b: Floats) -> float | None:
    if not len(a) or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _same_sign(a: Floats, b: Floats) -> float | None:
    both = (a != 0) & (b != 0)
    return float((np.sign(a[both]) == np.sign(b[both])).mean()) if both.any() else None
