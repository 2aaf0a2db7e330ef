"""The summary in the terminal: what was read, the numbers that matter, the findings."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from bipace.analyze.analysis import Analysis

__all__ = ["print_summary"]

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def print_summary(analysis: Analysis, console: Console, detail: bool = False) -> None:
    """Print the summary; texts of the file are escaped, control characters are removed.

    Args:
        analysis: what was found.
        console: where.
        detail: also print what each finding means and what to change for "info" findings.
    """
    for reading in analysis.readings:
        share = f"{reading.understood:.1%} of the file understood"
        skipped = f", {reading.skipped} places skipped, {share}" if reading.skipped else ""
        count = f"{len(reading.trajectories)} trajectories{skipped}"
        console.print(f"[bold]{_clean(reading.file)}[/] · {reading.format} · {count}")
        folded = [f"{n} {what}" for what, n in reading.folded.items()]
        for note in (*reading.notes, *([f"left out on purpose: {', '.join(folded)}"] if folded else [])):
            console.print(f"  [dim]{_clean(note)}[/]")
    if analysis.foreign:
        names = ", ".join(f"{p.where} ({p.why})" for p in analysis.foreign[:3])
        console.print(f"[dim]{len(analysis.foreign)} files hold no trajectories: {_clean(names)}[/]")
    console.print(Panel(_numbers(analysis), border_style="dim", expand=False))
    console.print(_recipes(analysis))
    best = analysis.best_eps()
    choice = "" if best is None else f" · the radius whose clusters foretell returns best: eps {best:g}"
    console.print(f"[dim]State features: {_clean(analysis.feature_label)}{choice}[/]\n")
    for finding in analysis.findings:
        mark = f"[{_COLOURS[finding.severity]}]{finding.severity:>7}[/]"
        console.print(f"{mark}  [bold]{_clean(finding.title)}[/]")
        if detail or finding.severity != "info":
            for line in (finding.meaning, f"→ {finding.advice}"):
                console.print(_indented(line, console))


def _numbers(analysis: Analysis) -> str:
    numbers = analysis.health.numbers
    exact = analysis.credits["gigpo"].diagnostics["lone_step_share"]
    near = analysis.credits["bipace"].diagnostics["lone_step_share"]
    several = numbers["groups"] - numbers["lone_groups"]
    flat = numbers["flat_groups"] - numbers["lone_groups"]
    return (
        f"{numbers['groups']:,.0f} prompt groups · {numbers['trajectories']:,.0f} trajectories · "
        f"{numbers['steps']:,.0f} steps · outcome above 0: {numbers['positive_outcome_share']:.0%}\n"
        f"[bold]{flat:.0f} of {several:.0f}[/] groups of two or more without reward variance · "
        f"[bold]{exact:.1%}[/] of steps without a peer by exact text · [bold]{near:.1%}[/] at eps "
        f"{analysis.options.eps:g}"
    )


def _recipes(analysis: Analysis) -> Grid:
    grid = Grid("recipe", box=None, pad_edge=False, header_style="dim")
    for name in (
        "clusters of one step",
        "steps without a peer",
        "P90 size",
        "largest",
        "2+ actions",
        "advantage 0",
    ):
        grid.add_column(name, justify="right")
    for name, credit in analysis.credits.items():
        d = credit.diagnostics
        shares = ("singleton_rate", "lone_step_share")
        cells = [f"{d[k]:.1%}" if k in d else "-" for k in shares]
        cells += [f"{d[k]:.0f}" if k in d else "-" for k in ("cluster_size_p90", "cluster_size_max")]
        cells += [f"{d[k]:.1%}" if k in d else "-" for k in ("multi_action_rate", "zero_advantage_share")]
        grid.add_row(name, *cells)
    return grid


def _indented(line: str, console: Console) -> Text:
    wrapped = Text(_plain(line), style="dim").wrap(console, max(min(console.width, 110) - 9, 30))
    return Text("\n").join([Text("         ") + part for part in wrapped])


def _clean(text: str) -> str:
    return escape(_plain(text))


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
