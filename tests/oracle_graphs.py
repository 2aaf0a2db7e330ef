"""Oracles of the methods that credit transitions and turns, as plain loops over lists of dicts.

Nothing here imports bipace or numpy; `oracles.py` says what a row is. Beside its keys a row may carry
"truncated" (on a trajectory's last step: a horizon cut it).
"""

from __future__ import annotations

from oracle_parts import deviation, mean, return_to_go, same_trajectory, trajectory_return
from oracle_terms import DELTA, charged, local_clusters, penalty, trajectory_term


def following(rows, i):
    """The index of the same trajectory's next step; None at its last one."""
    for j, row in enumerate(rows):
        if same_trajectory(row, rows[i]) and row["t"] == rows[i]["t"] + 1:
            return j
    return None


def last_of(rows, i):
    """The last step of row i's trajectory."""
    return max((r for r in rows if same_trajectory(r, rows[i])), key=lambda r: r["t"])


def group_of(rows, i):
    return [j for j in range(len(rows)) if rows[j]["task"] == rows[i]["task"]]


def is_lone(rows, i):
    return len({rows[j]["trajectory"] for j in group_of(rows, i)}) == 1


def divided(value, values, mode):
    return value / (deviation(values, ddof=1) + DELTA) if mode == "mean_std_norm" else value


def states_of(rows, clusters, eps, centroid, whiten):
    """Labels that name the task as well, so that equal ones are in one group."""
    labels = local_clusters(rows, clusters, eps, centroid, whiten)
    return [(row["task"], label) for row, label in zip(rows, labels, strict=True)]


def salt(rows, mode="mean_std_norm", clusters="observation", eps=0.05, centroid="mean", whiten=0):
    states = states_of(rows, clusters, eps, centroid, whiten)
    own = trajectory_term(rows, divide=mode == "mean_std_norm")

    def edge(i):
        after = following(rows, i)
        if after is None:
            return (states[i], rows[i]["action"], i if rows[i].get("truncated") else "end")
        return (states[i], rows[i]["action"], states[after])

    edges = [edge(i) for i in range(len(rows))]
    shared = [mean([own[j] for j in range(len(rows)) if edges[j] == edges[i]]) for i in range(len(rows))]
    return charged(rows, shared, "paper")


def mt_grpo(rows, w=1.0, gamma=1.0, mode="mean_std_norm", reward_at_end="trajectory"):
    ends = [following(rows, i) is None for i in range(len(rows))]
    out = []
    for i, row in enumerate(rows):
        group = group_of(rows, i)
        playing = {rows[j]["trajectory"] for j in group}
        value = 0.0
        for turn in range(row["t"], max(rows[j]["t"] for j in group) + 1):
            rewards = dict.fromkeys(playing, 0.0)
            for j in group:
                if rows[j]["t"] == turn and not (ends[j] and reward_at_end == "trajectory"):
                    rewards[rows[j]["trajectory"]] = rows[j]["reward"]
            every = list(rewards.values())
            value += gamma ** (turn - row["t"]) * divided(
                rewards[row["trajectory"]] - mean(every), every, mode
            )
        value *= w
        if reward_at_end == "trajectory" and len(playing) > 1:
            outcomes = [rows[j]["reward"] for j in group if ends[j]]
            value += divided(last_of(rows, i)["reward"] - mean(outcomes), outcomes, mode)
        out.append(value)
    return charged(rows, out, "paper")


def means_of_states(rows, states, values):
    return [mean([values[j] for j in range(len(rows)) if states[j] == states[i]]) for i in range(len(rows))]


def gagpo(
    rows,
    gamma=0.95,
    lam=0.95,
    mode="mean_std_norm",
    clusters="observation",
    eps=0.05,
    centroid="mean",
    whiten=0,
):
    states = states_of(rows, clusters, eps, centroid, whiten)
    value = means_of_states(rows, states, return_to_go(rows, gamma))
    delta = []
    for i, row in enumerate(rows):
        after = following(rows, i)
        delta.append(row["reward"] + gamma * (0.0 if after is None else value[after]) - value[i])

    def advantage(i):
        if is_lone(rows, i):
            return 0.0
        after = following(rows, i)
        return delta[i] + (0.0 if after is None else gamma * lam * advantage(after))

    found = [advantage(i) for i in range(len(rows))]
    out = []
    for i in range(len(rows)):
        group = [found[j] for j in group_of(rows, i)]
        out.append(divided(found[i] - mean(group), group, mode))
    return charged(rows, out, "paper")


def g2po(
    rows, w=1.0, gamma=0.95, mode="mean_std_norm", clusters="observation", eps=0.05, centroid="mean",
    whiten=0,
    convention="paper",
):  # fmt: skip
    states = states_of(rows, clusters, eps, centroid, whiten)
    value = means_of_states(rows, states, [gamma * r for r in return_to_go(rows, gamma)])
    after = [following(rows, i) for i in range(len(rows))]
    reached = [rows[i]["reward"] if j is None else value[j] for i, j in enumerate(after)]
    gain = [0.0 if is_lone(rows, i) else reached[i] - value[i] for i in range(len(rows))]
    compared = [r - penalty(row, convention, "return") for r, row in zip(reached, rows, strict=True)]
    whole = trajectory_term(rows, divide=mode == "mean_std_norm", convention=convention)
    out = []
    for i in range(len(rows)):
        gains = [gain[j] for j in group_of(rows, i)]
        step = divided(gain[i] - mean(gains), gains, mode)
        peers = [compared[j] for j in range(len(rows)) if states[j] == states[i]]
        if len(peers) > 1:
            step += divided(compared[i] - mean(peers), peers, mode)
        out.append(whole[i] + w * step)
    return charged(rows, out, convention)


def graphgpo(
    rows, w=1.0, omega=0.1, above=0.0, mode="mean_std_norm", clusters="observation", eps=0.05,
    centroid="mean",
    whiten=0, convention="paper",
):  # fmt: skip
    states = states_of(rows, clusters, eps, centroid, whiten)
    totals = trajectory_return(rows)
    won = [totals[i] > above and not last_of(rows, i).get("truncated") for i in range(len(rows))]
    targets = []
    for i in range(len(rows)):
        after = following(rows, i)
        if after is None:
            targets.append(("goal", rows[i]["task"]) if won[i] else None)
        else:
            targets.append(states[after])
    away = {("goal", row["task"]): 0 for row in rows}
    for _ in range(len(rows) + 1):  # relax every edge often enough
        for state, target in zip(states, targets, strict=True):
            if target in away:
                away[state] = min(away.get(state, len(rows) + 1), away[target] + 1)

    def worth(i):
        group = group_of(rows, i)
        best = max([totals[j] for j in group if won[j]], default=0.0)
        if best <= 0:
            return 0.0
        farthest = max([away[states[j]] for j in group if states[j] in away], default=0)
        return best * omega ** away.get(targets[i], farthest + 1)

    value = [worth(i) for i in range(len(rows))]
    seen = [not (following(rows, i) is None and rows[i].get("truncated")) for i in range(len(rows))]
    whole = trajectory_term(rows, divide=mode == "mean_std_norm", convention=convention)
    out = []
    for i in range(len(rows)):
        peers = [value[j] for j in range(len(rows)) if states[j] == states[i] and seen[j]]
        step = divided(value[i] - mean(peers), peers, mode) if seen[i] and len(peers) > 1 else 0.0
        out.append(whole[i] + w * step)
    return charged(rows, out, convention)


GRAPH_ESTIMATORS = {f.__name__: f for f in (salt, mt_grpo, gagpo, g2po, graphgpo)}
