"""The published methods as recipes: each a few choices over the same parts.

| recipe | trajectory term | step term |
|---|---|---|
| dr_grpo / grpo | group mean, without / with division by the group's deviation | none |
| rloo | leave-one-out mean | none |
| gigpo | as grpo | same observation: R - cluster mean |
| hgpo | none (`base_group` adds it) | blend over k of: same last k observations |
| bigpo | as grpo | near hidden state: R - cluster mean |
| diff_peer | as grpo | near hidden state: R - mean of the other actions |
| bipace | as grpo | near hidden state: mean of the same action - cluster mean |
| pooled | none | same observation, partial pooling: V shrunk to the group's mean, Q shrunk to V |

Switches that several recipes share:
    mode: "mean_std_norm" divides both levels by their sample deviation + 1e-6 (GiGPO on ALFWorld), "mean_norm"
        divides neither (GiGPO on WebShop).
    w: weight of the step term; 1 in every published run.
    gamma: discount of the return-to-go; 0.95.
    habits: "paper", or "verl_agent" for parity with that public code: trajectory statistics over step rows (long
        episodes weigh more), a lone trajectory keeps its raw return, penalties enter the returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from bipace.core.advantages import Blend, Clustering, Recipe, Term
from bipace.core.baselines import cluster_std, leave_one_out, other_actions_mean, same_action_mean
from bipace.core.calibrate import by_calibrated_features
from bipace.core.clustering import by_features, by_history, by_observation, by_similarity
from bipace.core.greedy import Centroid
from bipace.core.levels import (
    SCALES,
    Eps,
    Fallback,
    Habits,
    Mode,
    Whiten,
    assemble,
    charged,
    local_clusters,
    require_known,
    step_term,
    trajectory_term,
)
from bipace.core.plugins import load_attribute
from bipace.core.pooling import Prior, group_std, pooled_q, pooled_v
from bipace.core.returns import return_to_go

__all__ = [
    "RECIPES",
    "bigpo",
    "bipace",
    "describe",
    "diff_peer",
    "dr_grpo",
    "gigpo",
    "grpo",
    "has_step_term",
    "hgpo",
    "needs_features",
    "pooled",
    "recipe",
    "recipe_options",
    "rloo",
]


def grpo(habits: Habits = "paper") -> Recipe:
    """A(tau) = (R(tau) - mu_p) / (sigma_p + 1e-6), mu and sigma (ddof 1) over the group's trajectories.

    Source: DeepSeekMath, arXiv 2402.03300; BiPACE Eq. 1. A lone trajectory gives 0.
    """
    return assemble("grpo", trajectory_term("mean_std_norm", habits), habits=habits)


def dr_grpo(habits: Habits = "paper") -> Recipe:
    """A(tau) = R(tau) - mu_p. Source: Dr. GRPO, arXiv 2503.20783. A lone trajectory gives 0."""
    return assemble("dr_grpo", trajectory_term("mean_norm", habits), habits=habits)


def rloo(habits: Habits = "paper") -> Recipe:
    """A(tau) = R(tau) - mean of the others = n/(n-1) (R(tau) - mu_p). Source: RLOO, arXiv 2402.14740. Lone: 0."""
    return assemble("rloo", trajectory_term("mean_norm", habits, leave_one_out), habits=habits)


def gigpo(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    similarity: float | None = None,
    habits: Habits = "paper",
) -> Recipe:
    """Trajectory term + w * (R_i - mu_C) / (sigma_C + 1e-6), C = same observation in the prompt group.

    Source: GiGPO, arXiv 2505.10978; BiPACE Eq. 2. A step alone with its observation gives 0 in the second term.
    `similarity` (0.95 in the public code) groups by difflib ratio instead of equality.
    """
    clusters: Clustering = by_observation if similarity is None else partial(by_similarity, ratio=similarity)
    step = step_term(clusters, w=w, gamma=gamma, mode=mode, habits=habits)
    return assemble("gigpo", trajectory_term(mode, habits), step, habits=habits)


def hgpo(
    history: int = 2,
    alpha: float = 1.0,
    weight_offset: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    base_group: bool = False,
    habits: Habits = "paper",
) -> Recipe:
    """Sum over k = 1..history+1 of weights (k + weight_offset)^alpha times (R_i - mu_k) / (sigma_k + 1e-6).

    Level k compares steps whose last k observations are equal. A level that says exactly 0 about a step (nobody to
    compare with, or an equal return) is left out and the weights are normalised over what is left; a step with no
    level left gets 0. sigma is the population deviation (ddof 0). `base_group` adds the trajectory term (`grpo`, or
    `dr_grpo` under mean_norm: whole returns, sample deviation) as one more level, with k = 0. Source: HGPO,
    arXiv 2602.22817 and its public code; the paper counts k from 0: weight_offset = 0.

    Raises:
        ValueError: history below 0; a weight that is no number: a negative base, or 0 to a negative power.
    """
    if history < 0:
        raise ValueError(f"history: {history}, expected >= 0 past observations")
    first = weight_offset + (0 if base_group else 1)
    if first < 0 or (first == 0 and alpha < 0):
        raise ValueError(
            f"weight_offset: {weight_offset} makes the first weight {first}^{alpha}; take a larger one, or alpha >= 0"
        )
    scale = partial(cluster_std, ddof=0) if mode == "mean_std_norm" else SCALES[require_known("mode", mode, SCALES)]
    returns = charged(partial(return_to_go, gamma=gamma), habits)
    levels = {k: Term(returns, partial(by_history, k=k), scale=scale) for k in range(1, history + 2)}
    if base_group:
        levels[0] = trajectory_term(mode, habits)
    weights = tuple(float((k + weight_offset) ** alpha) for k in levels)
    return assemble("hgpo", Blend(tuple(levels.values()), weights), habits=habits)


def bigpo(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    eps: Eps = 0.1,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    habits: Habits = "paper",
) -> Recipe:
    """GiGPO with clusters of hidden states: the state side of BiPACE alone (arXiv 2606.25556). See `by_features`."""
    clusters = local_clusters("features", gamma, eps, centroid, whiten)
    step = step_term(clusters, w=w, gamma=gamma, mode=mode, habits=habits)
    return assemble("bigpo", trajectory_term(mode, habits), step, habits=habits)


def diff_peer(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    eps: Eps = 0.1,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    fallback: Fallback = "no_diff_action",
    clusters: Literal["features", "observation"] = "features",
    habits: Habits = "paper",
) -> Recipe:
    """Trajectory term + w * (R_i - mean of R over the cluster's other actions).

    In a state-homogeneous cluster its expectation is (Q(a) - V) / (1 - pi(a)). Name from arXiv 2606.25556, form
    [our decision]. A step alone gives 0; a cluster with one action falls back to leave-one-out (see `bipace`).
    """
    step = step_term(
        local_clusters(clusters, gamma, eps, centroid, whiten), w=w, gamma=gamma, mode=mode, habits=habits,
        v=other_actions_mean, fallback=fallback,
    )  # fmt: skip
    return assemble("diff_peer", trajectory_term(mode, habits), step, habits=habits)


def bipace(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    eps: Eps = 0.1,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    fallback: Fallback = "no_diff_action",
    clusters: Literal["features", "observation"] = "features",
    habits: Habits = "paper",
) -> Recipe:
    """Trajectory term + w * (Qhat - Vhat): mean return of the same action's peers less the cluster's mean.

    Source: BiPACE_Q, arXiv 2606.25556. Over a cluster the values sum to 0; in a state-homogeneous cluster of n draws
    their expectation is (1 - 1/n) (Q(a) - V). A step alone gives 0.

    Args:
        w: weight of the step term.
        gamma: discount of the return-to-go.
        mode: division by deviations, at both levels. The sources leave the step level open; we follow GiGPO's mode.
        eps: cosine radius of a cluster, or "auto": chosen on the batch without labels (`bipace.core.calibrate`).
        centroid: running mean of the members, or the first member [our decision: mean].
        whiten: leading principal directions removed from the features; 0 in the paper. "auto" (0 or 3) with eps="auto".
        fallback: where leave-one-out, R_i - mean of the other members, takes over: "no_diff_action" (every member
            took one action) [our decision], "no_same_action_peer" (nobody else took i's action), or "never".
        clusters: "features", or "observation" for the action side alone.
        habits: "paper" or "verl_agent".
    """
    step = step_term(
        local_clusters(clusters, gamma, eps, centroid, whiten), w=w, gamma=gamma, mode=mode, habits=habits,
        q=same_action_mean, fallback=fallback,
    )  # fmt: skip
    return assemble("bipace", trajectory_term(mode, habits), step, habits=habits)


def pooled(
    k: Prior = 0.5,
    k_action: Prior = 0.5,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    clusters: Literal["features", "observation"] = "observation",
    eps: Eps = "auto",
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    habits: Habits = "paper",
) -> Recipe:
    """One term with partial pooling: V shrinks to the group's mean, Q shrinks to V, so that nobody is left without.

    V = (sum_C R + k m) / (n + k) with m the mean return-to-go of the prompt group's steps, and
    Q = (sum_{C=} R + k_action V) / (n_a + k_action). A step alone gets k (R - m) / ((1 + k) (1 + k_action)) where the
    other recipes give it 0; k = k_action = 0 is q_style without a fallback. mean_std_norm divides by the prompt group's
    deviation, one number a group, so that clusters with little spread are not blown up. Our own recipe, not the
    paper's; measured in docs/results/credit.md.

    Args:
        k: pseudo-steps at the group's mean; "auto" estimates it from the batch (`bipace.core.pooling`).
        k_action: pseudo-steps at V, or "auto".
        gamma: discount of the return-to-go.
        mode: division by the prompt group's sample deviation of the returns-to-go, or none.
        clusters: "observation", or "features".
        eps: see `bipace`.
        centroid: see `bipace`.
        whiten: see `bipace`.
        habits: "paper" or "verl_agent".
    """
    term = step_term(
        local_clusters(clusters, gamma, eps, centroid, whiten), w=1.0, gamma=gamma, mode="mean_norm", habits=habits,
        q=partial(pooled_q, k=k, k_action=k_action), v=partial(pooled_v, k=k),
    )  # fmt: skip
    scale = group_std if require_known("mode", mode, SCALES) == "mean_std_norm" else term.scale
    return assemble("pooled", replace(term, scale=scale, lone="compared"), habits=habits)


RECIPES: dict[str, Callable[..., Recipe]] = {
    f.__name__: f for f in (grpo, dr_grpo, rloo, gigpo, hgpo, bigpo, diff_peer, bipace, pooled)
}


def recipe(name: str, **options: Any) -> Recipe:
    """A recipe by name, or a user's own from `module:function` or `path/to/file.py:function`.

    Args:
        name: a key of RECIPES, or where to find a function that returns a `Recipe`.
        options: its keyword arguments.

    Raises:
        ValueError: unknown recipe or option, naming the nearest known one; a function that returns no Recipe.
    """
    factory = _factory(name)
    known = recipe_options(name)
    for option in options:
        require_known(f"{name} option", option, known)
    made = factory(**options)
    if not isinstance(made, Recipe):  # pyright: ignore[reportUnnecessaryIsInstance]  (a user's own function)
        raise ValueError(f"recipe {name}: returned {type(made).__name__}, expected a bipace Recipe")
    return made


def recipe_options(name: str) -> list[str]:
    """Names of the options a recipe takes. Raises ValueError for an unknown recipe."""
    return list(inspect.signature(_factory(name)).parameters)


def needs_features(made: Recipe) -> bool:
    """True where a term clusters by features, so that hidden states must be captured."""
    return any(getattr(t.clusters, "func", t.clusters) in (by_features, by_calibrated_features) for t in made.terms)


def has_step_term(made: Recipe) -> bool:
    """True where some term compares steps rather than trajectories."""
    return any(t.unit == "step" for t in made.terms)


def describe(made: Recipe) -> dict[str, Any]:
    """A recipe as JSON: every term with the names and options of its parts."""

    def part(function: Any) -> Any:
        if isinstance(function, partial):
            options = {k: part(v) if callable(v) else v for k, v in function.keywords.items()}
            return {"name": function.func.__name__, **options}
        return {"name": getattr(function, "__name__", type(function).__name__)}

    def term(t: Term) -> dict[str, Any]:
        parts = {k: part(getattr(t, k)) for k in ("returns", "clusters", "q", "v", "scale", "fallback")}
        return {**parts, "weight": t.weight, "unit": t.unit, "lone": t.lone}

    parts = [
        {"blend": [term(t) for t in p.terms], "weights": p.weights, "weight": p.weight}
        if isinstance(p, Blend)
        else term(p)
        for p in made.parts
    ]
    return {"name": made.name, "terms": parts, "penalty": made.penalty}


def _factory(name: str) -> Callable[..., Any]:
    own = ":" in name
    factory = load_attribute(name, f"recipe {name!r}") if own else RECIPES[require_known("recipe", name, RECIPES)]
    if not callable(factory):
        raise ValueError(f"recipe {name!r}: is a {type(factory).__name__}, expected a function that returns a Recipe")
    return factory
