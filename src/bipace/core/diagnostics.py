"""Numbers that say whether credit had anything to compare: singletons, sizes, peers, actions, branches.

The tables of the BiPACE paper (arXiv 2606.25556) and the questions of its readers, computed from the outcomes
that `advantages` returns. Names are metric names; units are in `docs/metrics.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bipace.core import segments
from bipace.core.advantages import Advantages, Branch, Outcome
from bipace.core.calibrate import calibration_metrics, choose
from bipace.core.graph import succeeded
from bipace.core.returns import trajectory_return
from bipace.core.steps import StepBatch

__all__ = [
    "DegenerateClustersWarning",
    "aliasing",
    "batch_diagnostics",
    "cluster_diagnostics",
    "credit_diagnostics",
    "degenerate_clusters",
    "term_diagnostics",
]


class DegenerateClustersWarning(UserWarning):
    """Clusters in which hardly anything is compared, or different states are compared as one.

    Examples:
        >>> import warnings
        >>> from bipace.core.diagnostics import DegenerateClustersWarning, degenerate_clusters
        >>> shape = {"lone_step_share": 0.97, "singleton_rate": 0.99, "largest_share": 0.1}
        >>> said = degenerate_clusters(shape)
        >>> with warnings.catch_warnings(record=True) as seen:
        ...     warnings.simplefilter("always", DegenerateClustersWarning)
        ...     warnings.warn(said, DegenerateClustersWarning)
        ...
        >>> str(seen[0].message)[:45]
        '97 % of the steps are alone in their cluster,'
    """


_FEW_SINGLETONS, _MOST_OF_A_GROUP, _NEARLY_ALL = 0.05, 0.8, 0.9


def cluster_diagnostics(batch: StepBatch, outcome: Outcome) -> dict[str, float]:
    """What the clusters of one step term look like.

    `comparable_pairs` counts ordered pairs of distinct steps in one cluster; `singleton_rate` is lone
    clusters per cluster, `lone_step_share` lone steps per step; `loop_clusters` counts clusters of two or
    more steps that all come from one trajectory; `largest_share` is the largest share of its prompt group any
    cluster holds (a value near 1 with a tiny singleton rate means that everything collapsed into one
    cluster). An empty table gives zeros.
    """
    peers = outcome.peers
    if not len(batch):
        return dict.fromkeys(_CLUSTER_KEYS, 0.0)
    clusters = peers.cluster
    size = np.bincount(clusters)
    first = segments.first_rows(clusters)
    trajectories = np.bincount(clusters[segments.first_rows(segments.pair(clusters, batch.trajectory))])
    actions = np.bincount(clusters[segments.first_rows(peers.cluster_action)])
    several = size > 1
    group_size = segments.count(segments.compact(batch.task))[first]
    return {
        "clusters": float(len(size)),
        "singleton_rate": float((size == 1).mean()),
        "lone_step_share": float((size == 1).sum() / len(batch)),
        "cluster_size_mean": float(size.mean()),
        "cluster_size_p90": float(np.quantile(size, 0.9)),
        "cluster_size_max": float(size.max()),
        "largest_share": float((size / group_size).max()),
        "comparable_pairs": float((size * (size - 1)).sum()),
        "trajectories_per_cluster": float(trajectories.mean()),
        "loop_clusters": float((several & (trajectories == 1)).sum()),
        "actions_per_cluster": float(actions[several].mean()) if several.any() else 0.0,
        "multi_action_rate": float((actions[several] > 1).mean()) if several.any() else 0.0,
    }


_CLUSTER_KEYS = (
    "clusters", "singleton_rate", "lone_step_share", "cluster_size_mean", "cluster_size_p90",
    "cluster_size_max",
    "largest_share", "comparable_pairs", "trajectories_per_cluster", "loop_clusters", "actions_per_cluster",
    "multi_action_rate",
)  # fmt: skip


def degenerate_clusters(found: Mapping[str, float]) -> str:
    """What is wrong with clusters in which hardly anything is compared, or everything is.

    An empty text where nothing is wrong.

    Args:
        found: the result of `cluster_diagnostics`.
    """
    if found["lone_step_share"] >= _NEARLY_ALL:
        return (
            f"{100 * found['lone_step_share']:.0f} % of the steps are alone in their cluster, so the step "
            "term says hardly anything; take a larger credit.eps, or choose layer and eps with `bipace "
            "calibrate`"
        )
    if found["singleton_rate"] <= _FEW_SINGLETONS and found["largest_share"] >= _MOST_OF_A_GROUP:
        return (
            f"one cluster holds {100 * found['largest_share']:.0f} % of its prompt group and only "
            f"{100 * found['singleton_rate']:.0f} % of the clusters hold one step, so different states are "
            "compared as one; take a smaller credit.eps, or choose layer and eps with `bipace calibrate`"
        )
    return ""


def term_diagnostics(outcome: Outcome) -> dict[str, float]:
    """Share of rows on each branch of a term, and share of rows it says exactly nothing about."""
    n = max(len(outcome.value), 1)
    shares = {f"branch_{b.name.lower()}": float((outcome.branch == b).sum() / n) for b in Branch}
    return {**shares, "zero_share": float((outcome.value == 0).sum() / n)}


def batch_diagnostics(batch: StepBatch) -> dict[str, float]:
    """Prompt groups: how many, how many hold one trajectory, no outcome variance, or no success.

    Variance is judged on the trajectory return without penalties, so an all-fail group counts as one whatever
    was taken off for invalid actions. A trajectory succeeded where its return is above 0 and no horizon cut
    it (`bipace.core.graph.succeeded`).
    """
    if not len(batch):
        return dict.fromkeys(
            ("groups", "lone_groups", "flat_groups", "failed_groups", "trajectories", "steps"), 0.0
        )
    first = segments.first_rows(segments.compact(batch.trajectory))
    task = segments.compact(batch.task[first])
    returns = trajectory_return(batch)[first]
    one_each = segments.first_rows(task)
    won = segments.total(succeeded(batch)[first].astype(np.float64), task)
    return {
        "groups": float(len(one_each)),
        "lone_groups": float((segments.count(task)[one_each] == 1).sum()),
        "flat_groups": float(segments.constant(returns, task)[one_each].sum()),
        "failed_groups": float((won[one_each] == 0).sum()),
        "trajectories": float(len(first)),
        "steps": float(len(batch)),
    }


def aliasing(batch: StepBatch) -> float:
    """Share of (task, observation, action) triples seen twice that led to different next observations.

    Above 0 in a deterministic environment, the observation does not identify the state. 0 where nothing
    repeats.
    """
    order = batch.order()
    if len(order) < 2:
        return 0.0
    here, there = order[:-1], order[1:]
    follows = batch.trajectory[here] == batch.trajectory[there]
    here, there = here[follows], there[follows]
    if not len(here):
        return 0.0
    triple = segments.pair(segments.pair(batch.task[here], batch.observation[here]), batch.action[here])
    continuation = segments.pair(triple, batch.observation[there])
    seen = np.bincount(triple)
    distinct = np.bincount(triple[segments.first_rows(continuation)])
    repeated = seen > 1
    return float((distinct[repeated] > 1).mean()) if repeated.any() else 0.0


def credit_diagnostics(batch: StepBatch, found: Advantages) -> dict[str, float]:
    """All diagnostics of one iteration, flat, with the prefixes `group/`, `cluster/`, `credit/`.

    Cluster numbers describe the last step term (the finest comparison of every published recipe); a recipe
    without a step term has none.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> found = bipace.advantages(batch, bipace.recipe("gigpo"))
        >>> bipace.credit_diagnostics(batch, found)["cluster/singleton_rate"]
        0.0
    """
    out = {f"group/{k}": v for k, v in batch_diagnostics(batch).items()}
    out["cluster/aliasing"] = aliasing(batch)
    step_terms = [o for o in found.outcomes if o.term.unit == "step"]
    for outcome in step_terms[-1:]:
        out |= {f"cluster/{k}": v for k, v in cluster_diagnostics(batch, outcome).items()}
        out |= {f"credit/{k}": v for k, v in term_diagnostics(outcome).items()}
    chosen = choose(batch, (outcome.term for outcome in found.outcomes))
    if chosen is not None:
        out |= {f"credit/{k}": v for k, v in calibration_metrics(chosen).items()}
    out["credit/zero_advantage_share"] = float((found.values == 0).mean()) if len(batch) else 0.0
    return out
