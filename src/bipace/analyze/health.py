"""What the trajectories themselves look like: groups, duplicates, loops, aliasing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bipace.analyze.table import Table
from bipace.core import segments
from bipace.core.diagnostics import aliasing
from bipace.core.steps import StepBatch

__all__ = ["Health", "Place", "assess"]

EXAMPLES = 8


@dataclass(frozen=True)
class Place:
    """Where to look: a prompt group, and a trajectory and a step of it where they matter."""

    task: int
    trajectory: int | None = None
    t: int | None = None


@dataclass(frozen=True)
class Health:
    """Counts over all files, and places to look at.

    Attributes:
        numbers: name -> count or share.
        flat: [groups] True where no outcome differs from another.
        lone: [groups] True for one trajectory.
        duplicate: [trajectories] True for a copy of an earlier trajectory of its group.
        looping: [N] True where a trajectory repeats an (observation, action) pair of its own.
        shaped: [groups] True where outcomes are equal and rewards are not.
        aliased: [N] True where the same (task, observation, action) led to different next observations.
        places: name -> examples.
    """

    numbers: dict[str, float]
    flat: np.ndarray
    lone: np.ndarray
    duplicate: np.ndarray
    looping: np.ndarray
    shaped: np.ndarray
    aliased: np.ndarray
    places: dict[str, list[Place]]


def assess(table: Table) -> Health:
    """Groups (variance is judged on the outcome, not on a shaped reward), copies, loops, aliasing."""
    batch = table.batch
    trajectory_rows = segments.first_rows(batch.trajectory)
    task = batch.task[trajectory_rows]
    one_each = segments.first_rows(task)
    sizes = segments.count(task)[one_each]
    flat = segments.constant(table.outcome, task)[one_each]
    returns = segments.total(batch.reward, batch.trajectory)[trajectory_rows]
    flat_reward = segments.constant(returns, task)[one_each]
    lone = sizes == 1
    duplicate, looping = _duplicates(table), _loops(table)
    aliased = _aliased(batch)
    lengths = np.bincount(batch.trajectory)
    success = table.outcome > 0
    numbers = {
        "groups": float(len(sizes)),
        "trajectories": float(len(task)),
        "steps": float(len(batch)),
        "group_size_min": float(sizes.min()),
        "group_size_median": float(np.median(sizes)),
        "group_size_max": float(sizes.max()),
        "lone_groups": float(lone.sum()),
        "flat_groups": float(flat.sum()),
        "flat_groups_with_reward_variance": float((flat & ~flat_reward).sum()),
        "flat_all_zero_groups": float((flat & (table.outcome[one_each] <= 0)).sum()),
        "steps_in_flat_groups_share": float(flat[batch.task].mean()),
        "positive_outcome_share": float(success.mean()),
        "outcome_mean": float(table.outcome.mean()),
        "steps_per_trajectory_mean": float(lengths.mean()),
        "single_step_trajectories": float((lengths == 1).sum()),
        "duplicate_trajectories": float(duplicate.sum()),
        "duplicate_share": float(duplicate.sum() / max(len(task) - len(sizes), 1)),
        "loop_steps": float(looping.sum()),
        "loop_step_share": float(looping.mean()),
        "loop_trajectories": float(len(np.unique(batch.trajectory[looping]))),
        "aliasing": aliasing(batch),
        "dropped_trajectories": float(len(table.dropped)),
    }
    if table.parsed is not None:
        numbers["parse_rate"] = float(table.parsed.mean())
    places = {
        "flat": [Place(int(g)) for g in np.flatnonzero(flat & ~lone)[:EXAMPLES]],
        "lone": [Place(int(g)) for g in np.flatnonzero(lone)[:EXAMPLES]],
        "shaped": [Place(int(g)) for g in np.flatnonzero(flat & ~flat_reward)[:EXAMPLES]],
        "duplicate": [Place(int(task[i]), int(i)) for i in np.flatnonzero(duplicate)[:EXAMPLES]],
        "loop": _step_places(table, np.flatnonzero(looping)),
        "aliased": _step_places(table, np.flatnonzero(aliased)),
        "unparsed": [] if table.parsed is None else _step_places(table, np.flatnonzero(~table.parsed)),
    }
    return Health(numbers, flat, lone, duplicate, looping, flat & ~flat_reward, aliased, places)


def place_of(table: Table, row: int) -> Place:
    """The place of a row."""
    batch = table.batch
    return Place(int(batch.task[row]), int(batch.trajectory[row]), int(batch.t[row]))


def _step_places(table: Table, rows: np.ndarray) -> list[Place]:
    """One example a trajectory."""
    first = rows[np.unique(table.batch.trajectory[rows], return_index=True)[1]] if len(rows) else rows
    return [place_of(table, int(row)) for row in first[:EXAMPLES]]


def _duplicates(table: Table) -> np.ndarray:
    batch = table.batch
    seen: set[tuple[object, ...]] = set()
    copies = np.zeros(len(table.trajectories), np.bool_)
    starts = np.r_[segments.first_rows(batch.trajectory), len(batch)]
    for i in range(len(copies)):
        rows = slice(int(starts[i]), int(starts[i + 1]))
        key = (int(batch.task[rows][0]), batch.observation[rows].tobytes(), batch.action[rows].tobytes())
        copies[i] = key in seen
        seen.add(key)
    return copies


def _loops(table: Table) -> np.ndarray:
    batch = table.batch
    pairs = segments.pair(segments.pair(batch.trajectory, batch.observation), batch.action)
    again = np.ones(len(batch), np.bool_)
    again[np.unique(pairs, return_index=True)[1]] = False
    return again


def _aliased(batch: StepBatch) -> np.ndarray:
    """Rows whose (task, observation, action) was followed by different observations; a last step by none."""
    found = np.zeros(len(batch), np.bool_)
    here = np.flatnonzero(batch.trajectory[:-1] == batch.trajectory[1:])
    if len(here):
        triple = segments.pair(segments.pair(batch.task[here], batch.observation[here]), batch.action[here])
        continuation = segments.first_rows(segments.pair(triple, batch.observation[here + 1]))
        found[here] = np.bincount(triple[continuation])[triple] > 1
    return found
