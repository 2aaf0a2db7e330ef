"""What methods are told apart by beside their curves: families of tasks, cost, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bipace.report.curves import series
from bipace.report.diagnostics import COST_PARTS
from bipace.report.runs import RunRecord, config_differences
from bipace.report.stats import (
    mean_std,
)

__all__ = ["Methods", "by_family", "cost_by_part", "settings_that_differ"]

Methods = Mapping[str, Sequence[RunRecord]]


def by_family(methods: Methods, panel: str) -> dict[str, dict[str, Any]]:
    """Method -> family -> success at the last validation of the panel, over seeds."""
    prefix = f"val/{panel}/success/"
    found: dict[str, dict[str, Any]] = {}
    for method, runs in methods.items():
        keys = sorted({k for run in runs for line in run.metrics for k in line if k.startswith(prefix)})
        found[method] = {}
        for key in keys:
            ends = [values for run in runs if (values := series(run, key)[1])]
            mean, std = mean_std([v[-1] for v in ends])
            found[method][key.removeprefix(prefix)] = {
                "first": mean_std([v[0] for v in ends])[0],
                "mean": mean,
                "std": std,
            }
    return found


def cost_by_part(runs: Sequence[RunRecord]) -> dict[str, float]:
    """Median seconds of an iteration by part, over the iterations of all seeds.

    What no part covers is `other`.
    """
    found: dict[str, float] = {}
    for part in (*COST_PARTS, "iteration"):
        values = [v for run in runs for v in series(run, f"timing_s/{part}")[1]]
        if values:
            found[part] = float(np.median(values))
    if "iteration" in found:
        found["other"] = max(found["iteration"] - sum(found.get(part, 0.0) for part in COST_PARTS), 0.0)
    shares = [v for run in runs for v in series(run, "perf/credit_share")[1]]
    return {**found, "credit_share": float(np.median(shares))} if shares else found


def settings_that_differ(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Settings in which environments and methods differ; the seed is what repetitions differ in."""
    shown: dict[str, dict[str, Any]] = {}
    for run in runs:
        kept = {k: v for k, v in run.config.items() if k != "run.seed"}
        shown.setdefault(f"{run.environment}/{run.method}", kept)
    within = sorted(
        {
            key
            for name in shown
            for key in config_differences(
                {r.name: r.config for r in runs if f"{r.environment}/{r.method}" == name}
            )
            if key != "run.seed"
        }
    )
    return {"names": list(shown), "differences": config_differences(shown), "differ_between_seeds": within}
