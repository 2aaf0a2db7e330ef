"""`bipace study` on the screen: where every run is, what failed and why, and how to go on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from bipace.train.study_runs import StudyRuns, open_study, run_study

__all__ = ["study_and_report"]


def study_and_report(
    path: Path, overrides: Sequence[str], out: Path | None, jobs: int, quiet: bool
) -> dict[str, Any]:
    """Run or continue a study with its progress on the screen.

    Arguments and result of `bipace.train.study_runs`.

    Args:
        path: the study file.
        overrides: `section.key=value` for every run.
        out: the study's folder; default runs/NAME.
        jobs: runs side by side.
        quiet: print nothing.
    """
    runs = open_study(path, overrides, out)
    shown = _Shown(runs, Console(stderr=True, quiet=quiet))
    with shown.progress:
        outcome = run_study(runs, jobs, shown)
    if not quiet:
        _print_outcome(Console(), outcome)
    return outcome


class _Shown:
    """A bar for the study and one for each run that is running."""

    def __init__(self, runs: StudyRuns, console: Console) -> None:
        self._runs, self._console = runs, console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.progress = Progress(*columns, TextColumn("{task.fields[note]}"), console=console)
        self._before = sum(runs.done.values())
        self._bar = self.progress.add_task(
            f"[bold]{escape(runs.study.name)}",
            total=sum(runs.total.values()),
            completed=self._before,
            note="",
        )
        self._bars: dict[str, TaskID] = {}
        self._begun = time.monotonic()
        if finished := sum(state == "finished" for state in runs.states.values()):
            console.print(f"{finished} of {len(runs.total)} runs are finished already")

    def started(self, name: str) -> None:
        runs = self._runs
        self._bars[name] = self.progress.add_task(
            escape(name), total=runs.total[name], completed=runs.done[name], note="starting"
        )

    def advanced(self, name: str) -> None:
        done = self._runs.done
        self.progress.update(self._bars[name], completed=done[name], note=self._success(name))
        self.progress.update(self._bar, completed=sum(done.values()), note=self._left())

    def ended(self, name: str) -> None:
        runs = self._runs
        self.progress.remove_task(self._bars.pop(name))
        if name in runs.failed:
            self._console.print(f"[red]failed[/]   {escape(name)}", soft_wrap=True)
        elif runs.done[name] >= runs.total[name]:
            line = f"[green]finished[/] {escape(name)} {self._success(name)} {self._left()}"
            self._console.print(line, soft_wrap=True)

    def _success(self, name: str) -> str:
        return f"panel {self._runs.success[name]:.1%}" if name in self._runs.success else ""

    def _left(self) -> str:
        runs = self._runs
        made = sum(runs.done.values()) - self._before
        if made <= 0:
            return ""
        lost = sum(runs.total[name] - runs.done[name] for name in runs.failed)
        left = sum(runs.total.values()) - sum(runs.done.values()) - lost
        return f"{timedelta(seconds=round((time.monotonic() - self._begun) / made * left))} left"


def _print_outcome(console: Console, outcome: dict[str, Any]) -> None:
    runs = outcome["runs"]
    counts = {state: sum(r["state"] == state for r in runs) for state in ("finished", "stopped", "failed")}
    for run in runs:
        if run["state"] != "finished":
            why = f": {run['reason']}" if run["reason"] else ""
            line = f"{run['state']} at iteration {run['iterations'] or 0}: {run['run']}{why}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(", ".join(f"{n} {state}" for state, n in counts.items() if n) + f" of {len(runs)} runs")
    if counts["stopped"] or counts["failed"]:
        console.print("The same command goes on where each run stopped.")
    if outcome["report"]:
        console.print(f"report       {outcome['report']}", highlight=False, soft_wrap=True)
    console.print(f"study folder {outcome['folder']}", highlight=False, soft_wrap=True)
