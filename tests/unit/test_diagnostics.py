"""Every diagnostic is its definition, counted one row at a time."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle_parts
from bipace.core.advantages import advantages
from bipace.core.diagnostics import (
    aliasing,
    batch_diagnostics,
    cluster_diagnostics,
    credit_diagnostics,
    term_diagnostics,
)
from bipace.core.estimators import recipe
from strategies import EPS, step_tables, to_batch

FALLBACKS = ("no_diff_action", "no_same_action_peer", "never")


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def ninth_decile(values):
    """With linear interpolation between the two neighbours."""
    ordered, place = sorted(values), 0.9 * (len(values) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def plain_clusters(rows, labels):
    members = {}
    for i, label in enumerate(labels):
        members.setdefault(label, []).append(i)
    sizes = [len(m) for m in members.values()]
    paths = {label: len({rows[i]["trajectory"] for i in m}) for label, m in members.items()}
    actions = [len({rows[i]["action"] for i in m}) for m in members.values() if len(m) > 1]
    per_task = Counter(row["task"] for row in rows)
    return {
        "clusters": len(members),
        "singleton_rate": mean(n == 1 for n in sizes),
        "lone_step_share": sum(n == 1 for n in sizes) / len(rows),
        "cluster_size_mean": mean(sizes),
        "cluster_size_p90": ninth_decile(sizes),
        "cluster_size_max": max(sizes),
        "largest_share": max(len(m) / per_task[rows[m[0]]["task"]] for m in members.values()),
        "comparable_pairs": sum(
            labels[i] == labels[j] for i in range(len(rows)) for j in range(len(rows)) if i != j
        ),
        "trajectories_per_cluster": mean(paths.values()),
        "loop_clusters": sum(len(m) > 1 and paths[label] == 1 for label, m in members.items()),
        "actions_per_cluster": mean(actions),
        "multi_action_rate": mean(n > 1 for n in actions),
    }


def plain_branches(rows, labels, fallback):
    shares = Counter()
    for row, label in zip(rows, labels, strict=True):
        cluster = [r for r, other in zip(rows, labels, strict=True) if other == label]
        same = [r for r in cluster if r["action"] == row["action"]]
        falls = {
            "no_diff_action": len(same) == len(cluster),
            "no_same_action_peer": len(same) == 1,
            "never": False,
        }
        shares["lone" if len(cluster) == 1 else "fallback" if falls[fallback] else "compared"] += 1 / len(
            rows
        )
    return {f"branch_{name}": shares[name] for name in ("lone", "fallback", "compared")}


def plain_aliasing(rows):
    following = {}
    for row in rows:
        later = [r for r in rows if r["trajectory"] == row["trajectory"] and r["t"] == row["t"] + 1]
        if later:
            key = (row["task"], row["observation"], row["action"])
            following.setdefault(key, []).append(later[0]["observation"])
    return mean(len(set(found)) > 1 for found in following.values() if len(found) > 1)


@settings(max_examples=80, deadline=None)
@given(step_tables(), st.sampled_from([0.0, EPS, 1.0]), st.sampled_from(FALLBACKS))
def test_clusters_and_branches(rows, eps, fallback):
    batch = to_batch(rows)
    outcome = advantages(batch, recipe("bipace", eps=eps, fallback=fallback)).outcomes[-1]
    labels = oracle_parts.by_features(rows, eps)
    assert cluster_diagnostics(batch, outcome) == pytest.approx(plain_clusters(rows, labels))
    found = term_diagnostics(outcome)
    assert found.pop("zero_share") == pytest.approx(mean(value == 0 for value in outcome.value.tolist()))
    assert found == pytest.approx(plain_branches(rows, labels, fallback))


@settings(max_examples=80, deadline=None)
@given(step_tables())
def test_prompt_groups_and_aliasing(rows):
    totals = {r["trajectory"]: r for r in rows}
    returns = dict(zip((r["trajectory"] for r in rows), oracle_parts.trajectory_return(rows), strict=True))
    groups = {}
    for name, row in totals.items():
        groups.setdefault(row["task"], []).append(returns[name])
    wins = {}
    for name, row in totals.items():
        cut = any(r["truncated"] for r in rows if r["trajectory"] == name)
        wins.setdefault(row["task"], []).append(returns[name] > 0 and not cut)
    assert batch_diagnostics(to_batch(rows)) == {
        "groups": len(groups),
        "lone_groups": sum(len(g) == 1 for g in groups.values()),
        "flat_groups": sum(len(set(g)) == 1 for g in groups.values()),
        "failed_groups": sum(not any(won) for won in wins.values()),
        "trajectories": len(totals),
        "steps": len(rows),
    }
    assert aliasing(to_batch(rows)) == pytest.approx(plain_aliasing(rows))


@given(step_tables())
def test_all_numbers_of_an_iteration_are_finite_and_named_by_their_part(rows):
    batch = to_batch(rows)
    for name in ("grpo", "gigpo", "pooled"):
        found = credit_diagnostics(batch, advantages(batch, recipe(name)))
        assert {key.split("/")[0] for key in found} == {"group", "cluster", "credit"}
        assert ("cluster/clusters" in found) == (name != "grpo")
        assert all(math.isfinite(value) for value in found.values())
