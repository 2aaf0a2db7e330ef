"""Steps are compared where the text of their observation is the same."""

from __future__ import annotations

from functools import partial

from bipace.core.advantages import Blend, Recipe, Term
from bipace.core.baselines import cluster_std
from bipace.core.clustering import ByHistory, BySimilarity, Clustering, by_observation
from bipace.core.returns import ReturnToGo
from bipace.core.terms import (
    BOTH_DIVIDED,
    SCALES,
    Convention,
    LeaveOut,
    Mode,
    assemble,
    charged,
    modes,
    require_known,
    step_term,
    trajectory_term,
)

__all__ = ["gigpo", "hgpo"]


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
    observation gives 0 in the second term. `similarity` (0.95 in the public code) groups by difflib ratio
    instead of equality.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("gigpo")).values.round(3).tolist()
        [1.414, 1.414, -1.414, -1.414]
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=BOTH_DIVIDED)
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

    Level k compares steps whose last k observations are equal. A level that says exactly 0 about a step
    (nobody to compare with, or an equal return) is left out and the weights are normalised over what is left;
    a step with no level left gets 0. sigma is the population deviation (ddof 0). `base_group` adds the
    trajectory term (`grpo`, or `dr_grpo` under mean_norm: whole returns, sample deviation) as one more level,
    with k = 0. Source: HGPO, arXiv 2602.22817 and its public code; the paper counts k from 0: weight_offset =
    0.

    Raises:
        ValueError: history below 0; a weight that is no number: a negative base, or 0 to a negative power.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("hgpo")).values.round(3).tolist()
        [1.0, 1.0, -1.0, -1.0]
    """
    if history < 0:
        raise ValueError(f"history: {history}, expected >= 0 past observations")
    first = weight_offset + (0 if base_group else 1)
    if first < 0 or (first == 0 and alpha < 0):
        raise ValueError(
            f"weight_offset: {weight_offset} makes the first weight {first}^{alpha}; take a larger one, or "
            f"alpha >= 0"
        )
    scale = (
        partial(cluster_std, ddof=0)
        if mode == "mean_std_norm"
        else SCALES[require_known("mode", mode, SCALES)]
    )
    returns = charged(ReturnToGo(gamma), convention)
    levels = {k: Term(returns, ByHistory(k), scale=scale) for k in range(1, history + 2)}
    if base_group:
        levels[0] = trajectory_term(mode, convention)
    weights = tuple(float((k + weight_offset) ** alpha) for k in levels)
    return assemble("hgpo", Blend(tuple(levels.values()), weights), convention=convention)
