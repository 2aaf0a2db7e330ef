"""Trajectory methods: one number for every step of an episode."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bipace.core.advantages import Recipe
from bipace.core.baselines import cluster_std, leave_one_out
from bipace.core.terms import Convention, assemble, trajectory_term

__all__ = ["dr_grpo", "grpo", "rloo"]


def grpo(convention: Convention = "paper", delta: float = 1e-6) -> Recipe:
    """A(tau) = (R(tau) - mu_p) / (sigma_p + delta), mu and sigma (ddof 1) over the group's trajectories.

    Source: DeepSeekMath, arXiv 2402.03300; BiPACE Eq. 1. A lone trajectory gives 0. TRL's delta is 1e-4.

    Raises:
        ValueError: delta not above 0: a group of equal returns would be divided by nothing.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("grpo")).values.round(3).tolist()
        [0.707, 0.707, -0.707, -0.707]
    """
    if not delta > 0:
        raise ValueError(f"delta: {delta}, expected a number above 0")
    term = replace(trajectory_term("mean_std_norm", convention), scale=partial(cluster_std, delta=delta))
    return assemble("grpo", term, convention=convention)


def dr_grpo(convention: Convention = "paper") -> Recipe:
    """A(tau) = R(tau) - mu_p. Source: Dr. GRPO, arXiv 2503.20783. A lone trajectory gives 0.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("dr_grpo")).values.round(3).tolist()
        [0.5, 0.5, -0.5, -0.5]
    """
    return assemble("dr_grpo", trajectory_term("mean_norm", convention), convention=convention)


def rloo(convention: Convention = "paper") -> Recipe:
    """A(tau) = R(tau) - mean of the others = n/(n-1) (R(tau) - mu_p).

    Source: RLOO, arXiv 2402.14740. Lone: 0.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("rloo")).values.round(3).tolist()
        [1.0, 1.0, -1.0, -1.0]
    """
    return assemble("rloo", trajectory_term("mean_norm", convention, leave_one_out), convention=convention)
