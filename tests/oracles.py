"""Independent oracles: every estimator once more, as plain loops over lists of dicts.

Nothing here imports bipace or numpy; returns and clusterings are in `oracle_parts.py`, terms in
`oracle_terms.py`. A row is a dict with the keys task, trajectory, t, reward, observation (text), action
(any hashable), where features are clustered feature (a list of numbers), and, if it was punished, penalty.
Every estimator returns a list of floats in row order and takes the same options as the recipe of the same
name, but not every value of them: a radius, a whitening or pseudo-members that are chosen from the table
("auto", "calibrate") are tested in test_calibrate.py, test_scan.py and test_pooling.py, clusters dealt by
"chance" by their sizes in test_against_oracles.py, which also compares the options. Quadratic on purpose:
each definition is read off the row it is about. Means and variances are taken in exact rationals, so that
an oracle adds no rounding of its own and "equal" means equal.

Convention "paper": statistics over trajectories, and a penalty is taken off its own row's advantage at the
end. Convention "verl_agent": trajectory statistics over step rows, a group of one row keeps its raw value,
and a penalty is taken off its own row's returns, after discounting and before any statistic.
"""

from __future__ import annotations

import math

from oracle_graphs import GRAPH_ESTIMATORS
from oracle_parts import (
    by_features,
    by_history,
    by_observation,
    by_similarity,
    deviation,
    mean,
    return_to_go,
    same_trajectory,
)
from oracle_terms import (
    DELTA,
    DIVIDED,
    RECENTRED,
    both,
    charged,
    joined,
    local_clusters,
    penalty,
    step_term,
    trajectory_term,
)


def grpo(rows, convention="paper", delta=DELTA):
    return charged(rows, trajectory_term(rows, divide=True, convention=convention, delta=delta), convention)


def dr_grpo(rows, convention="paper"):
    return charged(rows, trajectory_term(rows, convention=convention), convention)


def rloo(rows, convention="paper"):
    return charged(rows, trajectory_term(rows, baseline="leave_one_out", convention=convention), convention)


def gigpo(
    rows, w=1.0, gamma=0.95, mode=None, trajectory_mode=None, step_mode=None, similarity=None,
    leave_out="nothing",
    convention="paper",
):  # fmt: skip
    episode, local = both(mode, trajectory_mode, step_mode, DIVIDED)
    labels = by_observation(rows) if similarity is None else by_similarity(rows, similarity)
    step = step_term(rows, labels, "mean", gamma, local, convention=convention, leave_out=leave_out)
    return joined(rows, step, w, episode, convention)


def hgpo(
    rows,
    history=2,
    alpha=1.0,
    weight_offset=1.0,
    gamma=0.95,
    mode="mean_std_norm",
    base_group=False,
    convention="paper",
):
    """Weighted mean over k of the step terms of equal last-k observations; exact zeros are left out of it.

    The base group is the trajectory term (GRPO's, its own return and sample deviation) as one more entry,
    with k = 0.
    """
    values = []
    for k in range(1, history + 2):
        values.append(
            (k, step_term(rows, by_history(rows, k), "mean", gamma, mode, ddof=0, convention=convention))
        )
    if base_group:
        values.append((0, trajectory_term(rows, divide=mode == "mean_std_norm", convention=convention)))
    out = []
    for i in range(len(rows)):
        entries = [((k + weight_offset) ** alpha, value[i]) for k, value in values if value[i] != 0]
        total = sum(weight for weight, _ in entries)
        out.append(sum(weight * value for weight, value in entries) / total if total > 0 else 0.0)
    return charged(rows, out, convention)


def bigpo(
    rows, w=1.0, gamma=0.95, mode=None, trajectory_mode=None, step_mode=None, eps=0.05, centroid="mean",
    whiten=0, clusters="features", leave_out="nothing", convention="paper",
):  # fmt: skip
    episode, local = both(mode, trajectory_mode, step_mode, DIVIDED)
    labels = local_clusters(rows, clusters, eps, centroid, whiten)
    step = step_term(rows, labels, "mean", gamma, local, convention=convention, leave_out=leave_out)
    return joined(rows, step, w, episode, convention)


def diff_peer(
    rows, w=1.0, gamma=0.95, mode=None, trajectory_mode=None, step_mode=None, eps=0.05, centroid="mean",
    whiten=0, fallback="no_same_action_peer", clusters="features", convention="paper",
):  # fmt: skip
    episode, local = both(mode, trajectory_mode, step_mode, RECENTRED)
    labels = local_clusters(rows, clusters, eps, centroid, whiten)
    step = step_term(rows, labels, "diff_peer", gamma, local, fallback, convention=convention)
    return joined(rows, step, w, episode, convention)


