"""The generator of tables really draws every ugly case: a property test is worth what its generator draws."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, find, settings

from oracle_parts import cosine_distance, unit
from strategies import EPS, step_tables, to_batch


def lengths(rows):
    return Counter(row["trajectory"] for row in rows)


def groups(rows):
    return {task: {r["trajectory"] for r in rows if r["task"] == task} for task in {r["task"] for r in rows}}


def lone_group(rows):
    sizes = [len(group) for group in groups(rows).values()]
    return min(sizes) == 1 < max(sizes)


def ragged_lengths(rows):
    return any(len({lengths(rows)[name] for name in group}) > 1 for group in groups(rows).values())


def constant_rewards(rows):
    return len(rows) > 3 and len({row["reward"] for row in rows}) == 1


def repeated_visits(rows):
    visits = Counter((row["trajectory"], row["observation"]) for row in rows)
    return max(visits.values()) >= 3


def shuffled_rows(rows):
    return any(a["trajectory"] == b["trajectory"] and a["t"] > b["t"] for a, b in pairwise(rows))


def interleaved_trajectories(rows):
    names = [row["trajectory"] for row in rows]
    return any(names[i] == names[i + 2] != names[i + 1] for i in range(len(names) - 2))


def tasks_out_of_order(rows):
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    return tasks != sorted(tasks)


def equal_observations_across_tasks(rows):
    seen = {(row["task"], row["observation"]) for row in rows}
    return len({text for _, text in seen}) < len(seen)


def two_actions_in_one_cluster(rows):
    keys = {(row["task"], row["observation"], row["action"]) for row in rows}
    return len({key[:2] for key in keys}) < len(keys)


def zero_vector(rows):
    return any(not any(row["feature"]) for row in rows) and any(any(row["feature"]) for row in rows)


def duplicate_vectors(rows):
    return any(any(row["feature"]) and _twin(row, rows) for row in rows)


def _twin(row, rows):
    return any(other is not row and other["feature"] == row["feature"] for other in rows)


def _gaps(rows):
    return [
        cosine_distance(unit(a["feature"]), unit(b["feature"])) - EPS
        for a in rows
        for b in rows
        if a["task"] == b["task"]
    ]


def vectors_exactly_eps_apart(rows):
    return any(abs(gap) < 1e-9 for gap in _gaps(rows))


def vectors_just_inside_eps(rows):
    return any(-2e-4 < gap < -5e-5 for gap in _gaps(rows))


def vectors_just_outside_eps(rows):
    return any(5e-5 < gap < 2e-4 for gap in _gaps(rows))


def one_row(rows):
    return len(rows) == 1


@pytest.mark.parametrize(
    "case",
    [
        lone_group, ragged_lengths, constant_rewards, repeated_visits, shuffled_rows,
        interleaved_trajectories,
        tasks_out_of_order, equal_observations_across_tasks, two_actions_in_one_cluster, zero_vector,
        duplicate_vectors, vectors_exactly_eps_apart, vectors_just_inside_eps, vectors_just_outside_eps,
        one_row,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_the_generator_draws(case):
    quick = settings(
        max_examples=2000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    rows = find(step_tables(), case, settings=quick)
    assert case(rows)
    assert len(to_batch(rows)) == len(rows)
