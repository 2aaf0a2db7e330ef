"""Steps are edges between states: what the trajectories of a prompt group share is credited together.

A state is a cluster of steps: equal observations in the papers, or near hidden states
(`clusters="features"`), which none of them measured. See `bipace.core.graph` for what the end of an episode
is.
"""

from __future__ import annotations

from bipace.core.advantages import Recipe, Term
from bipace.core.baselines import cluster_mean, trajectories_mean, trajectories_std
from bipace.core.graph import (
    ByEdges,
    ByStatesWithAnEnd,
    GraphReturn,
    NextValue,
    TemporalDifferences,
    ValueGain,
)
from bipace.core.greedy import Centroid
from bipace.core.pooling import group_mean, group_std
from bipace.core.returns import trajectory_return
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
    trajectory_term,
)

__all__ = ["g2po", "gagpo", "graphgpo", "salt"]


def salt(
    mode: Mode = "mean_std_norm",
    clusters: Clusters = "observation",
    eps: Eps = 0.05,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
) -> Recipe:
    """Shared steps take the mean of their trajectories' advantages; the others keep their own.

    A(i) = mean over the steps j with i's state, action and next state of A(tau_j), with A(tau) = (R(tau) -
    mu_p) / (sigma_p + 1e-6) over the group's trajectories. A step alone has its trajectory's; a group
    of one trajectory, or of equal returns, gives 0; a trajectory that passes one edge five times counts five
    times there [our decision]. Last steps share an end, unless a horizon cut them. Source: SALT, arXiv
    2510.20022; rebuilt from its abstract and from readers' notes, not from its equations.

    Args:
        mode: division by the group's deviation, or none.
        clusters: what a state is: "observation" (the paper), "features", ...
            (`bipace.core.terms.local_clusters`).
        eps: see `bipace`.
        centroid: see `bipace`.
        whiten: see `bipace`.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("salt")).values.round(3).tolist()
        [0.0, 0.707, 0.0, -0.707]
    """
    divided = require_known("mode", mode, SCALES) == "mean_std_norm"
    edges = ByEdges(local_clusters(clusters, 1.0, eps, centroid, whiten))
    scale = trajectories_std if divided else SCALES[mode]
    term = Term(trajectory_return, edges, q=cluster_mean, v=trajectories_mean, scale=scale, lone="compared")
    return assemble("salt", term, convention="paper")


def gagpo(
    gamma: float = 0.95,
    lam: float = 0.95,
    mode: Mode = "mean_std_norm",
    clusters: Clusters = "observation",
    eps: Eps = 0.05,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
) -> Recipe:
    """TD(lambda) over mean returns of equal states, recentred and divided over the group's steps.

    A_t = sum_l (gamma lambda)^l delta_{t+l}, delta_t = r_t + gamma V(s_{t+1}) - V(s_t), V(s) the mean
    return-to-go of the group's steps in s; then (A_t - mean) / (deviation + 1e-6). No trajectory term: the
    paper found that it hurts. A state seen once has its own return as V; a group of one trajectory gives 0.
    Source: GAGPO, arXiv 2605.13217; rebuilt from its abstract and from readers' notes: the value of lambda
    and the deviation (sample) are our decisions.

    Args:
        gamma: discount.
        lam: lambda; 0: one-step differences; 1: return-to-go less V.
        mode: division by the deviation of the group's steps, or recentring alone.
        clusters: what a state is; see `salt`.
        eps: see `bipace`.
        centroid: see `bipace`.
        whiten: see `bipace`.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("gagpo")).values.round(3).tolist()
        [0.821, 0.909, -0.821, -0.909]
    """
    divided = require_known("mode", mode, SCALES) == "mean_std_norm"
    states = local_clusters(clusters, gamma, eps, centroid, whiten)
    term = Term(
        TemporalDifferences(states, gamma, lam), states, v=group_mean,
        scale=group_std if divided else SCALES[mode],
        lone="compared",
    )  # fmt: skip
    return assemble("gagpo", term, convention="paper")


