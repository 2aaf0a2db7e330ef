"""What training did to the shop's agent: a finished run's folder as benchmarks/results/webshop_training.json.

bipace train --config webshop --out RUN
PYTHONPATH=src python benchmarks/webshop_training.py RUN
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bipace.report.curve import read_metrics
from bipace.rollout.intervals import score_interval

RESULT = Path(__file__).parent / "results" / "webshop_training.json"
FLOOR = 15.0  # points the score on the training panel is to rise by
SECONDS = 1_200.0  # within which it is to rise


def report(folder: Path) -> dict[str, Any]:
    """Scores and successes before and after on every panel, the curves, and the time, of a run folder."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    log = read_metrics(folder)
    first, last = summary["panel"]["warm_start_score"], summary["panel"]["final_score"]
    panel = next(name for name, values in summary["panels"].items() if values == summary["panel"])
    curve = [
        {name: m[f"val/{panel}/{key}"] for name, key in (("score", "reward_mean"), ("success", "success"))}
        | {"iteration": m["iteration"]}
        for m in log
        if f"val/{panel}/reward_mean" in m
    ]
    trained = [m for m in log if "episode/reward_mean" in m]
    gain = 100 * (last - first)
    return {
        "figure": f"score on {panel} ({summary['panel']['n']} goals of the training split), after minus "
        "before",
        "unit": "points",
        "value": round(gain, 1),
        "floor": FLOOR,
        "ratio": round(gain / FLOOR, 2),
        "data": summary["data"],
        "provenance": summary["provenance"],
        "panels": {
            name: _panel(values) | {"gain_ci95": _gain(folder, name)}
            for name, values in summary["panels"].items()
        },
        "curve": curve,
        "training_score": [round(m["episode/reward_mean"], 3) for m in trained],
        "training_success": [round(m["episode/success_rate"], 3) for m in trained],
        "training_steps_an_episode": [round(m["episode/steps_mean"], 2) for m in trained],
        "seconds": round(summary["seconds"]["train"]),
        "seconds_ceiling": SECONDS,
        "iteration_seconds": round(summary["iteration_seconds"], 2),
        "iterations": summary["iterations"],
        "credit_share": round(summary["credit_share"], 4),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "bipace train --config webshop",
    }


def _panel(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "n": values["n"],
        "score": {
            "before": values["warm_start_score"],
            "before_ci95": values["warm_start_score_ci95"],
            "after": values["final_score"],
            "after_ci95": values["final_score_ci95"],
        },
        "success": {
            "before": values["warm_start"],
            "before_ci95": values["warm_start_ci95"],
            "after": values["final"],
            "after_ci95": values["ci95"],
        },
        "success_by_family": values["family"],
    }


def _gain(folder: Path, panel: str) -> list[float] | None:
    """95 % interval of the gain in points, from the differences goal by goal."""
    files = sorted((folder / "validation").glob(f"iteration-*.{panel}.jsonl"))
    before, after = (
        [json.loads(line) for line in path.read_text().splitlines()] for path in (files[0], files[-1])
    )
    return score_interval([100 * (b["score"] - a["score"]) for a, b in zip(before, after, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="folder of a finished run")
    folder = parser.parse_args().run
    if folder is None:
        print("name a finished run: bipace train --config webshop --out RUN (11 minutes), then this with RUN")
        return
    found = report(folder)
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: found[k] for k in ("figure", "value", "floor", "seconds")}, indent=1))


if __name__ == "__main__":
    main()
