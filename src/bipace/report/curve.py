"""Read a run's log and draw its learning curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bipace.rollout.intervals import success_interval

__all__ = ["draw_curve", "read_metrics"]

_RENAMED: dict[str, str] = {"perf/bipace_share": "perf/credit_share"}
"""Metrics that logs of earlier releases hold under another name."""


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, in iteration order; a last line cut off by a kill is left out.

    Metrics bear today's names, whatever release wrote them.

    Raises:
        FileNotFoundError: the folder holds no log.
    """
    lines: list[dict[str, Any]] = []
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            read: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            break
        lines.append({_RENAMED.get(name, name): value for name, value in read.items()})
    return lines


def draw_curve(metrics: Sequence[dict[str, Any]], panel: str, n: int, title: str, path: Path) -> None:
    """Success over iterations: training rollouts as a line, the panel as points with 95 % intervals.

    Where rewards are not 0 and 1 alone, the panel's score (mean reward) is a second line.

    Args:
        metrics: lines of metrics.jsonl.
        panel: the validation panel's name.
        n: tasks in the panel.
        title: of the figure.
        path: where the PNG goes.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
    training = [(m["iteration"], m["episode/success_rate"]) for m in metrics if "episode/success_rate" in m]
    if training:
        axes.plot(*zip(*training, strict=True), color="#9db4c8", linewidth=1.2, label="training rollouts")
    key = f"val/{panel}/success"
    validation = [(m["iteration"], m[key]) for m in metrics if key in m]
    if validation:
        x, y = zip(*validation, strict=True)
        intervals = [success_interval(round(v * n), n) for v in y]
        below = [max(v - low, 0.0) for v, (low, _) in zip(y, intervals, strict=True)]
        above = [max(high - v, 0.0) for v, (_, high) in zip(y, intervals, strict=True)]
        axes.errorbar(
            x,
            y,
            yerr=[below, above],
            color="#c2410c",
            marker="o",
            markersize=4,
            capsize=2,
            label=f"{panel} (95 %)",
        )
    scores = [(m["iteration"], m[f"val/{panel}/reward_mean"]) for m in metrics if key in m]
    if [score for _, score in scores] != [success for _, success in validation]:
        axes.plot(
            *zip(*scores, strict=True), color="#3f6212", marker="s", markersize=3, label=f"{panel}, score"
        )
    axes.set(xlabel="iteration", ylabel="success rate", ylim=(0, 1), title=title)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
