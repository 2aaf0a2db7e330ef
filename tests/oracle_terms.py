"""The terms of the oracles: one row's return against its trajectory group or its cluster, as plain loops.

Nothing here imports bipace or numpy; `oracles.py` says what a row is.
"""

from __future__ import annotations

from oracle_parts import (
    by_features,
    by_ngrams,
    by_observation,
    deviation,
    mean,
    return_to_go,
    same_trajectory,
    trajectory_return,
    whitened,
)

DELTA = 1e-6


def penalty(row, convention, where):
    """The row's penalty at the place where this convention charge it, else 0."""
    charged = "return" if convention == "verl_agent" else "advantage"
    return row.get("penalty", 0.0) if where == charged else 0.0


def trajectory_term(rows, baseline="mean", divide=False, convention="paper", delta=DELTA):
    """(R(tau) - baseline) over the trajectories of the prompt group, one return each; a lone trajectory gives
    0.
    """
    totals = trajectory_return(rows)
    totals = [total - penalty(row, convention, "return") for total, row in zip(totals, rows, strict=True)]
    out = []
    for i, row in enumerate(rows):
        group = {}
        for j, other in enumerate(rows):
            if other["task"] == row["task"]:
                group[j if convention == "verl_agent" else other["trajectory"]] = totals[j]
        own = i if convention == "verl_agent" else row["trajectory"]
        if len(group) == 1:
            out.append(totals[i] if convention == "verl_agent" else 0.0)
            continue
        if baseline == "leave_one_out":
            value = totals[i] - mean([r for name, r in group.items() if name != own])
        else:
            value = totals[i] - mean(list(group.values()))
        out.append(value / (deviation(list(group.values()), ddof=1) + delta) if divide else value)
    return out


def falls_back(fallback, n, n_same):
    if fallback == "no_diff_action":
        return n_same == n
    if fallback == "no_same_action_peer":
        return n_same == 1
    if fallback == "never":
        return False
    raise ValueError(fallback)


def step_term(
    rows, labels, style, gamma=0.95, mode="mean_std_norm", fallback="never", ddof=1, convention="paper",
    leave_out="nothing",
):  # fmt: skip
    """One row's return-to-go (or its action's mean) against its cluster; a singleton cluster gives 0.

    style: "mean" R_i - mean_C; "q_style" mean_{C=} - mean_C; "diff_peer" R_i - mean_{C!=}, 0 where C!= is
        empty.
    leave_out: "trajectory" takes mean_C over the other trajectories' rows; a cluster without any gives 0.
    """
    returns = return_to_go(rows, gamma)
    returns = [value - penalty(row, convention, "return") for value, row in zip(returns, rows, strict=True)]
    out = []
    for i, row in enumerate(rows):
        cluster = [j for j in range(len(rows)) if labels[j] == labels[i]]
        same = [returns[j] for j in cluster if rows[j]["action"] == row["action"]]
        different = [returns[j] for j in cluster if rows[j]["action"] != row["action"]]
        everyone = [returns[j] for j in cluster]
        judges = cluster
        if leave_out == "trajectory":
            judges = [j for j in cluster if not same_trajectory(rows[j], row)]
        if len(cluster) == 1 or not judges:
            out.append(0.0)
            continue
        baseline = mean([returns[j] for j in judges])
        if falls_back(fallback, len(cluster), len(same)):
            value = returns[i] - mean([returns[j] for j in cluster if j != i])
        elif style == "mean":
            value = returns[i] - baseline
        elif style == "q_style":
            value = mean(same) - baseline
        elif style == "diff_peer":
            value = returns[i] - mean(different) if different else 0.0
        else:
            raise ValueError(style)
        out.append(value / (deviation(everyone, ddof) + DELTA) if mode == "mean_std_norm" else value)
    return out


def charged(rows, values, convention):
    return [value - penalty(row, convention, "advantage") for value, row in zip(values, rows, strict=True)]


def both(mode, trajectory_mode, step_mode, default):
    """The modes of the trajectory term and of the step term."""
    if mode is not None:
        return mode, mode
    return trajectory_mode or default[0], step_mode or default[1]


def joined(rows, step, w, mode, convention):
    trajectory = trajectory_term(rows, divide=mode == "mean_std_norm", convention=convention)
    return charged(rows, [a + w * b for a, b in zip(trajectory, step, strict=True)], convention)


def local_clusters(rows, clusters, eps, centroid, whiten=0):
    if whiten and clusters == "features":
        rows = whitened(rows, whiten)
    if clusters == "ngrams":
        return by_ngrams(rows, eps, centroid=centroid)
    return by_observation(rows) if clusters == "observation" else by_features(rows, eps, centroid)


DIVIDED = ("mean_std_norm", "mean_std_norm")
RECENTRED = ("mean_std_norm", "mean_norm")
