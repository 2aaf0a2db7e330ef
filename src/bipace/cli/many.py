"""The commands about many runs: study and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bipace.train.extras import require

__all__ = ["report", "study"]


def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="methods, seeds and environments")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="for every run, e.g. `run.iterations=20`"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="study folder; default runs/NAME")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="runs side by side, a core each; default: all cores")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print what became of every run as JSON")] = False,
) -> None:
    """Run methods x seeds x environments as one job that can be stopped and continued.

    The same command continues what is unfinished and skips what is done. Overrides hold for every run.
    Examples: `bipace study examples/studies/textcraft-small.toml` · `bipace study my.toml run.iterations=20
    --out runs/try --jobs 4`

    Exit status 1 where a run failed (the others go on), 130 where Ctrl-C stopped it.
    """
    require("bipace study", "train")

    from bipace.cli.study import study_and_report

    outcome = study_and_report(file, overrides or (), out, jobs or _cores(), quiet=as_json)
    if as_json:
        print(json.dumps(outcome))
    failed = any(run["state"] == "failed" for run in outcome["runs"])
    raise typer.Exit(130 if outcome["stopped"] else int(failed))


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="run folders, a study folder, or both")
    ],
    out: Annotated[
        Path | None, typer.Option(help="folder for the report; default report/ inside the one given")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="method to compare with; default the study's, or gigpo")
    ] = None,
    threshold: Annotated[
        list[float] | None, typer.Option(help="success rate to reach, e.g. 0.7; repeatable")
    ] = None,
    at: Annotated[
        list[int] | None, typer.Option(help="iteration of the cluster and branch tables; repeatable")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print what the page shows; no files unless --out")
    ] = False,
) -> None:
    """Compare runs: one HTML page that needs no network, the same as Markdown, and pictures.

    Learning curves, interquartile means with bootstrap intervals, best validation, probability of
    improvement, iterations to a success rate, diagnostics over time, cost and settings. Examples: `bipace
    report runs/textcraft-small` · `bipace report runs/a runs/b --baseline grpo --threshold 0.6 --threshold
    0.7`
    """
    require("bipace report", "report")

    from bipace.report.write import make_report, report_folder

    folder = out or (None if as_json else report_folder(runs))
    summary = make_report(runs, baseline=baseline, thresholds=threshold or (), at=at or (), out=folder)
    if as_json:
        print(json.dumps(summary))
        return
    from rich.console import Console

    from bipace.report.terminal import print_report

    print_report(summary, Console())
    print(f"page {folder}/report.html\nmarkdown {folder}/report.md")


def _cores() -> int:
    """Cores this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
