"""docs/results/estimators.md and its pictures, from what benchmarks/estimators.py measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from paper import less

from bipace.truth.report import markdown_table

__all__ = ["draw_credit", "draw_learning", "page"]

SHOWN = ("pearson", "pearson_corrected", "spearman", "sign", "gradient_cosine")
CHOOSING = """Which recipe to take? Correlation and gradient cosine with the true advantages are means over
the environments below, before any training; *learned on TextCraft* is success over all training episodes
less GiGPO's on the same seeds, in points with its 95 % interval ([paper.md](paper.md)); seconds are the
processor's for 10^5 rows of a table without features (`benchmarks/estimators_cost.py`). A recipe that needs
features reads hidden states and adds one clustering."""


def page(
    results: Mapping[str, Any],
    about: Mapping[str, Any],
    learned: Mapping[str, Any],
    cost: Mapping[str, Any],
    missing: Sequence[str],
) -> str:
    """The table to choose by, the pictures, then a table an environment and group size.

    Args:
        results: environment -> `score_all`, with the collected `group_size`.
        about: `command`, `date`, `needs` (candidate -> columns) and, where asked for, `learning`.
        learned: candidate -> training success and its difference from GiGPO's.
        cost: recipe -> seconds.
        missing: environments whose truth was not collected.
    """
    lines = ["# Every recipe on one truth", "", CHOOSING, "", choose(results, about["needs"], learned, cost)]
    if said := about.get("learning"):
        lines += [
            "",
            "![gradient cosine before, success learned after](estimators-learning.png)",
            "",
        ]
        lines += [
            f"- Rank correlation of {metric} before training with success over all of it, TextCraft, "
            f"{said['recipes']} recipes: {said[metric]['value']:.2f} ({said[metric]['low']:.2f} to "
            f"{said[metric]['high']:.2f}, recipes resampled)."
            for metric in ("pearson", "gradient_cosine")
        ]
    lines += ["", "## Who leads where", "", *leaders(results)]
    if missing:
        lines.append(f"- Not collected: {', '.join(missing)}.")
    lines += [
        "",
        f"`{about['command']}`, {about['date']}. Metrics are those of [credit.md](../credit.md), intervals",
        "of 95 % over prompt groups; `pearson_corrected` is over the noise ceiling of the re-rolls. Recipes",
        "that read hidden states read the layer of the shipped default.",
        "",
        "![correlation and gradient cosine of every recipe](estimators.png)",
    ]
    for name, found in results.items():
        seeds, ceiling = found["seeds"], found["noise_ceiling"]
        head = f"{seeds} seeds, G = {found['group_size']}, noise ceiling {ceiling:.2f}."
        lines += ["", f"## {name}", "", head, "", markdown_table(found["recipes"], SHOWN)]
        for size, recipes in found.get("group_sizes", {}).items():
            lines += ["", f"G = {size}:", "", markdown_table(recipes, SHOWN)]
    return "\n".join(lines) + "\n"


def choose(
    results: Mapping[str, Any],
    needs: Mapping[str, Sequence[str]],
    learned: Mapping[str, Any],
    cost: Mapping[str, Any],
) -> str:
    """One row a candidate, by its mean gradient cosine."""
    head = ["recipe", "needs", "correlation", "gradient cosine", "learned on TextCraft", "seconds"]
    means = {metric: _means(results, needs, metric) for metric in ("pearson", "gradient_cosine")}
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in sorted(needs, key=lambda c: -means["gradient_cosine"][c]):
        row = [
            f"`{name}`",
            ", ".join(needs[name]) or "-",
            f"{means['pearson'][name]:.2f}",
            f"{means['gradient_cosine'][name]:.2f}",
            less(learned[name]) if name in learned else "-",
            str(cost.get(name, {}).get("seconds_1e5", "-")),
        ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def leaders(results: Mapping[str, Any]) -> list[str]:
    """Which candidate is first where, one line an environment."""
    lines = []
    for name, found in results.items():
        said = []
        for metric, word in (("pearson", "correlation"), ("gradient_cosine", "gradient cosine")):
            value = {c: entry[metric]["value"] or 0.0 for c, entry in found["recipes"].items()}
            first = max(value, key=lambda c: value[c])
            said.append(f"highest {word} `{first}` ({value[first]:.2f})")
        lines.append(f"- {name}: {', '.join(said)}.")
    return lines


def draw_credit(results: Mapping[str, Any], candidates: Sequence[str], path: Path) -> None:
    """Two grids of shades, recipe by environment, the best correlation on top; blank: not judged there."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(results)
    figure, axes = plt.subplots(1, 2, figsize=(14, 9), layout="constrained", sharey=True)
    grids = {
        metric: np.array([[_value(results[n], c, metric) for n in names] for c in candidates])
        for metric in ("pearson", "gradient_cosine")
    }
    order = np.argsort(-np.nanmean(grids["pearson"], axis=1), kind="stable")
    titles = {"pearson": "correlation with the true advantage", "gradient_cosine": "gradient cosine"}
    for axis, (metric, title) in zip(axes, titles.items(), strict=True):
        table = grids[metric][order]
        axis.imshow(table, cmap="cividis", aspect="auto", vmin=0.0, vmax=1.0)
        for (y, x), value in np.ndenumerate(table):
            if not np.isnan(value):
                shade = "white" if value < 0.6 else "black"
                axis.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7, color=shade)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axis.set_yticks(range(len(order)), [candidates[i] for i in order], fontsize=8)
        axis.set_title(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_learning(credit: Mapping[str, Any], learned: Mapping[str, Any], path: Path) -> None:
    """A numbered point a recipe: gradient cosine before training, success learned after it less GiGPO's."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 5.5), layout="constrained")
    order = sorted(learned, key=lambda name: -_gap(learned[name])[0])
    for number, name in enumerate(order, 1):
        y, low, high = _gap(learned[name])
        x = credit[name]["gradient_cosine"]["value"]
        axes.errorbar(
            x, y, yerr=[[y - low], [high - y]], color="#35608a", marker="o", markersize=5, elinewidth=0.8
        )  # fmt: skip
        axes.annotate(str(number), (x, y), (4, 4), textcoords="offset points", fontsize=8)
    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.set(
        xlabel="gradient cosine with the truth, before training",
        ylabel="training episodes solved less GiGPO's, points",
        title="TextCraft: credit measured before, success learned after (five seeds or ten, 95 %)",
    )
    axes.grid(alpha=0.25)
    listed = "\n".join(f"{number:>2}  {name}" for number, name in enumerate(order, 1))
    axes.text(1.02, 0.5, listed, transform=axes.transAxes, va="center", fontsize=8, linespacing=1.6)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _gap(entry: Mapping[str, Any]) -> tuple[float, float, float]:
    gap = entry["difference"] or {"mean": 0.0, "interval": (0.0, 0.0)}
    low, high = gap["interval"] or (gap["mean"], gap["mean"])
    return 100 * gap["mean"], 100 * low, 100 * high


def _value(found: Mapping[str, Any], candidate: str, metric: str) -> float:
    value = found["recipes"].get(candidate, {}).get(metric, {}).get("value")
    return np.nan if value is None else float(value)


def _means(results: Mapping[str, Any], candidates: Mapping[str, Any], metric: str) -> dict[str, float]:
    return {c: float(np.nanmean([_value(one, c, metric) for one in results.values()])) for c in candidates}
