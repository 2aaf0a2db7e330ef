"""Scores as a table for the terminal and a picture for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bipace.truth.score import METRICS

__all__ = ["draw_scores", "hypothesis_table", "markdown_table", "score_table"]


def cell(metric: Mapping[str, Any] | None, interval: bool = True) -> str:
    """`0.52 (0.45-0.59)`; a dash where the metric is not defined."""
    if metric is None or metric["value"] is None:
        return "-"
    if not interval or metric["low"] is None:
        return f"{metric['value']:.2f}"
    return f"{metric['value']:.2f} ({metric['low']:.2f} to {metric['high']:.2f})"


def score_table(scores: Mapping[str, Any]) -> Any:
    """A rich table of one `score_all` result, a row a recipe."""
    from rich.table import Column, Table

    # narrow screens lose no letter
    columns = (Column(name, overflow="fold") for name in ("recipe", *METRICS))
    table = Table(*columns, title=f"noise ceiling of pearson {scores['noise_ceiling']:.2f}")
    for label, entry in scores["recipes"].items():
        table.add_row(label, *(cell(entry[name]) for name in METRICS))
    return table


def hypothesis_table(layers: Mapping[str, Any]) -> Any:
    """A rich table of `hypothesis`.

    Per layer and radius, the spread beside chance, the bias and its bound.
    """
    from rich.table import Column, Table

    columns = ("spread", "by_chance", "bias_mean", "bias_95", "bound", "order_effect")
    table = Table(
        *(Column(name, overflow="fold") for name in ("layer", "rank correlation", "eps", *columns)),
        title="do near states have near values? (docs/credit.md)",
    )
    for name, found in layers.items():
        for eps, at in found["radii"].items():
            table.add_row(
                name, _two(found["rank_correlation"]), eps, *(_two(at[column]) for column in columns)
            )
    return table


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def markdown_table(
    recipes: Mapping[str, Any], metrics: Sequence[str] = METRICS, interval: bool = True
) -> str:
    """The same as Markdown."""
    lines = ["| recipe | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 1) + "|"]
    for label, entry in recipes.items():
        lines.append(
            f"| `{label}` | " + " | ".join(cell(entry.get(name), interval) for name in metrics) + " |"
        )
    return "\n".join(lines)


def draw_scores(
    panels: Mapping[str, Mapping[str, Any]], path: Path, metrics: Sequence[str] = METRICS[:3]
) -> None:
    """Bars with intervals: one row of pictures a panel (name -> `score_all` result), one column a metric."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    longest = max(len(scores["recipes"]) for scores in panels.values())
    shape = (len(panels), len(metrics))
    size = (3.6 * shape[1] + 2, (0.24 * longest + 0.9) * shape[0])
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False, sharey="row")
    for row, (name, scores) in zip(axes, panels.items(), strict=True):
        labels = list(scores["recipes"])[::-1]
        for axis, metric in zip(row, metrics, strict=True):
            found = [scores["recipes"][label][metric] for label in labels]
            values = [m["value"] or 0.0 for m in found]
            spread = np.array([_whiskers(m) for m in found]).T
            axis.barh(labels, values, xerr=spread, color="#9db4c8", ecolor="#33475b", capsize=2)
            axis.set_title(f"{name}: {metric.replace('_', ' ')}", fontsize=9)
            axis.tick_params(labelsize=7)
            axis.grid(axis="x", alpha=0.25)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _whiskers(metric: Mapping[str, Any]) -> tuple[float, float]:
    """How far the interval reaches below and above the value; 0 where there is none."""
    value, low, high = (metric[name] for name in ("value", "low", "high"))
    return (0.0, 0.0) if None in (value, low, high) else (max(value - low, 0.0), max(high - value, 0.0))
