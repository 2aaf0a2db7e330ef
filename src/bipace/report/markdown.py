"""The report as Markdown: the page's tables, with the pictures beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bipace.report.paper_tables import BRANCHES, CLUSTERS, PUBLISHED

__all__ = ["report_markdown"]

_PAIRED = {
    "whole_curves": "The whole curve: mean of the validations after the start, and seed by seed",
    "training_success": "Success over all training episodes, and seed by seed",
}


def report_markdown(found: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """A summary (`summarize_study`) as Markdown.

    Args:
        found: the summary.
        pictures: file names of figures that lie beside the file.
    """
    parts = [
        f"# Training report: {_text(found['name'])}",
        f"{_count(found['runs'], 'run')}, {_count(found['methods'], 'method')}, "
        f"{_count(found['environments'], 'environment')}; compared with {_text(found['baseline'])}. "
        f"Intervals: {found['confidence']:.0%} stratified bootstrap, {found['resamples']} resamples.",
        *(f"> {_text(note)}" for note in found["notes"]),
    ]
    for name, environment in found["environments"].items():
        parts += [f"## {_text(name)}", *_environment(found, environment)]
    if len(found["environments"]) > 1:
        rows = [
            (m, e["val_at_max"], e.get("improvement"))
            for m, e in found["overall"].items()
            if "val_at_max" in e
        ]
        head = ["method", "runs", "val@max, interquartile mean", "optimality gap",
                f"P(better than {found['baseline']})"]  # fmt: skip
        parts += [
            "## All environments",
            _table(head, [(m, a["n"], _iqm(a), _gap(a), _interval(p)) for m, a, p in rows]),
        ]
    parts += [f"![{picture.removesuffix('.png')}]({picture})" for picture in pictures]
    parts += ["## Settings that differ", _config(found["config"])]
    return "\n\n".join(parts) + "\n"


def _environment(found: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    baseline, methods = found["baseline"], environment["methods"]
    head = ["method", "seeds", "val@max", "val@max, interquartile mean", "optimality gap", "last",
            f"P(better than {baseline})"]  # fmt: skip
    rows = [
        (m, len(e["seeds"]), _std(e.get("val_at_max")), _iqm(e.get("val_at_max")),
         _gap(e.get("val_at_max")), _std(e.get("last")),
         _interval(environment["improvement"].get(m, {}).get(baseline)))
        for m, e in methods.items()
    ]  # fmt: skip
    parts = [_table(head, rows)]
    if environment["thresholds"]:
        steps = [(m, *(_step(s) for s in row)) for m, row in environment["steps"].items()]
        parts += ["### Iterations to a success rate (speed-up over the baseline; seeds that reach it)",
                  _table(["method", *(f"{t:.0%}" for t in environment["thresholds"])], steps)]  # fmt: skip
    for key, title in _PAIRED.items():
        if environment[key]:
            rows = [
                (m, _std(e), _difference(e["difference"]), _ahead(e["difference"]))
                for m, e in environment[key].items()
            ]
            head = ["method", "mean", f"less {baseline}'s, points", "seeds ahead"]
            parts += [f"### {title}", _table(head, rows)]
    for panel, by_method in environment["families"].items():
        families = sorted({family for entry in by_method.values() for family in entry})
        if families:
            rows = [(f, *(_std(by_method[m].get(f)) for m in methods)) for f in families]
            parts += [f"### {_text(panel)} by family, last validation", _table(["family", *methods], rows)]
    parts += _paper(environment["paper"])
    kinds = ("rollout", "old_logprob", "features", "credit", "update", "iteration")
    seconds = [
        (
            m,
            *(_number(cost.get(k)) for k in kinds),
            f"{cost['credit_share']:.2%}" if "credit_share" in cost else "-",
        )
        for m, cost in environment["cost"].items()
    ]
    head = ["method", "rollout", "old log-prob", "features", "credit", "update", "iteration", "credit share"]
    return [*parts, "### Seconds an iteration, median", _table(head, seconds)]


def _paper(paper: Mapping[str, Any]) -> list[str]:
    """Clusters and branches at chosen iterations.

    The paper's own figures in rows of their own, never comparable.
    """
    parts: list[str] = []
    titles = {"Clusters (the paper's tables 1 and L.3)": CLUSTERS, "Branches and action keys (L.2)": BRANCHES}
    for title, columns in titles.items():
        rows = [
            (method, iteration, *(_number(row.get(metric)) for metric in columns))
            for method, by_iteration in paper["methods"].items()
            for iteration, row in by_iteration.items()
        ]
        if not rows:
            continue
        published = [
            (
                f"published: {name}; 4 x H100, not comparable",
                "-",
                *(_number(row.get(metric)) for metric in columns),
            )
            for name, row in PUBLISHED.items()
            if any(metric in row for metric in columns)
        ]
        table = _table(["method", "iteration", *columns.values()], [*rows, *published])
        parts += [f"### {title}, mean over seeds", table]
    return parts


def _config(config: Mapping[str, Any]) -> str:
    if not config["differences"]:
        return "All runs share one configuration but for the seed."
    rows = [(k, *(values[n] for n in config["names"])) for k, values in config["differences"].items()]
    return _table(["setting", *config["names"]], rows)


def _table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    lines = [[_text(cell) for cell in row] for row in (head, *rows)]
    lines.insert(1, ["---"] * len(head))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(value: Any) -> str:
    """Text that Markdown and HTML leave alone."""
    text = (
        "-" if value is None else str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    )
    return re.sub(r"\s+", " ", re.sub(r"([\\`|\[\]*_#!$])", r"\\\1", text))


def _std(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    return f"{entry['mean']:.1%}" + ("" if entry["std"] is None else f" ± {100 * entry['std']:.1f}")


def _iqm(entry: Mapping[str, Any] | None) -> str:
    return "-" if entry is None else f"{entry['iqm']:.1%}" + _span(entry["interval"])


def _gap(entry: Mapping[str, Any] | None) -> str:
    """How far from 100 % the best validations stay, on average."""
    return "-" if entry is None else f"{entry['gap']['value']:.1%}" + _span(entry["gap"]["interval"])


def _interval(entry: Mapping[str, Any] | None) -> str:
    return "-" if entry is None else f"{entry['value']:.0%}" + _span(entry["interval"])


def _span(pair: Sequence[float] | None) -> str:
    return "" if pair is None else f" ({100 * pair[0]:.1f} to {100 * pair[1]:.1f})"


def _difference(entry: Mapping[str, Any] | None) -> str:
    return "-" if entry is None else f"{100 * entry['mean']:+.1f}" + _span(entry["interval"])


def _ahead(entry: Mapping[str, Any] | None) -> str:
    return "-" if entry is None else f"{entry['ahead']} of {entry['n']}"


def _count(values: Sequence[Any] | Mapping[str, Any], name: str) -> str:
    return f"{len(values)} {name}" + ("" if len(values) == 1 else "s")


def _step(step: Mapping[str, Any]) -> str:
    reached = f" ({step['seeds_reaching']}/{step['seeds']})"
    if step["iteration"] is None:
        return "never" + reached
    return (
        str(step["iteration"]) + ("" if step["speed_up"] is None else f", {step['speed_up']:.2f}x") + reached
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
