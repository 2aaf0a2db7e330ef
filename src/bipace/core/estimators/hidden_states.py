"""Steps are compared where the actor's own hidden states are near: BiPACE, its parts and its variants."""

from __future__ import annotations

from bipace.core.advantages import Recipe
from bipace.core.baselines import other_actions_mean, same_action_mean
from bipace.core.greedy import Centroid
from bipace.core.terms import (
    BOTH_DIVIDED,
    TRAJECTORY_DIVIDED,
    Clusters,
    Convention,
    Eps,
    Fallback,
    LeaveOut,
    Mode,
    Whiten,
    assemble,
    local_clusters,
    modes,
    step_term,
    trajectory_term,
)

__all__ = ["bigpo", "bipace", "diff_peer"]


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
    """GiGPO with clusters of hidden states: the state side of BiPACE alone (arXiv 2606.25556).

    See `by_features`.

    The partition is all that changes, so both terms are divided as GiGPO's are.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("bigpo")).values.round(3).tolist()
        [1.414, 1.414, -1.414, -1.414]
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=BOTH_DIVIDED)
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

    In a state-homogeneous cluster its expectation is (Q(a) - V) / (1 - pi(a)). Name from arXiv 2606.25556,
    form [our decision]. A step alone gives 0, and so does a cluster with one action: there is nobody on the
    other side. fallback="no_diff_action" takes leave-one-out there. ("no_same_action_peer" changes nothing
    here: where nobody else took i's action, the others are the other actions.)

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("diff_peer")).values.round(3).tolist()
        [0.707, 1.707, -0.707, -1.707]
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=TRAJECTORY_DIVIDED)
    step = step_term(
        local_clusters(clusters, gamma, eps, centroid, whiten), w=w, gamma=gamma, mode=local,
        convention=convention,
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

    Source: BiPACE_Q, arXiv 2606.25556: Eq. 1, divided, plus a step term that recentres and is not divided. In
    a state-homogeneous cluster of n draws the expectation of Qhat - Vhat is (1 - 1/n) (Q(a) - V); its values
    sum to 0 over a cluster with fallback="never". A step alone gives 0. Where nobody else took the step's
    action Qhat would be its own return, and leave-one-out, R_i - mean of the other members, takes over, so
    that the expectation at the defaults is (Q(a) - V) (1 - 1/n + (1 - pi(a))^(n-2) / n); a cluster with one
    action gives 0: nothing to compare.

    Args:
        w: weight of the step term.
        gamma: discount of the return-to-go.
        mode: both terms at once, as verl-agent has it; see the module.
        trajectory_mode: "mean_std_norm" where None.
        step_mode: "mean_norm" where None. "mean_std_norm" with fallback="no_diff_action" is what earlier
            releases did.
        eps: cosine radius of a cluster; "auto": chosen on the batch without labels (`bipace.core.calibrate`);
            "calibrate": chosen once, with the layer, from a run's first rollouts (`bipace.core.scan`). The
            paper has 0.05 at layer -12 of a 1.5B model and 0.10 at layer -8 of a 7B model.
        centroid: running mean of the members, or the first member [our decision: mean].
        whiten: leading principal directions removed from the features; 0 in the paper. "auto" (0 or 3) with
            eps="auto".
        fallback: where leave-one-out takes over: "no_same_action_peer" (nobody else took i's action),
            "no_diff_action" (every member took one action), or "never".
        clusters: "features"; "observation" for the action side alone; the controls "ngrams" and "chance"
            (`bipace.core.terms.local_clusters`).
        leave_out: "trajectory": V is the mean over the other trajectories' members.
        convention: "paper" or "verl_agent".

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("bipace")).values.round(3).tolist()
        [0.707, 1.707, -0.707, -1.707]
    """
    episode, local = modes(mode, trajectory_mode, step_mode, default=TRAJECTORY_DIVIDED)
    step = step_term(
        local_clusters(clusters, gamma, eps, centroid, whiten), w=w, gamma=gamma, mode=local,
        convention=convention,
        q=same_action_mean, fallback=fallback, leave_out=leave_out,
    )  # fmt: skip
    return assemble("bipace", trajectory_term(episode, convention), step, convention=convention)