def bipace(
    rows, w=1.0, gamma=0.95, mode=None, trajectory_mode=None, step_mode=None, eps=0.05, centroid="mean",
    whiten=0, fallback="no_same_action_peer", clusters="features", leave_out="nothing", convention="paper",
):  # fmt: skip
    episode, local = both(mode, trajectory_mode, step_mode, RECENTRED)
    labels = local_clusters(rows, clusters, eps, centroid, whiten)
    step = step_term(
        rows, labels, "q_style", gamma, local, fallback, convention=convention, leave_out=leave_out
    )
    return joined(rows, step, w, episode, convention)


def pooled(
    rows, k=0.5, k_action=0.5, gamma=0.95, mode="mean_std_norm", clusters="observation", eps=0.1,
    centroid="mean",
    whiten=0, convention="paper",
):  # fmt: skip
    """V = (sum_C R + k m) / (n + k) and Q = (sum_{C=} R + k_action V) / (n_a + k_action), m the group's
    mean.
    """
    labels = local_clusters(rows, clusters, eps, centroid, whiten)
    values = [
        value - penalty(row, convention, "return")
        for value, row in zip(return_to_go(rows, gamma), rows, strict=True)
    ]
    out = []
    for i, row in enumerate(rows):
        group = [values[j] for j in range(len(rows)) if rows[j]["task"] == row["task"]]
        members = [j for j in range(len(rows)) if labels[j] == labels[i]]
        same = [values[j] for j in members if rows[j]["action"] == row["action"]]
        v = (math.fsum(values[j] for j in members) + k * mean(group)) / (len(members) + k)
        q = (math.fsum(same) + k_action * v) / (len(same) + k_action)
        out.append((q - v) / (deviation(group, ddof=1) + DELTA) if mode == "mean_std_norm" else q - v)
    return charged(rows, out, convention)


PSEUDO = [2.0**power for power in range(-4, 7)]


def left_out(rows, values, labels, i):
    """Returns of the members of row i's segment that belong to other trajectories."""
    return [
        values[j]
        for j in range(len(rows))
        if labels[j] == labels[i] and not same_trajectory(rows[j], rows[i])
    ]


def foretelling_chain(rows, values, levels):
    """For each level the pseudo-members that predict returns best without the own trajectory, and so down the
    chain.
    """
    tasks = [row["task"] for row in rows]
    outside = [left_out(rows, values, tasks, i) for i in range(len(rows))]
    prior = [mean(o) if o else 0.0 for o in outside]
    judged = [i for i, o in enumerate(outside) if o]
    chain = []
    for labels in levels:
        beside = [left_out(rows, values, labels, i) for i in range(len(rows))]
        predictions = [
            [(math.fsum(b) + k * p) / (len(b) + k) for b, p in zip(beside, prior, strict=True)]
            for k in PSEUDO
        ]
        errors = [math.fsum((values[i] - p[i]) ** 2 for i in judged) for p in predictions]
        best = next(n for n, error in enumerate(errors) if error <= min(errors) * (1 + 1e-12))
        chain.append(PSEUDO[best] if judged else 1.0)
        prior = predictions[best]
    return chain


def multiscale(
    rows, radii=(0.2, 0.1, 0.05, 0.02), k="auto", k_action=0.5, w=1.0, gamma=0.95, trajectory=False,
    trajectory_mode="mean_std_norm", centroid="mean", convention="paper",
):  # fmt: skip
    values = [
        value - penalty(row, convention, "return")
        for value, row in zip(return_to_go(rows, gamma), rows, strict=True)
    ]
    levels = []
    for eps in radii:
        own = by_features(rows, eps, centroid)
        levels.append(own if not levels else list(zip(levels[-1], own, strict=True)))
    if k == "auto":
        chain = foretelling_chain(rows, values, levels)
    else:
        chain = list(k) if isinstance(k, (list, tuple)) else [k] * len(levels)
    out = []
    for i, row in enumerate(rows):
        group = [j for j in range(len(rows)) if rows[j]["task"] == row["task"]]
        if len({rows[j]["trajectory"] for j in group}) == 1:
            out.append(0.0)
            continue
        v = mean([values[j] for j in group])
        for labels, pseudo in zip(levels, chain, strict=True):
            members = [j for j in group if labels[j] == labels[i]]
            v = (math.fsum(values[j] for j in members) + pseudo * v) / (len(members) + pseudo)
        same = [
            values[j] for j in group if levels[-1][j] == levels[-1][i] and rows[j]["action"] == row["action"]
        ]
        q = (math.fsum(same) + k_action * v) / (len(same) + k_action)
        out.append(w * (q - v))
    if trajectory:
        whole = trajectory_term(rows, divide=trajectory_mode == "mean_std_norm", convention=convention)
        out = [a + b for a, b in zip(whole, out, strict=True)]
    return charged(rows, out, convention)


ESTIMATORS = {
    f.__name__: f for f in (grpo, dr_grpo, rloo, gigpo, hgpo, bigpo, diff_peer, bipace, pooled, multiscale)
} | GRAPH_ESTIMATORS
