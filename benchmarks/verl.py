"""The verl plug-in on the CPU: capture error, cost, memory, success before and after. Writes
results/verl.json.

Runs in the environment of `make test-engines`. Whole jobs take minutes, so their figures are those of the
jobs that the tests ran last (8 tasks x 8 episodes a step with one rank; 4 x 4 with two, and in the job that
goes on packed):

    make test-engines && PYTHONPATH=src .venv-verl/bin/python benchmarks/verl.py
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
from datetime import datetime, timezone
from importlib.metadata import distributions, version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "engines"))

from launch import ACTOR, HELPERS, environment

from bipace.core.advantages import advantages
from bipace.integrations.common.rows import to_table
from bipace.integrations.verl.rows import engine_steps
from bipace.integrations.verl.settings import read_settings

RESULT = Path(__file__).parent / "results" / "verl.json"
ROWS, WIDTH, GROUPS, MEMBERS = 4096, 3584, 16, 8
JOBS = Path(__file__).resolve().parents[1] / ".verl-jobs"  # where `make test-engines` leaves them


def entry(figure: str, unit: str, value: float, target: float | None = None) -> dict[str, object]:
    ratio = None if target is None else round(value / target, 4)
    return {"figure": figure, "unit": unit, "value": float(f"{value:.6g}"), "target": target, "ratio": ratio}


def capture_error(ranks: int) -> float:
    """Largest relative difference of a captured vector from a plain forward's, over layers, packed and
    padded.
    """
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


def credit_at_scale(groups: int) -> tuple[float, float, float]:
    """Seconds of credit, MiB of features and peak MiB beside them, for groups of 8 episodes of 32 steps."""
    rng = np.random.default_rng(0)
    steps = ROWS // (GROUPS * MEMBERS)
    n = groups * MEMBERS * steps
    keys = [f"u{g}_{m}_{t}" for g in range(groups) for m in range(MEMBERS) for t in range(steps)]
    # States repeat within a group, as they do in episodes of one task: 64 directions, with noise.
    centres = rng.normal(size=(groups, 64, WIDTH)).astype(np.float32)
    chosen = rng.integers(64, size=n)
    features = centres[np.repeat(np.arange(groups), n // groups), chosen]
    features += 0.1 * rng.standard_normal(features.shape, dtype=np.float32)
    records = [
        {
            "reward": 10.0 * (t == steps - 1 and m % 2), "observation": f"o{s}", "action": f"a{s % 3}",
            "parsed": True,
            "episode": {
                "steps": steps, "reward": float(m % 2), "won": bool(m % 2), "terminated": bool(m % 2),
                "truncated": not m % 2, "overlong": False, "aborted": False, "unparsed": 0, "rejected": 0,
                "unfinished": 0,
            },
        }
        for s, (m, t) in zip(chosen.tolist(), [(int(k.split("_")[1]), int(k.split("_")[2])) for k in keys],
            strict=True)
    ]  # fmt: skip
    recipe = read_settings({"credit": {"eps": 0.1}}, "bipace").recipe()

    def credit() -> None:
        rows, _ = to_table(engine_steps(keys, records, [False] * n), features=features)
        advantages(rows.batch, recipe)

    times = []
    for _ in range(3):
        start = time.perf_counter()
        credit()
        times.append(time.perf_counter() - start)
    tracemalloc.start()
    credit()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return min(times), features.nbytes / 2**20, peak


def jobs() -> list[dict[str, object]]:
    """BiPACE's share of a step in each shape, and success before and after the job that learns."""
    found: list[dict[str, object]] = []
    for path in sorted(JOBS.glob("**/*.figures.json")):
        if path.parent.is_symlink():  # pytest names each folder twice
            continue
        done = json.loads(path.read_text())
        what = f"{done['ranks']} rank(s), {'packed' if done['packed'] else 'padded'}"
        found += [
            entry(f"rows of a step: {what}", "rows", done["rows"]),
            entry(f"one step: {what}", "seconds", done["step_seconds"]),
            entry(f"bipace share of a step: {what}", "share", done["credit_share"], 0.01),
            entry(f"whole job of {done['steps']} steps: {what}", "seconds", done["seconds"]),
        ]
        found += [
            entry(f"success after {step} steps: {what}", "share", success)
            for step, success in done["success"].items()
        ]
    return found


def main() -> None:
    if not list(distributions(name="verl")):  # not find_spec, which finds this file
        print(
            "verl lives in an environment of its own: make test-engines, then .venv-verl/bin/python "
            "benchmarks/verl.py"
        )
        return
    if not JOBS.is_dir():
        print("no finished jobs: make test-engines leaves them in .verl-jobs")
        return
    figures = [entry(f"capture error, {ranks} rank(s), all layers", "relative", capture_error(ranks), 1e-6)
               for ranks in (1, 2)]  # fmt: skip
    seconds, features, peak = credit_at_scale(GROUPS)
    twice, _, twice_peak = credit_at_scale(2 * GROUPS)
    figures += [
        entry(f"credit of {ROWS} rows x {WIDTH}", "seconds", seconds),
        entry(f"features of {ROWS} rows x {WIDTH}", "MiB", features),
        entry(f"peak of credit beside the features, {ROWS} rows x {WIDTH}", "MiB", peak),
        entry("time of credit at twice the rows, as a multiple (linear: 2)", "times", twice / seconds, 2.0),
        entry("peak of credit at twice the rows, as a multiple (linear: 2)", "times", twice_peak / peak, 2.0),
    ]
    figures += jobs()
    names = ("verl", "torch", "transformers", "ray", "numpy")
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, CPU only",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in names}},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "make test-engines && PYTHONPATH=src .venv-verl/bin/python benchmarks/verl.py",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    json.dump(figures, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
