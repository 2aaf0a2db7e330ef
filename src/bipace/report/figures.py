"""The report's pictures as PNG: learning curves, best validation, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bipace.page.palette import LIGHT

__all__ = ["draw_figures"]

Style = tuple[str, Any]
_DASHES = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (6, 2, 1, 2)),
    (0, (3, 1)),
    (0, (1, 3)),
    (0, (9, 2)),
    (0, (4, 1, 1, 1)),
)
_NAME = 28
_SHOWN = (
    "cluster/singleton_rate", "cluster/lone_step_share", "cluster/cluster_size_mean",
    "cluster/comparable_pairs",
    "credit/branch_compared", "credit/zero_advantage_share", "group/flat_groups / group/groups",
    "update/grad_norm",
    "perf/credit_share",
)  # fmt: skip


def draw_figures(found: Mapping[str, Any], folder: Path) -> list[str]:
    """Draw a summary (`summarize_study`) into a folder; returns the file names.

    Names of methods and environments are text, never markup.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(found["methods"])
    styles = {name: _style(i) for i, name in enumerate(names)}
    written: list[str] = []
    with mpl.rc_context({"text.parse_math": False, "axes.grid": True, "grid.alpha": 0.25, "font.size": 9}):
        for name, draw in _FIGURES.items():
            figure = draw(plt, found, styles)
            if figure is not None:
                figure.savefig(folder / f"{name}.png", dpi=120)
                plt.close(figure)
                written.append(f"{name}.png")
    return written


def _curves(plt: Any, found: Mapping[str, Any], styles: Mapping[str, Style]) -> Any:
    places = {name: e for name, e in found["environments"].items() if e["panels"]}
    if not places:
        return None
    width = max(len(e["panels"]) for e in places.values())
    figure, axes = _grid(plt, len(places), width, 4.6, 3.2)
    for row, (name, environment) in zip(axes, places.items(), strict=True):
        for axis, panel in zip(row, environment["panels"], strict=False):
            axis.set_visible(True)
            curves = environment["curves"][panel["name"]]
            for method, curve in curves.items():
                _line(axis, curve, method, styles[method])
            axis.set(title=f"{_name(name)}: {_name(panel['name'])}", xlabel="iteration", ylabel="success")
            axis.yaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    _legend(figure, axes[0][0])
    return figure


def _peak(plt: Any, found: Mapping[str, Any], styles: Mapping[str, Style]) -> Any:
    places = {name: e for name, e in found["environments"].items() if e["panels"]}
    if not places:
        return None
    figure, axes = _grid(plt, 1, len(places), 4.6, 0.35 * len(styles) + 1.2)
    for axis, (name, environment) in zip(axes[0], places.items(), strict=True):
        axis.set_visible(True)
        shown = {m: e["val_at_max"] for m, e in environment["methods"].items() if "val_at_max" in e}
        for at, (method, peak) in enumerate(shown.items()):
            low, high = peak["interval"] or (peak["iqm"], peak["iqm"])
            error = [[max(peak["iqm"] - low, 0.0)], [max(high - peak["iqm"], 0.0)]]
            axis.errorbar([peak["iqm"]], [at], xerr=error, marker="D", color=styles[method][0], capsize=3)
            axis.scatter(peak["values"], [at] * len(peak["values"]), s=12, color=styles[method][0], alpha=0.4)
        axis.set_yticks(range(len(shown)), [_name(method) for method in shown])
        axis.invert_yaxis()
        low, high = axis.get_xlim()
        axis.set_xlim(max(low, -0.02), min(high, 1.02))  # a share is not drawn below 0 or above 1
        axis.set(title=f"{_name(name)}: best validation, interquartile mean")
        axis.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    return figure


def _profiles(plt: Any, found: Mapping[str, Any], styles: Mapping[str, Style]) -> Any:
    """Share of runs above each success rate: a chart an environment, and one for methods that ran in all."""
    everywhere = {m: e for m, e in found["overall"].items() if len(e["environments"]) > 1}
    places = {name: environment["methods"] for name, environment in found["environments"].items()}
    if len(everywhere) > 1 and all(len(e["environments"]) == len(places) for e in everywhere.values()):
        places["all environments"] = everywhere
    charts = {
        name: {m: e["val_at_max"]["profile"] for m, e in methods.items() if "val_at_max" in e}
        for name, methods in places.items()
    }
    charts = {n: c for n, c in charts.items() if any("low" in profile for profile in c.values())}
    if not charts:
        return None
    figure, axes = _grid(plt, 1, len(charts), 4.6, 3.2)
    for axis, (name, chart) in zip(axes[0], charts.items(), strict=True):
        axis.set_visible(True)
        for method, profile in chart.items():
            colour, dashes = styles[method]
            x, step = profile["tau"], {"color": colour, "linewidth": 1.6}
            axis.step(x, profile["share"], where="post", linestyle=dashes, label=_name(method), **step)
            if "low" in profile:
                axis.fill_between(
                    x, profile["low"], profile["high"], step="post", color=colour, alpha=0.1, linewidth=0
                )
        axis.set(title=f"{_name(name)}: performance profile", xlabel="best validation of a run")
        axis.set(ylabel="share of runs above it", ylim=(-0.02, 1.02))
        axis.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    _legend(figure, axes[0][0])
    return figure


def _diagnostics(plt: Any, found: Mapping[str, Any], styles: Mapping[str, Style]) -> Any:
    environment = next(iter(found["environments"].values()))
    shown = [key for key in _SHOWN if key in environment["diagnostics"]]
    if not shown:
        return None
    figure, axes = _grid(plt, -(-len(shown) // 3), 3, 3.6, 2.5)
    for axis, key in zip(axes.ravel(), shown, strict=False):
        axis.set_visible(True)
        for method, curve in environment["diagnostics"][key].items():
            _line(axis, curve, method, styles[method])
        axis.set(title=found["diagnostics"][key]["label"], ylabel=found["diagnostics"][key]["unit"])
    _legend(figure, axes.ravel()[0])
    return figure


def _grid(plt: Any, rows: int, columns: int, width: float, height: float) -> Any:
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), layout="constrained", squeeze=False
    )
    for axis in axes.ravel():
        axis.set_visible(False)
    return figure, axes


def _line(axis: Any, curve: Mapping[str, Sequence[float]], method: str, style: Style) -> None:
    colour, dashes = style
    marker = "o" if len(curve["iterations"]) <= 20 else ""
    axis.plot(
        curve["iterations"],
        curve["mean"],
        color=colour,
        linestyle=dashes,
        label=_name(method),
        marker=marker,
        markersize=3,
        linewidth=1.6,
    )
    if "low" in curve:
        axis.fill_between(
            curve["iterations"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0
        )


def _name(name: str) -> str:
    """Short enough to leave room for the chart; matplotlib hides labels that start with an underscore."""
    short = name if len(name) <= _NAME else f"{name[: _NAME - 3]}..."
    return f" {short}" if short.startswith("_") else short


def _style(i: int) -> Style:
    """The colours' second round has other dashes, so that no two of 64 methods are drawn alike."""
    return LIGHT[i % len(LIGHT)], _DASHES[(i + i // len(LIGHT)) % len(_DASHES)]


def _legend(figure: Any, axis: Any) -> None:
    """Beside the charts, where it hides no line; one names the lines of all."""
    handles, labels = axis.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)


_FIGURES = {"curves": _curves, "peak": _peak, "profiles": _profiles, "diagnostics": _diagnostics}
