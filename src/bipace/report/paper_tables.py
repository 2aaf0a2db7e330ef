"""The diagnostic tables of the BiPACE paper, from our own records.

Clusters and branches at chosen iterations.

Every figure is a mean over the seeds that logged it at that very iteration. The paper's own figures stand
beside ours in a column of their own where there are any; they come from a 7B model on four GPUs and are not
comparable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bipace.report.curves import series
from bipace.report.runs import RunRecord

__all__ = ["BRANCHES", "CLUSTERS", "PUBLISHED", "chosen_iterations", "paper_tables"]

CLUSTERS = {
    "cluster/singleton_rate": "singleton clusters",
    "cluster/cluster_size_mean": "mean size",
    "cluster/cluster_size_p90": "P90 size",
    "cluster/comparable_pairs": "pairs",
}
"""Table 1 and table L.3 of the paper: metric -> column."""

BRANCHES = {
    "credit/branch_compared": "by Q - V",
    "credit/branch_fallback": "leave-one-out",
    "credit/branch_lone": "alone",
    "cluster/multi_action_rate": "clusters with two actions",
    "cluster/actions_per_cluster": "keys a cluster",
}
"""Table L.2 of the paper: metric -> column."""

PUBLISHED = {
    "ALFWorld 7B, observation hash": {
        "cluster/singleton_rate": 0.273,
        "cluster/cluster_size_mean": 7.5,
        "cluster/cluster_size_p90": 16.3,
        "cluster/comparable_pairs": 37_000,
    },
    "ALFWorld 7B, hidden state": {
        "cluster/singleton_rate": 0.180,
        "cluster/cluster_size_mean": 11.7,
        "cluster/cluster_size_p90": 26.7,
        "cluster/comparable_pairs": 48_000,
        "credit/branch_compared": 0.802,
        "credit/branch_fallback": 0.179,
        "credit/branch_lone": 0.019,
        "cluster/multi_action_rate": 0.583,
        "cluster/actions_per_cluster": 2.76,
    },
    "TextCraft 7B, observation hash": {
        "cluster/singleton_rate": 0.503,
        "cluster/cluster_size_mean": 7.1,
        "cluster/cluster_size_p90": 16.1,
        "cluster/comparable_pairs": 143_000,
    },
    "TextCraft 7B, hidden state": {
        "cluster/singleton_rate": 0.224,
        "cluster/cluster_size_mean": 21.6,
        "cluster/cluster_size_p90": 53.0,
        "cluster/comparable_pairs": 314_000,
    },
}
"""arXiv 2606.25556, second hand (readers' notes of its appendix): 7B, four H100, not comparable with ours."""


def chosen_iterations(runs: Sequence[RunRecord], asked: Sequence[int] = ()) -> list[int]:
    """The iterations of the tables.

    The asked ones, else the first, the tenth, and the last that every run reached.

    Raises:
        ValueError: an iteration below 1, or one that no run has reached.
    """
    last = max((run.iterations for run in runs), default=0)
    for iteration in asked:
        if not 1 <= iteration <= last:
            raise ValueError(
                f"report: --at {iteration}: expected an iteration from 1 to {last}, the last logged one"
            )
    shared = min((run.iterations for run in runs), default=0)
    return sorted(set(asked)) or sorted({i for i in (1, 10, shared) if 1 <= i <= shared})


def paper_tables(methods: Mapping[str, Sequence[RunRecord]], iterations: Sequence[int]) -> dict[str, Any]:
    """Method -> iteration -> metric -> mean over seeds; a metric that nobody logged there is left out."""
    found: dict[str, Any] = {}
    for method, runs in methods.items():
        rows = {str(i): _means(runs, i) for i in iterations}
        found[method] = {iteration: row for iteration, row in rows.items() if row}
    return {"iterations": list(iterations), "methods": {m: rows for m, rows in found.items() if rows}}


def _means(runs: Sequence[RunRecord], iteration: int) -> dict[str, float]:
    means: dict[str, float] = {}
    for metric in (*CLUSTERS, *BRANCHES):
        values = [dict(zip(*series(run, metric), strict=True)).get(iteration) for run in runs]
        logged = [value for value in values if value is not None]
        if logged:
            means[metric] = sum(logged) / len(logged)
    return means
