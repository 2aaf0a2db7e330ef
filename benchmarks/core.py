"""Speed of the core, as ratios in one run. Writes benchmarks/results/core.json.

    PYTHONPATH=src python benchmarks/core.py [--public path/to/core_gigpo.py]

Three figures: GiGPO's returns and advantages on 6,400 rows x 512 tokens against plain loops of the kind the
public code uses (and against that code itself where a copy is named; it needs torch); clustering of 16 groups
x 400 x 3,584 float32 features against the matrix products alone, with one thread and with two; seconds and
memory from 10^3 to 10^6 rows. The product's floor is numpy's `X @ X.T`, which computes half of a symmetric
result; a general product of the same shapes is reported beside it. `peak_mb` is the process's high-water mark
so far, from the smallest table to the largest.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from bipace.core.advantages import advantages
from bipace.core.clustering import by_features
from bipace.core.estimators import recipe
from bipace.core.steps import StepBatch

RESULT = Path(__file__).parent / "results" / "core.json"
ROWS, TOKENS = 6_400, 512
GROUPS, MEMBERS, WIDTH = 16, 400, 3_584
GROWING = ("grpo", "rloo", "gigpo", "hgpo", "bipace", "pooled")
OPTIONS = {"bipace": {"clusters": "observation"}}


def table(rows: int, length: int = 25, group: int = 8) -> StepBatch:
    """Trajectories of `length` steps in groups of 8, observations that repeat, success at the end of half of
    them.
    """
    random = np.random.default_rng(0)
    trajectory = np.arange(rows) // length
    t = np.arange(rows) % length
    won = random.random(trajectory[-1] + 1) < 0.5
    last = np.r_[t[1:] == 0, True]
    return StepBatch(
        task=trajectory // group, trajectory=trajectory, t=t, reward=10.0 * (won[trajectory] & last),
        terminated=last,
        truncated=np.zeros(rows, bool), observation=random.integers(0, 40, rows),
        action=random.integers(0, 6, rows),
    )  # fmt: skip


def best_seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """The least of some timings: the machine is shared."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def ours(batch: StepBatch, mask: np.ndarray) -> np.ndarray:
    return (
        advantages(batch, recipe("gigpo", convention="verl_agent")).values.astype(np.float32)[:, None] * mask
    )


def plain_loops(batch: StepBatch, mask: np.ndarray, gamma: float = 0.95) -> np.ndarray:
    """The same numbers row by row: a search for a trajectory's rows, dicts of lists, a loop over rows."""
    returns = {}
    for trajectory in np.unique(batch.trajectory):
        rewards = batch.reward[np.where(batch.trajectory == trajectory)[0]]
        found, running = np.zeros(len(rewards)), 0.0
        for t in reversed(range(len(rewards))):
            running = rewards[t] + gamma * running
            found[t] = running
        returns[trajectory] = found
    to_go = np.zeros(len(batch))
    for i, trajectory in enumerate(batch.trajectory):
        rows = np.where(batch.trajectory == trajectory)[0]
        to_go[i] = returns[trajectory][np.where(rows == i)[0][0]]
    totals = np.zeros(len(batch))
    for i in range(len(batch)):
        totals[i] = batch.reward[np.where(batch.trajectory == batch.trajectory[i])[0]].sum()
    keys = [(task, observation) for task, observation in zip(batch.task, batch.observation, strict=True)]
    joint = _normalised(totals, list(batch.task)) + _normalised(to_go, keys)
    return joint.astype(np.float32)[:, None] * mask


def _normalised(values: np.ndarray, keys: list) -> np.ndarray:
    members: dict[Any, list[float]] = {}
    for key, value in zip(keys, values, strict=True):
        members.setdefault(key, []).append(value)
    out = np.zeros(len(values))
    for i, key in enumerate(keys):
        group = members[key]
        out[i] = (values[i] - np.mean(group)) / (np.std(group, ddof=1) + 1e-6) if len(group) > 1 else 0.0
    return out


def public(module: ModuleType, batch: StepBatch) -> Callable[[], Any]:
    """The public code on the same table."""
    import torch

    columns = {
        "rewards": batch.reward,
        "traj_uid": batch.trajectory.astype(str),
        "active_masks": np.ones(len(batch)),
    }
    data = SimpleNamespace(non_tensor_batch=columns, batch={"input_ids": torch.zeros(1)})
    totals = np.bincount(batch.trajectory, weights=batch.reward)[batch.trajectory]
    tokens = torch.zeros(len(batch), TOKENS)
    tokens[:, -1] = torch.from_numpy(totals).float()
    mask = torch.ones(len(batch), TOKENS)

    def work() -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            step = module.compute_step_discounted_returns(data, 0.95)
            return module.compute_gigpo_outcome_advantage(
                tokens.clone(), step, mask, batch.observation, batch.task.astype(str), columns["traj_uid"],
                mode="mean_std_norm",
            )[0]  # fmt: skip

    return work


