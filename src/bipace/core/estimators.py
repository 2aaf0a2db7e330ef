"""The published methods as recipes: each a few choices over the same parts.

| recipe | trajectory term | step term |
|---|---|---|
| dr_grpo / grpo | group mean, without / with division by the group's deviation | none |
| rloo | leave-one-out mean | none |
| gigpo | as grpo | same observation: (R - cluster mean) / deviation |
| hgpo | none (`base_group` adds it) | blend over k of: same last k observations |
| bigpo | as grpo | near hidden state: (R - cluster mean) / deviation |
| diff_peer | as grpo | near hidden state: R - mean of the other actions |
| bipace | as grpo | near hidden state: mean of the same action - cluster mean |
| pooled | none | same observation, partial pooling: V shrunk to the group's mean, Q shrunk to V |
| multiscale | none (`trajectory` adds it) | nested clusters of hidden states, values shrunk from wide to narrow |

Switches that several recipes share:
    mode: verl-agent's one switch for both terms: "mean_std_norm" divides both by their sample deviation + 1e-6 (its
        ALFWorld), "mean_norm" neither (its WebShop). None: each term has the recipe's own default.
    trajectory_mode, step_mode: the same words for one term. The sources write BiPACE's trajectory term with the
        division (Eq. 1) and its step term, Qhat - Vhat, without; GiGPO divides both (Eq. 2), and so does the state
        side alone, which changes the partition and nothing else.
    w: weight of the step term; 1 in every published run.
    gamma: discount of the return-to-go; 0.95.
    leave_out: "trajectory" takes the mean of the other trajectories' steps as the step term's V.
    convention: "paper", or "verl_agent" for parity with that public code: trajectory statistics over step rows (long
        episodes weigh more), a lone trajectory keeps its raw return, penalties enter the returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from bipace.core.advantages import Blend, Recipe, Term
from bipace.core.baselines import cluster_std, leave_one_out, other_actions_mean, same_action_mean
from bipace.core.clustering import ByHistory, BySimilarity, Clustering, by_observation
from bipace.core.greedy import Centroid
from bipace.core.multiscale import ByNestedFeatures, Chain, NestedQ, NestedV
from bipace.core.parts import describe_part
from bipace.core.plugins import load_attribute
from bipace.core.pooling import Prior, group_std, pooled_q, pooled_v
from bipace.core.returns import ReturnToGo
from bipace.core.terms import (
    SCALES,
    Clusters,
    Convention,
    Eps,
    Fallback,
    LeaveOut,
    Mode,
    Whiten,
    assemble,
    charged,
    local_clusters,
    modes,
    renamed,
    require_known,
    step_term,
    trajectory_term,
)

__all__ = [
    "RECIPES",
    "bigpo",
    "bipace",
    "describe",
    "diff_peer",
    "dr_grpo",
    "gigpo",
    "grpo",
    "hgpo",
    "multiscale",
    "pooled",
    "recipe",
    "recipe_options",
    "rloo",
]

_BOTH: tuple[Mode, Mode] = ("mean_std_norm", "mean_std_norm")
_TRAJECTORY: tuple[Mode, Mode] = ("mean_std_norm", "mean_norm")


def grpo(convention: Convention = "paper", delta: float = 1e-6) -> Recipe:
    """A(tau) = (R(tau) - mu_p) / (sigma_p + delta), mu and sigma (ddof 1) over the group's trajectories.

    Source: DeepSeekMath, arXiv 2402.03300; BiPACE Eq. 1. A lone trajectory gives 0. TRL's delta is 1e-4.

    Raises:
        ValueError: delta not above 0: a group of equal returns would be divided by nothing.
    """
    if not delta > 0:
        raise ValueError(f"delta: {delta}, expected a number above 0")
    term = replace(trajectory_term("mean_std_norm", convention), scale=partial(cluster_std, delta=delta))
    return assemble("grpo", term, convention=convention)


def dr_grpo(convention: Convention = "paper") -> Recipe:
    """A(tau) = R(tau) - mu_p. Source: Dr. GRPO, arXiv 2503.20783. A lone trajectory gives 0."""
    return assemble("dr_grpo", trajectory_term("mean_norm", convention), convention=convention)


def rloo(convention: Convention = "paper") -> Recipe:
    """A(tau) = R(tau) - mean of the others = n/(n-1) (R(tau) - mu_p). Source: RLOO, arXiv 2402.14740. Lone: 0."""
    return assemble("rloo", trajectory_term("mean_norm", convention, leave_one_out), convention=convention)


def gigpo(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode | None = None,
    trajectory_mode: Mode | None = None,
    step_mode: Mode | None = None,
    similarity: float | None = None,
    leave_out: LeaveOut = "nothing",
    convention: Convention = "paper",
) -> Recipe:
    """Trajectory term + w * (R_i - mu_C) / (sigma_C + 1e-6), C = same observation in the prompt group.

    Source: GiGPO, arXiv 2505.10978; BiPACE Eq. 2. Both terms are divided by default. A step alone with its
    observation gives 0 in the second term. `similarity` (0.95 in the public code) groups by difflib ratio instead of
    equality.
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=_BOTH)
    clusters: Clustering = by_observation if similarity is None else BySimilarity(similarity)
    step = step_term(clusters, w=w, gamma=gamma, mode=local, convention=convention, leave_out=leave_out)
    return assemble("gigpo", trajectory_term(episode, convention), step, convention=convention)


