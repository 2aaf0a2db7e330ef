"""What a recipe costs: processor seconds at 10^5 and 10^6 rows, and the memory that the largest needed.

    PYTHONPATH=src OMP_NUM_THREADS=1 python benchmarks/estimators_cost.py

Recipes over observations are measured on tables without features (G = 8, 20 steps, 30 observations a group);
`multiscale` with five radii beside one clustering of `bipace` on 10^4 rows with 64 features. Ratios of one
run mean more than seconds of a busy machine. Writes benchmarks/results/estimators.json.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from bipace.core.steps import StepBatch

RESULT = Path(__file__).parent / "results" / "estimators.json"
NAMES = ("grpo", "gigpo", "hgpo", "salt", "mt_grpo", "gagpo", "g2po", "graphgpo")
STEPS, GROUP = 20, 8


def table(rows: int) -> StepBatch:
    """Full trajectories, 40 % of which succeed."""
    random, count = np.random.default_rng(0), rows // STEPS
    trajectory, t = np.repeat(np.arange(count), STEPS), np.tile(np.arange(STEPS), count)
    last, n = t == STEPS - 1, count * STEPS
    return StepBatch(
        task=trajectory // GROUP, trajectory=trajectory, t=t,
        reward=np.where(last & (random.random(count) < 0.4)[trajectory], 10.0, 0.0), terminated=last,
        truncated=np.zeros(n, bool), observation=random.integers(0, 30, n), action=random.integers(0, 5, n),
    )  # fmt: skip


def seconds(run: Callable[[], Any], times: int = 3) -> float:
    """The least processor time of some runs."""
    found = []
    for _ in range(times):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """Measure and write."""
    small, large = table(100_000), table(1_000_000)
    cost: dict[str, Any] = {}
    for name in NAMES:
        made = recipe(name)
        few, many = (seconds(lambda b=b, m=made: advantages(b, m)) for b in (small, large))
        cost[name] = {
            "seconds_1e5": round(few, 3),
            "seconds_1e6": round(many, 3),
            "ratio": round(many / few, 1),
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    random, rows = np.random.default_rng(1), table(10_000)
    centres = random.standard_normal((30, 64))
    near = centres[rows.observation] + 0.2 * random.standard_normal((len(rows), 64))
    rows = replace(rows, features=near.astype(np.float32))
    one = seconds(lambda: advantages(rows, recipe("bipace")))
    five = seconds(lambda: advantages(rows, recipe("multiscale", radii=(0.2, 0.1, 0.05, 0.02, 0.01))))
    result = {
        "figure": "processor seconds of a recipe", "unit": "s", "by_recipe": cost,
        "peak_mb_at_1e6_rows": round(peak),
        "multiscale_five_radii_over_one_bipace": {"value": round(five / one, 2), "ceiling": 1.6},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "command": "PYTHONPATH=src OMP_NUM_THREADS=1 python benchmarks/estimators_cost.py",
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
