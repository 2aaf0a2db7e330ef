"""Our own recipes: values of small clusters are shrunk towards those of larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from bipace.core.advantages import Recipe
from bipace.core.greedy import Centroid
from bipace.core.multiscale import ByNestedFeatures, Chain, NestedQ, NestedV
from bipace.core.pooling import Prior, group_std, pooled_q, pooled_v
from bipace.core.terms import (
    SCALES,
    Clusters,
    Convention,
    Eps,
    Mode,
    Whiten,
    assemble,
    local_clusters,
    require_known,
    step_term,
    trajectory_term,
)

__all__ = ["multiscale", "pooled"]


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
    """One term with partial pooling.

    V shrinks to the group's mean, Q shrinks to V, so that nobody is left without.

    V = (sum_C R + k m) / (n + k) with m the mean return-to-go of the prompt group's steps, and
    Q = (sum_{C=} R + k_action V) / (n_a + k_action). A step alone gets k (R - m) / ((1 + k) (1 + k_action))
    where the other recipes give it 0; k = k_action = 0 is q_style without a fallback. mean_std_norm divides
    by the prompt group's deviation, one number a group, so that clusters with little spread are not blown up.
    Our own recipe, not the paper's; measured in docs/results/credit.md.

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

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("pooled")).values.round(3).tolist()
        [-0.004, 0.595, -0.004, -0.589]
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
    k = k_action = 0 is the step term of `bipace` with fallback="never"; k without bound compares each step
    with its prompt group. Our own recipe, not the paper's; what it is worth stands in
    docs/results/credit-measured.md.

    Args:
        radii: falling cosine radii, one a level.
        k: pseudo-members of every level, one number a level, or "auto": those that foretell returns best when
            the step's own trajectory is left out.
        k_action: pseudo-members at V on the action side. The criterion of k would always say that actions
            make no difference, so it is a number.
        w: weight of the step term.
        gamma: discount of the return-to-go.
        trajectory: with the trajectory term (Eq. 1, at its own unit scale) beside it.
        trajectory_mode: its division.
        centroid: see `by_features`.
        convention: "paper" or "verl_agent".

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("multiscale")).values.round(3).tolist()
        [-0.0, 0.02, -0.0, -0.019]
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