def g2po(
    w: float = 1.0,
    gamma: float = 0.95,
    mode: Mode = "mean_std_norm",
    clusters: Clusters = "observation",
    eps: Eps = 0.05,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    convention: Convention = "paper",
) -> Recipe:
    """Trajectory term + w * (value of the next state against its peers' + its gain against the group's).

    V(s) = gamma * mean return-to-go of the group's steps in s; a last step leads to its own last reward. The
    first step term compares V(s') among the steps of one state (a step alone gives 0); the second compares
    V(s') - V(s) over all steps of the group and is 0 in a group of one trajectory. With `mode` mean_std_norm
    every term is divided by its sample deviation + 1e-6. Source: G2PO, arXiv 2606.22995, and its public code,
    with which `convention="verl_agent"` agrees (there a last step leads to 10 or to 0, which is its reward).

    Args:
        w: weight of both step terms.
        gamma: discount.
        mode: division of all three terms, or none.
        clusters: what a state is; see `salt`.
        eps: see `bipace`.
        centroid: see `bipace`.
        whiten: see `bipace`.
        convention: "paper", or "verl_agent": the trajectory term over step rows, a lone row with its raw
            return, the penalty in the trajectory term's return and in the value of the next state.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("g2po")).values.round(3).tolist()
        [0.706, 2.64, -0.709, -2.637]
    """
    divided = require_known("mode", mode, SCALES) == "mean_std_norm"
    states = local_clusters(clusters, gamma, eps, centroid, whiten)
    gain = Term(
        ValueGain(states, gamma), states, v=group_mean, scale=group_std if divided else SCALES[mode],
        lone="compared", weight=w,
    )  # fmt: skip
    local = Term(NextValue(states, gamma, convention == "verl_agent"), states, scale=SCALES[mode], weight=w)
    return assemble("g2po", trajectory_term(mode, convention), gain, local, convention=convention)


def graphgpo(
    w: float = 1.0,
    omega: float = 0.1,
    above: float = 0.0,
    mode: Mode = "mean_std_norm",
    clusters: Clusters = "observation",
    eps: Eps = 0.05,
    centroid: Centroid = "mean",
    whiten: Whiten = 0,
    convention: Convention = "paper",
) -> Recipe:
    """Trajectory term + w * (C omega^d(s') against its peers'), d the steps from s' to the goal.

    d(s) is the fewest steps from s along what any trajectory of the group did; states without a
    path are one step beyond the farthest with one. Values of the steps from one state are compared, (x -
    mean) / (sample deviation + 1e-6). A step alone in its state gives 0, and so does a last step that a
    horizon cut: where it led was not seen. A group in which nobody succeeded gives 0 in the step term
    (`group/failed_groups`). Loops lengthen no distance. Source: GraphGPO, arXiv 2605.26684; the equation was
    read in a public reproduction (omega = 0.1, C = 10) and in notes; omega^d(s') as the authors' recipe has
    it, where the paper has omega^(d(s') + 1), the same after the division.

    Args:
        w: weight of the step term.
        omega: decay of the value a step.
        above: a trajectory succeeded where its return is above this and no horizon cut it.
        mode: division of both terms, or none.
        clusters: what a state is; see `salt`.
        eps: see `bipace`.
        centroid: see `bipace`.
        whiten: see `bipace`.
        convention: "paper", or "verl_agent" for the trajectory term.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("graphgpo")).values.round(3).tolist()
        [0.707, 1.414, -0.707, -1.414]
    """
    states = local_clusters(clusters, 1.0, eps, centroid, whiten)
    scale = SCALES[require_known("mode", mode, SCALES)]
    step = Term(GraphReturn(states, omega, above), ByStatesWithAnEnd(states), scale=scale, weight=w)
    return assemble("graphgpo", trajectory_term(mode, convention), step, convention=convention)
