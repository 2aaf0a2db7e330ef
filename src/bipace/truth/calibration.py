"""A scan over layer and radius as a table, a picture and lines to paste."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bipace.core.scan import Scan

__all__ = ["draw_scan", "lines_to_paste", "scan_table"]


def scan_table(found: Scan) -> Any:
    """A rich table, a row a point; the chosen one is marked, those level with the best too."""
    from rich.table import Column, Table

    names = (
        "",
        "layer",
        "whiten",
        "eps",
        "agreement",
        "behind",
        "singletons",
        "steps alone",
        "mean",
        "largest",
    )
    table = Table(
        *(Column(name, overflow="fold") for name in names),
        title="held-out agreement of every pair: > taken, = within one standard error of the best",
    )  # fmt: skip
    for pair in found.pairs:
        mark = ">" if pair is found.chosen else "=" if pair.behind <= pair.error else ""
        shape = pair.clusters
        table.add_row(
            mark, pair.layer, str(pair.whiten), f"{pair.eps:g}", f"{pair.agreement.value:.2f}",
            f"{pair.behind:.2f} ± {pair.error:.2f}", f"{100 * shape['singleton_rate']:.0f} %",
            f"{100 * shape['lone_step_share']:.0f} %", f"{shape['cluster_size_mean']:.1f}",
            f"{shape['cluster_size_max']:.0f}",
        )  # fmt: skip
    return table


def lines_to_paste(found: Scan) -> str:
    """The choice as TOML for a configuration."""
    whiten = f"whiten = {found.chosen.whiten}\n" if found.chosen.whiten else ""
    return (
        f"[features]\nlayer = {found.chosen.layer}\n\n[credit]\neps = {found.chosen.eps:g}\n{whiten}".rstrip()
    )


def draw_scan(found: Scan, path: Path) -> None:
    """Agreement, share of lone steps and mean cluster size over the radius, a line a layer and whitening."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    radii = list(dict.fromkeys(pair.eps for pair in found.pairs))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for layer, whiten in dict.fromkeys((pair.layer, pair.whiten) for pair in found.pairs):
        mine = [pair for pair in found.pairs if (pair.layer, pair.whiten) == (layer, whiten)]
        columns = (
            [pair.agreement.value for pair in mine],
            [pair.clusters["lone_step_share"] for pair in mine],
            [pair.clusters["cluster_size_mean"] for pair in mine],
        )
        label = f"layer {layer}" + (f", whiten {whiten}" if whiten else "")
        for axis, values in zip(axes, columns, strict=True):
            axis.plot(range(len(radii)), values, marker="o", markersize=3, label=label)
    for axis, title in zip(
        axes, ("held-out agreement", "share of steps alone", "mean cluster size"), strict=True
    ):
        axis.set_xticks(range(len(radii)), [f"{eps:g}" for eps in radii], fontsize=7)
        axis.set_xlabel("eps")
        axis.set_title(title, fontsize=9)
        axis.axvline(radii.index(found.chosen.eps), color="#33475b", linewidth=0.8, linestyle="--")
        axis.grid(alpha=0.25)
    axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)
