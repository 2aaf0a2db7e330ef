"""Which logged metrics the report draws over time, in which words and units.

docs/metrics.md explains each.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COST_PARTS", "DIAGNOSTICS", "Diagnostic"]


@dataclass(frozen=True)
class Diagnostic:
    """One small chart.

    Attributes:
        metric: name in metrics.jsonl, or two of them as "a / b".
        label: title of the chart.
        unit: "share", "seconds", or what is counted.
    """

    metric: str
    label: str
    unit: str

    @property
    def key(self) -> str:
        """The name it has in the report's JSON."""
        return self.metric


COST_PARTS = ("rollout", "old_logprob", "features", "credit", "reference", "update")

DIAGNOSTICS = tuple(
    Diagnostic(*entry)
    for entry in (
        ("cluster/singleton_rate", "clusters of one step", "share"),
        ("cluster/lone_step_share", "steps without a peer", "share"),
        ("cluster/cluster_size_mean", "mean cluster size", "steps"),
        ("cluster/cluster_size_p90", "P90 cluster size", "steps"),
        ("cluster/largest_share", "largest cluster's share of its group", "share"),
        ("cluster/comparable_pairs", "comparable pairs an iteration", "pairs"),
        ("cluster/actions_per_cluster", "distinct actions per cluster", "actions"),
        ("cluster/multi_action_rate", "clusters with two or more actions", "share"),
        ("cluster/trajectories_per_cluster", "trajectories per cluster", "trajectories"),
        ("cluster/aliasing", "same text, other continuation", "share"),
        ("credit/branch_compared", "steps credited by Q - V", "share"),
        ("credit/branch_fallback", "steps credited by leave-one-out", "share"),
        ("credit/branch_lone", "steps alone: no step credit", "share"),
        ("credit/zero_advantage_share", "steps whose advantage is 0", "share"),
        ("credit/eps", "radius chosen by calibration", "cosine distance"),
        ("group/flat_groups / group/groups", "groups without outcome variance", "share"),
        ("event/unparsed / group/steps", "responses without the action form", "share"),
        ("event/rejected / group/steps", "actions the environment refused", "share"),
        ("event/aborted", "episodes lost to a failing environment", "episodes"),
        ("episode/steps_mean", "steps per episode", "steps"),
        ("update/loss", "loss", "advantage"),
        ("update/clip_share", "tokens clipped", "share"),
        ("update/kl_reference", "KL to the starting policy", "nats per token"),
        ("update/entropy", "entropy", "nats per token"),
        ("update/grad_norm", "gradient norm", "norm"),
        ("update/skipped", "mini-batches skipped", "mini-batches"),
        ("timing_s/iteration", "seconds an iteration", "seconds"),
        ("perf/tokens_per_s", "tokens per second", "tokens / s"),
        ("perf/credit_share", "share of an iteration spent on credit", "share"),
        ("perf/peak_memory_mb", "peak memory", "MiB"),
    )
)
