"""Run folders as the trainer leaves them, with made-up numbers: what the report's tests and benchmark
read.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2><!--|$x_1$"
FAMILIES = ("depth-1", "depth-2")


def write_run(folder: Path, *, seed=0, rise=0.3, iterations=20, every=5, config=None, episodes=None):
    """One run whose panel success rises by about `rise` from a half."""
    random = np.random.default_rng((seed, int(1000 * rise)))
    folder.mkdir(parents=True)
    settings = {
        "estimator": "gigpo", "credit": {}, "env": {"suite": "textcraft"},
        "run": {"seed": seed, "iterations": iterations, "validate_every": every}, **(config or {}),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    lines, history = [], {}
    for iteration in range(iterations + 1):
        line = {"iteration": iteration}
        if iteration:
            share = random.uniform(0.1, 0.9)
            line |= {
                "episode/success_rate": random.uniform(0.4, 0.6) + rise * iteration / iterations,
                "cluster/singleton_rate": share, "cluster/comparable_pairs": 1e4 * share,
                "cluster/cluster_size_mean": 5,
                "credit/branch_compared": share, "group/groups": 16, "group/flat_groups": 4,
                "group/steps": 900,
                "event/unparsed": 3, "update/grad_norm": share, "timing_s/rollout": 2.0,
                "timing_s/credit": 0.01,
                "timing_s/update": 1.0, "timing_s/iteration": 3.1 + share, "perf/credit_share": 0.003,
                "perf/peak_memory_mb": 900.0, "perf/tokens_per_s": 1e4,
            }  # fmt: skip
        if iteration % every == 0:
            value = round((0.5 + rise * iteration / iterations + random.normal(0, 0.02)) * 256) / 256
            line["val/demo-panel/success"] = value
            line |= {f"val/demo-panel/success/{family}": value for family in FAMILIES}
            history[str(iteration)] = {"success": value, "n": 256}
            if iteration in (0, iterations):
                line["val/heldout-panel/success"] = value - 0.1
        lines.append(line)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "last").mkdir()
    state = {
        "iteration": iterations,
        "validations": {"demo-panel": history, "heldout-panel": {"0": {"n": 128}}},
    }
    (folder / "last" / "trainer_state.json").write_text(json.dumps(state))
    if episodes is not None:
        (folder / "rollouts.jsonl").write_text("".join(json.dumps(e) + "\n" for e in episodes))
    return folder


def write_study(
    folder: Path, methods, seeds, *, environments=("textcraft",), baseline=None, thresholds=(), **options
):
    """A study folder; methods maps a name to its rise."""
    runs = [
        {"folder": f"{e}/{i}/seed-{seed}", "environment": e, "method": name, "seed": seed}
        for seed in seeds
        for e in environments
        for i, name in enumerate(methods)
    ]
    for run in runs:
        write_run(folder / run["folder"], seed=run["seed"], rise=methods[run["method"]],
                  config={"estimator": run["method"]}, **options)  # fmt: skip
    plan = {"name": folder.name, "baseline": baseline, "thresholds": list(thresholds), "runs": runs}
    (folder / "study.json").write_text(json.dumps(plan))
    return folder


def hostile_episode(won):
    step = {"observation": f"a room {HOSTILE}", "response": f"<action>{HOSTILE}</action>",
        "action": f"go {HOSTILE}",
            "valid": won}  # fmt: skip
    return {"iteration": 20, "task": f"task {HOSTILE}", "won": won, "reward": float(won), "steps": [step] * 3}
