"""The verl plug-in on the CPU: capture error, cost, memory, success before and after. Writes results/verl.json.

Runs in the environment of `make test-engines`:

    PYTHONPATH=src .venv-verl/bin/python benchmarks/verl.py              # some ten minutes on two cores
    PYTHONPATH=src .venv-verl/bin/python benchmarks/verl.py --no-jobs    # without Ray: capture error, memory, credit
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "engines"))

from launch import ACTOR, HELPERS, environment, job

from bipace.core.advantages import advantages
from bipace.envs.registry import get_suite
from bipace.integrations.verl.data import write_tasks
from bipace.integrations.verl.rows import to_table
from bipace.integrations.verl.settings import read_settings

RESULT = Path(__file__).parent / "results" / "verl.json"
ROWS, WIDTH, GROUPS, MEMBERS = 4096, 3584, 16, 8
STEPS = 12


def entry(figure: str, unit: str, value: float, floor: float | None = None) -> dict[str, object]:
    ratio = None if floor is None or value == 0 else round(floor / value, 2)
    return {"figure": figure, "unit": unit, "value": value, "floor": floor, "ratio": ratio}


def capture_error(ranks: int) -> float:
    """Largest relative difference of a captured vector from a plain forward's, over layers, packed and padded."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", str(HELPERS / "engine_forward.py"), str(ACTOR)]
        processes = [
            subprocess.Popen(
                [*command, str(rank), str(ranks), f"{folder}/store"],
                env=environment(Path(folder)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        outputs = [process.communicate()[0] for process in processes]
    return max(max(json.loads(out.splitlines()[-1])["error"].values()) for out in outputs)


def credit_at_scale() -> tuple[float, float, float]:
    """Seconds of credit, MiB of features and peak MiB beside them, at 4,096 rows x 3,584 in 16 groups of 8."""
    rng = np.random.default_rng(0)
    steps = ROWS // (GROUPS * MEMBERS)
    keys = [f"u{g}_{m}_{t}" for g in range(GROUPS) for m in range(MEMBERS) for t in range(steps)]
    # States repeat within a group, as they do in episodes of one task: 64 directions, with noise.
    centres = rng.normal(size=(GROUPS, 64, WIDTH)).astype(np.float32)
    chosen = rng.integers(64, size=ROWS)
    features = centres[np.repeat(np.arange(GROUPS), ROWS // GROUPS), chosen]
    features += 0.1 * rng.normal(size=features.shape).astype(np.float32)
    records = [
        {
            "reward": 10.0 * (t == steps - 1 and m % 2), "observation": f"o{s}", "action": f"a{s % 3}", "parsed": True,
            "aborted": False, "steps": steps, "episode_terminated": bool(m % 2),
        }
        for s, (m, t) in zip(chosen.tolist(), [(int(k.split("_")[1]), int(k.split("_")[2])) for k in keys], strict=True)
    ]  # fmt: skip
    recipe = read_settings({"credit": {"eps": 0.1}}, "bipace").recipe()

    def credit() -> None:
        rows, _ = to_table(keys, records, [False] * ROWS, features=features)
        advantages(rows.batch, recipe)

    start = time.perf_counter()
    credit()
    seconds = time.perf_counter() - start
    tracemalloc.start()
    credit()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return seconds, features.nbytes / 2**20, peak


def jobs() -> list[dict[str, object]]:
    """Short jobs for cost, and one long enough to learn."""
    figures: list[dict[str, object]] = []
    suite = get_suite("textcraft")
    shapes = [(1, True, 2, 4, 4), (2, False, 2, 4, 4), (2, True, 2, 4, 4), (1, False, STEPS, 16, 8)]
    for ranks, packed, steps, tasks, group in shapes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_tasks(suite, "train", folder / "train.parquet", limit=2048)
            write_tasks(suite, "train-panel", folder / "val.parquet", limit=128)
            learns = steps == STEPS
            extra = ("trainer.val_before_train=True", f"trainer.test_freq={STEPS}") if learns else ()
            done = job(folder, extra, ranks=ranks, packed=packed, steps=steps, tasks=tasks, group=group)
        what = f"{ranks} rank(s), {'packed' if packed else 'padded'}, {tasks} tasks x {group}"
        last = done.metrics[steps]
        figures.append(entry(f"bipace share of a step: {what}", "share", last["perf/bipace_share"], 0.01))
        figures.append(entry(f"rows of a step: {what}", "rows", last["group/steps"]))
        figures.append(entry(f"whole job of {steps} steps: {what}", "seconds", done.seconds))
        if learns:
            (acc,) = [k for k in last if k.startswith("val-core/") and "/acc/mean@1" in k]
            figures.append(entry(f"success before: {what}", "share", done.metrics[0][acc]))
            figures.append(entry(f"success after {steps} steps: {what}", "share", last[acc]))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-jobs", action="store_true", help="leave out what needs Ray")
    given = parser.parse_args()
    figures = [entry(f"capture error, {ranks} rank(s), all layers", "relative", capture_error(ranks), 1e-6)
               for ranks in (1, 2)]  # fmt: skip
    seconds, features, peak = credit_at_scale()
    figures += [
        entry(f"credit of {ROWS} rows x {WIDTH}", "seconds", seconds),
        entry(f"features of {ROWS} rows x {WIDTH}", "MiB", features),
        entry(f"peak of credit beside the features, {ROWS} rows x {WIDTH}", "MiB", peak),
    ]
    if not given.no_jobs:
        figures += jobs()
    names = ("verl", "torch", "transformers", "ray", "numpy")
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, CPU only",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in names}},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "PYTHONPATH=src .venv-verl/bin/python benchmarks/verl.py" + " --no-jobs" * given.no_jobs,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    json.dump(figures, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