def gigpo(path: Path | None) -> dict[str, Any]:
    batch, mask = table(ROWS), np.ones((ROWS, TOKENS), np.float32)
    seconds, loops = (
        best_seconds(lambda: ours(batch, mask)),
        best_seconds(lambda: plain_loops(batch, mask), 1),
    )
    assert np.allclose(ours(batch, mask)[:, 0], plain_loops(batch, mask)[:, 0], rtol=1e-4, atol=1e-4)
    found = {
        "figure": f"GiGPO returns and advantages, {ROWS} rows x {TOKENS} tokens", "unit": "s",
        "value": seconds,
        "peer": {"plain loops": loops}, "ratio": loops / seconds, "target": ">= 50",
    }  # fmt: skip
    if path is not None:
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location("core_gigpo", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        work = public(module, batch)
        assert np.allclose(work()[:, 0].numpy(), ours(batch, mask)[:, 0], rtol=1e-3, atol=1e-3)
        found["peer"]["verl-agent's public code"] = best_seconds(work, 2)
        found["ratio_public"] = found["peer"]["verl-agent's public code"] / seconds
    return found


def clustering(clusters: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    groups = []
    for _ in range(GROUPS):
        centres = random.standard_normal((clusters, WIDTH)).astype(np.float32)
        which = random.permutation(
            np.r_[np.arange(clusters), random.integers(clusters, size=MEMBERS - clusters)]
        )
        groups.append(centres[which] + 0.05 * random.standard_normal((MEMBERS, WIDTH)).astype(np.float32))
    others = [group.copy() for group in groups]
    n = GROUPS * MEMBERS
    batch = StepBatch(
        task=np.repeat(np.arange(GROUPS), MEMBERS), trajectory=np.arange(n), t=np.zeros(n, int),
        reward=np.zeros(n),
        terminated=np.ones(n, bool), truncated=np.zeros(n, bool), observation=np.zeros(n, int),
        action=np.zeros(n, int),
        features=np.concatenate(groups),
    )  # fmt: skip
    # Alternating, so that a busy neighbour slows both.
    times = []
    for _ in range(15):
        times.append(
            [
                best_seconds(lambda: [g @ g.T for g in groups], 1),
                best_seconds(lambda: [g @ o.T for g, o in zip(groups, others, strict=True)], 1),
                best_seconds(lambda: by_features(batch, 0.1), 1),
                best_seconds(lambda: by_features(batch, 0.1, form="plain"), 1),
            ]
        )
    floor, general, seconds, plain = np.min(times, axis=0).tolist()
    assert len(set(by_features(batch, 0.1).tolist())) == GROUPS * clusters
    return {
        "figure": f"clustering {GROUPS} groups x {MEMBERS} x {WIDTH}, {clusters} clusters each", "unit": "s",
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0)),
        "value": seconds, "floor": floor, "ratio": seconds / floor, "target": "<= 1.3",
        "general_product": general, "ratio_general_product": seconds / general, "form_plain": plain,
    }  # fmt: skip


def clusterings(threads: int) -> list[dict[str, Any]]:
    """The clustering figures of a process of its own: the number of threads is fixed when numpy is loaded."""
    done = subprocess.run(
        [sys.executable, __file__, "--clusterings"], env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def growth() -> list[dict[str, Any]]:
    out = []
    for rows in (1_000, 10_000, 100_000, 1_000_000):
        batch = table(rows)
        for name in GROWING:
            made = recipe(name, **OPTIONS.get(name, {}))
            seconds = best_seconds(lambda made=made, batch=batch: advantages(batch, made), 3)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            out.append(
                {
                    "recipe": name,
                    "rows": rows,
                    "s": seconds,
                    "us_per_row": 1e6 * seconds / rows,
                    "peak_mb": peak,
                }
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--public", type=Path, help="a copy of verl-agent's gigpo/core_gigpo.py, importable where it lies"
    )
    parser.add_argument("--clusterings", action="store_true", help="print the clustering figures alone")
    arguments = parser.parse_args()
    if arguments.clusterings:
        print(json.dumps([clustering(k) for k in (10, 80, 400)]))
        return
    growing = growth()  # first, so that its memory is its own
    result = {
        "figures": [gigpo(arguments.public), *clusterings(1), *clusterings(2)],
        "growth": growing,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, shared",
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "PYTHONPATH=src python benchmarks/core.py"
        + (" --public FILE" if arguments.public else ""),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for figure in result["figures"]:
        print(figure["figure"], {k: v for k, v in figure.items() if k.startswith(("ratio", "threads"))})


if __name__ == "__main__":
    main()
