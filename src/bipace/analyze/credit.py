"""Every recipe's advantages on the table, with the arithmetic behind each number: R, Q, V, scale and branch.

Nothing is computed twice: `bipace.core.advantages` gives the values, and with them the Q, V and scale of
every term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bipace.core import segments
from bipace.core.advantages import Outcome, Recipe, Term, advantages
from bipace.core.clustering import by_features
from bipace.core.diagnostics import cluster_diagnostics, term_diagnostics
from bipace.core.estimators import RECIPES, recipe, recipe_options
from bipace.core.parts import describe_part, needs_of
from bipace.core.steps import Floats, Ints, StepBatch

__all__ = [
    "BY_FEATURES",
    "Arithmetic",
    "Credit",
    "agreement",
    "arithmetic",
    "credit_of",
    "feature_clusters",
    "options_of",
    "own_credit",
]

BY_FEATURES = tuple(n for n in RECIPES if "features" in recipe(n).needs and "eps" in recipe_options(n))
"""Recipes with one radius over features: the page's sweep computes their clusters once a radius."""
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
    """A recipe's advantages [N], diagnostics of its last step term, arithmetic of each term, its summary."""

    recipe: Recipe
    values: Floats
    diagnostics: dict[str, float]
    terms: tuple[Arithmetic, ...]
    summary: str = ""


def options_of(name: str, gamma: float, w: float, mode: str | None, eps: float) -> dict[str, object]:
    """The options out of these that the recipe takes."""
    given = {"gamma": gamma, "w": w, "mode": mode, "eps": eps}
    known = recipe_options(name)
    return {key: value for key, value in given.items() if key in known and value is not None}


def own_credit(
    batch: StepBatch, where: str, gamma: float, w: float, mode: str | None, eps: float
) -> dict[str, Credit]:
    """A recipe of one's own, `file.py:name` or `module:name`, under its name.

    Raises:
        ValueError: nothing there, or no recipe; the message of the recipe's own code is passed on.
    """
    name = where.rpartition(":")[2]
    try:
        return {
            where if name in RECIPES else name: credit_of(
                batch, where, options_of(where, gamma, w, mode, eps)
            )
        }
    except (ValueError, ImportError):
        raise
    except Exception as error:  # the user's own code may raise anything; it must not read as a fault of ours
        raise ValueError(f"--recipe {where}: it raised {type(error).__name__}: {error}") from error


def feature_clusters(batch: StepBatch, eps: float) -> Ints:
    """`by_features` labels of one radius, computed once for all recipes of `BY_FEATURES`."""
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
    words = [arithmetic(outcome) for outcome in found.outcomes]
    if labels is not None:
        named = zip(words, made.terms, strict=True)
        words = [replace(said, name=_in_words(term)) for said, term in named]
    steps = [outcome for outcome in found.outcomes if outcome.term.unit == "step"]
    numbers = {"zero_advantage_share": float((found.values == 0).mean())}
    for outcome in steps[:1]:
        numbers |= cluster_diagnostics(batch, outcome) | term_diagnostics(outcome)
    return Credit(made, found.values, numbers, tuple(words), _summary(name))


def _summary(name: str) -> str:
    """The first line of what a shipped recipe's docstring says.

    A recipe of one's own is where it was found.
    """
    known = RECIPES.get(name)
    return (known.__doc__ or "").strip().splitlines()[0] if known is not None else f"your own, {name}"


def arithmetic(outcome: Outcome) -> Arithmetic:
    """What a term's value was made of, per row."""
    return Arithmetic(
        name=_in_words(outcome.term),
        unit=outcome.term.unit,
        weight=outcome.term.weight,
        returns=outcome.peers.returns,
        q=outcome.q,
        v=outcome.v,
        scale=outcome.scale,
        branch=outcome.branch.astype(np.int64),
        value=outcome.value,
        cluster=outcome.peers.cluster,
    )


def _with_labels(made: Recipe, labels: Ints) -> Recipe:
    """The recipe with its clustering by features replaced by its result; the table must be in visit order."""

    def swap(term: Term) -> Term:
        return (
            replace(term, clusters=lambda _batch: labels) if "features" in needs_of(term.clusters) else term
        )

    return made.map(swap)


def _in_words(term: Term) -> str:
    if term.unit == "trajectory":
        return "trajectory: whole returns of the prompt group"
    part = describe_part(term.clusters)
    words = {
        "by_features": "step: features within eps = {eps}",
        "by_ngrams": "step: texts within eps = {eps} by their n-grams",
        "by_history": "step: same last {k} observations",
        "by_observation": "step: same observation",
    }
    return str(words.get(part["name"], "step: " + part["name"].replace("_", " "))).format(**part)


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
