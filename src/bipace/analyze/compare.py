"""Two files side by side: each file's own numbers, and the tasks that both have.

For every pair of files the difference of a task's mean outcome is averaged over the tasks that both hold; its
interval is a percentile bootstrap over those tasks (Efron 1979). Few shared tasks give a wide interval, one
gives none.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bipace.analyze.pools import short
from bipace.core import segments
from bipace.core.steps import Ints

if TYPE_CHECKING:
    from bipace.analyze.analysis import Analysis

__all__ = ["compare_files"]

MOST_FILES, MOST_TASKS, RESAMPLES = 12, 400, 2000


def compare_files(analysis: Analysis) -> dict[str, Any] | None:
    """Numbers of each file and the tasks that pairs share.

    None for one file, for many, or for one rollout a file.

    Returns:
        files: one entry a file; pairs: [a, b, tasks, mean difference b - a, interval or None, better, worse];
        tasks: name -> {file: [trajectories, mean outcome, prompt group]}, for tasks that several files hold.
    """
    table = analysis.table
    files = np.unique(table.source).tolist()
    if not 2 <= len(files) <= MOST_FILES or len(table.trajectories) == len(files):
        return None
    tasks = _tasks(analysis)
    shared = {name: entry for name, entry in tasks.items() if len(entry) > 1}
    spread = sorted(shared, key=lambda n: -float(np.ptp([mean for _, mean, _ in shared[n].values()])))
    return {
        "files": [_numbers(analysis, file) for file in files],
        "pairs": [_pair(shared, a, b) for a, b in combinations(files, 2)],
        "tasks": {name: {str(k): v for k, v in shared[name].items()} for name in spread[:MOST_TASKS]},
        "left_out": max(len(shared) - MOST_TASKS, 0),
    }


def _tasks(analysis: Analysis) -> dict[str, dict[int, list[Any]]]:
    """Task name as the file has it -> file -> [trajectories, mean outcome, prompt group]."""
    table = analysis.table
    group = table.batch.task[segments.first_rows(table.batch.trajectory)]
    gathered: dict[str, dict[int, tuple[list[float], int]]] = {}
    for i, trajectory in enumerate(table.trajectories):
        entry = gathered.setdefault(trajectory.task, {}).setdefault(int(table.source[i]), ([], int(group[i])))
        entry[0].append(float(table.outcome[i]))
    return {
        name: {
            file: [len(outcomes), short(float(np.mean(outcomes))), at]
            for file, (outcomes, at) in entry.items()
        }
        for name, entry in gathered.items()
    }


def _numbers(analysis: Analysis, file: int) -> dict[str, Any]:
    table, health, batch = analysis.table, analysis.health, analysis.table.batch
    mine = table.source == file
    rows = mine[batch.trajectory]
    task = segments.compact(batch.task[segments.first_rows(batch.trajectory)][mine])
    sizes = np.bincount(task)
    flat = segments.constant(table.outcome[mine], task)[segments.first_rows(task)]
    several = sizes > 1
    numbers = {
        "trajectories": float(mine.sum()),
        "groups": float(len(sizes)),
        "steps": float(rows.sum()),
        "outcome_mean": float(table.outcome[mine].mean()),
        "positive_outcome_share": float((table.outcome[mine] > 0).mean()),
        "flat_group_share": float(flat[several].mean()) if several.any() else None,
        "steps_per_trajectory_mean": float(rows.sum() / mine.sum()),
        "duplicate_share": float(health.duplicate[mine].mean()),
        "loop_step_share": float(health.looping[rows].mean()),
        "lone_exact_share": _lone(analysis, "gigpo", rows),
        "lone_near_share": _lone(analysis, "bipace", rows),
        "parse_rate": None if table.parsed is None else float(table.parsed[rows].mean()),
    }
    return {"file": file, **{name: None if v is None else short(v) for name, v in numbers.items()}}


def _lone(analysis: Analysis, recipe: str, rows: np.ndarray) -> float:
    """Share of the file's steps whose cluster holds no other step."""
    term = next(t for t in analysis.credits[recipe].terms if t.unit == "step")
    cluster: Ints = segments.compact(term.cluster)
    return float((segments.count(cluster)[rows] == 1).mean())


def _pair(shared: dict[str, dict[int, list[Any]]], a: int, b: int) -> list[Any]:
    found = [entry[b][1] - entry[a][1] for entry in shared.values() if a in entry and b in entry]
    if not found:
        return [a, b, 0, None, None, 0, 0]
    differences = np.array(found)
    interval = None
    if len(differences) > 1:
        generator = np.random.default_rng(0)
        drawn = differences[generator.integers(0, len(differences), (RESAMPLES, len(differences)))].mean(
            axis=1
        )
        interval = [short(v) for v in np.quantile(drawn, [0.025, 0.975]).tolist()]
    mean = short(float(differences.mean()))
    return [a, b, len(found), mean, interval, int((differences > 0).sum()), int((differences < 0).sum())]