def hgpo(
    history: int = 2,
    alpha: float = 1.0,
    weight_offset: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    base_group: bool = False,
    convention: Convention = "paper",
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
    returns = charged(ReturnToGo(gamma), convention)
    levels = {k: Term(returns, ByHistory(k), scale=scale) for k in range(1, history + 2)}
    if base_group:
        levels[0] = trajectory_term(mode, convention)
    weights = tuple(float((k + weight_offset) ** alpha) for k in levels)
    return assemble("hgpo", Blend(tuple(levels.values()), weights), convention=convention)


def bigpo(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode | None = None,
    trajectory_mode: Mode | None = None,
    step_mode: Mode | None = None,
    eps: Eps = 0.05,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    leave_out: LeaveOut = "nothing",
    clusters: Clusters = "features",
    convention: Convention = "paper",
) -> Recipe:
    """GiGPO with clusters of hidden states: the state side of BiPACE alone (arXiv 2606.25556). See `by_features`.

    The partition is all that changes, so both terms are divided as GiGPO's are.
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=_BOTH)
    near = local_clusters(clusters, gamma, eps, centroid, whiten)
    step = step_term(near, w=w, gamma=gamma, mode=local, convention=convention, leave_out=leave_out)
    return assemble("bigpo", trajectory_term(episode, convention), step, convention=convention)


def diff_peer(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode | None = None,
    trajectory_mode: Mode | None = None,
    step_mode: Mode | None = None,
    eps: Eps = 0.05,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    fallback: Fallback = "no_same_action_peer",
    clusters: Clusters = "features",
    convention: Convention = "paper",
) -> Recipe:
    """Trajectory term + w * (R_i - mean of R over the cluster's other actions); the step term is not divided.

    In a state-homogeneous cluster its expectation is (Q(a) - V) / (1 - pi(a)). Name from arXiv 2606.25556, form
    [our decision]. A step alone gives 0, and so does a cluster with one action: there is nobody on the other side.
    fallback="no_diff_action" takes leave-one-out there. ("no_same_action_peer" changes nothing here: where nobody else
    took i's action, the others are the other actions.)
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=_TRAJECTORY)
    step = step_term(
        local_clusters(clusters, gamma, eps, centroid, whiten), w=w, gamma=gamma, mode=local, convention=convention,
        v=other_actions_mean, fallback=fallback,
    )  # fmt: skip
    return assemble("diff_peer", trajectory_term(episode, convention), step, convention=convention)


def bipace(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode | None = None,
    trajectory_mode: Mode | None = None,
    step_mode: Mode | None = None,
    eps: Eps = 0.05,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    fallback: Fallback = "no_same_action_peer",
    clusters: Clusters = "features",
    leave_out: LeaveOut = "nothing",
    convention: Convention = "paper",
) -> Recipe:
    """(R(tau) - mu_p) / (sigma_p + 1e-6) + w * (Qhat - Vhat): the same action's mean less the cluster's mean.

    Source: BiPACE_Q, arXiv 2606.25556: Eq. 1, divided, plus a step term that recentres and is not divided. In a
    state-homogeneous cluster of n draws the expectation of Qhat - Vhat is (1 - 1/n) (Q(a) - V); its values sum to 0
    over a cluster with fallback="never". A step alone gives 0. Where nobody else took the step's action Qhat would be
    its own return, and leave-one-out, R_i - mean of the other members, takes over, so that the expectation at the
    defaults is (Q(a) - V) (1 - 1/n + (1 - pi(a))^(n-2) / n); a cluster with one action gives 0: nothing to compare.

    Args:
        w: weight of the step term.
        gamma: discount of the return-to-go.
        mode: both terms at once, as verl-agent has it; see the module.
        trajectory_mode: "mean_std_norm" where None.
        step_mode: "mean_norm" where None. "mean_std_norm" with fallback="no_diff_action" is what earlier releases did.
        eps: cosine radius of a cluster; "auto": chosen on the batch without labels (`bipace.core.calibrate`);
            "calibrate": chosen once, with the layer, from a run's first rollouts (`bipace.core.scan`). The paper has
            0.05 at layer -12 of a 1.5B model and 0.10 at layer -8 of a 7B model.
        centroid: running mean of the members, or the first member [our decision: mean].
        whiten: leading principal directions removed from the features; 0 in the paper. "auto" (0 or 3) with eps="auto".
        fallback: where leave-one-out takes over: "no_same_action_peer" (nobody else took i's action),
            "no_diff_action" (every member took one action), or "never".
        clusters: "features"; "observation" for the action side alone; the controls "ngrams" and "chance"
            (`bipace.core.terms.local_clusters`).
        leave_out: "trajectory": V is the mean over the other trajectories' members.
        convention: "paper" or "verl_agent".
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=_TRAJECTORY)
    step = step_term(
        local_clusters(clusters, gamma, eps, centroid, whiten), w=w, gamma=gamma, mode=local, convention=convention,
        q=same_action_mean, fallback=fallback, leave_out=leave_out,
    )  # fmt: skip
    return assemble("bipace", trajectory_term(episode, convention), step, convention=convention)


def pooled(
    k: Prior = 0.5,
    k_action: Prior = 0.5,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    clusters: Clusters = "observation",
    eps: Eps = "auto",
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    convention: Convention = "paper",
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
        convention: "paper" or "verl_agent".
    """
    near = local_clusters(clusters, gamma, eps, centroid, whiten)
    term = step_term(
        near, w=1.0, gamma=gamma, mode="mean_norm", convention=convention,
        q=partial(pooled_q, k=k, k_action=k_action), v=partial(pooled_v, k=k),
    )  # fmt: skip
    scale = group_std if require_known("mode", mode, SCALES) == "mean_std_norm" else term.scale
    return assemble("pooled", replace(term, scale=scale, lone="compared"), convention=convention)


def multiscale(
    radii: Sequence[float] = (0.2, 0.1, 0.05, 0.02),
    k: float | Sequence[float] | Literal["auto"] = "auto",
    k_action: float = 0.5,
    w: float = 1.0,
    gamma: float = 0.95,
    trajectory: bool = False,
    trajectory_mode: Mode = "mean_std_norm",
    centroid: Centroid = "mean",
    convention: Convention = "paper",
) -> Recipe:
    """Clusters of several radii at once, values shrunk from the wide to the narrow: no radius to choose.

    w * (Q - V), not divided, V and Q as in `bipace.core.multiscale`. At its ends it is known: one level and
    k = k_action = 0 is the step term of `bipace` with fallback="never"; k without bound compares each step with its
    prompt group. Our own recipe, not the paper's; what it is worth stands in docs/credit.md.

    Args:
        radii: falling cosine radii, one a level.
        k: pseudo-members of every level, one number a level, or "auto": those that foretell returns best when the
            step's own trajectory is left out.
        k_action: pseudo-members at V on the action side. The criterion of k would always say that actions make no
            difference, so it is a number.
        w: weight of the step term.
        gamma: discount of the return-to-go.
        trajectory: with the trajectory term (Eq. 1, at its own unit scale) beside it.
        trajectory_mode: its division.
        centroid: see `by_features`.
        convention: "paper" or "verl_agent".
    """
    chain: Chain = "auto" if k == "auto" else tuple(k) if isinstance(k, Sequence) else k
    v = NestedV(chain)
    term = step_term(
        ByNestedFeatures(tuple(radii), centroid), w=w, gamma=gamma, mode="mean_norm", convention=convention,
        q=NestedQ(v, k_action), v=v,
    )  # fmt: skip
    step = replace(term, lone="compared")
    parts = (trajectory_term(trajectory_mode, convention), step) if trajectory else (step,)
    return assemble("multiscale", *parts, convention=convention)


RECIPES: dict[str, Callable[..., Recipe]] = {
    f.__name__: f for f in (grpo, dr_grpo, rloo, gigpo, hgpo, bigpo, diff_peer, bipace, pooled, multiscale)
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
    if "habits" not in known:
        options = renamed(options, "habits", "convention")
    for option in options:
        require_known(f"{name} option", option, known)
    made = factory(**options)
    if not isinstance(made, Recipe):  # pyright: ignore[reportUnnecessaryIsInstance]  (a user's own function)
        raise ValueError(f"recipe {name}: returned {type(made).__name__}, expected a bipace Recipe")
    return made


def recipe_options(name: str) -> list[str]:
    """Names of the options a recipe takes. Raises ValueError for an unknown recipe."""
    return list(inspect.signature(_factory(name)).parameters)


def describe(made: Recipe) -> dict[str, Any]:
    """A recipe as JSON: every term with the names and options of its parts, its scale among them, and its needs."""

    def term(t: Term) -> dict[str, Any]:
        parts = {k: describe_part(getattr(t, k)) for k in ("returns", "clusters", "q", "v", "scale", "fallback")}
        return {**parts, "weight": t.weight, "unit": t.unit, "lone": t.lone, "alone": t.alone}

    parts = [
        {"blend": [term(t) for t in p.terms], "weights": p.weights, "weight": p.weight}
        if isinstance(p, Blend)
        else term(p)
        for p in made.parts
    ]
    return {"name": made.name, "terms": parts, "penalty": made.penalty, "needs": sorted(made.needs)}


def _factory(name: str) -> Callable[..., Any]:
    own = ":" in name
    factory = load_attribute(name, f"recipe {name!r}") if own else RECIPES[require_known("recipe", name, RECIPES)]
    if not callable(factory):
        raise ValueError(f"recipe {name!r}: is a {type(factory).__name__}, expected a function that returns a Recipe")
    return factory
