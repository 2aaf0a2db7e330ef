"""`bipace study` behind its options: plan, run what is not finished, show where it is, say what failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from bipace.report.write import make_report
from bipace.train.config import write_config
from bipace.train.study import PlannedRun, Study, iterations_done, load_study, run_state, write_plan
from bipace.train.workers import Job, run_jobs

__all__ = ["run_study"]


def run_study(
    path: Path, overrides: Sequence[str], out: Path | None, jobs: int, quiet: bool
) -> dict[str, Any]:
    """Run or continue a study.

    Args:
        path: the study file.
        overrides: `section.key=value` for every run.
        out: the study's folder; default runs/NAME.
        jobs: runs side by side.
        quiet: print nothing.

    Returns:
        The study's folder, its report, whether a signal stopped it, and every run's state (finished, stopped,
        failed), iterations, last panel success, and for a failed one the reason and its log.

    Raises:
        ConfigError: what `load_study` refuses; a run folder made under another configuration.
    """
    study = load_study(path, overrides)
    folder = out or Path("runs") / study.name
    states = {
        run.name: run_state(run, folder / run.name) for run in study.runs
    }  # all of them, before anything runs
    write_plan(study, folder)
    shown = _Shown(study, folder, states, jobs, Console(stderr=True, quiet=quiet))
    todo = [_job(run, folder) for run in study.runs if states[run.name] != "finished"]
    with shown.progress:
        whole = run_jobs(todo, jobs, on_start=shown.start, on_message=shown.message, on_end=shown.end)
    found = {
        "folder": str(folder),
        "stopped": not whole,
        "runs": [_outcome(r, folder, shown) for r in study.runs],
    }
    found["report"] = _report(folder, shown.console)
    if not quiet:
        _print_outcome(Console(), found)
    return found


def _report(folder: Path, console: Console) -> str | None:
    """Write the report into the study's folder; None, with a line that says why, where there is nothing to report."""
    try:
        make_report([folder], out=folder / "report")
    except ValueError as error:
        console.print(f"no report: {error}", markup=False, highlight=False, soft_wrap=True)
        return None
    return str(folder / "report" / "report.html")


def _job(run: PlannedRun, folder: Path) -> Job:
    side = folder / "logs" / run.name
    side.parent.mkdir(parents=True, exist_ok=True)
    config, lock = side.with_name(f"{side.name}.toml"), side.with_name(f"{side.name}.lock")
    write_config(run.config, config)
    command = (sys.executable, "-m", "bipace.cli.worker", str(config), str(folder / run.name), str(lock))
    return Job(run.name, command, side.with_name(f"{side.name}.log"))


@dataclass
class _Shown:
    """The progress on the screen and what became of each run."""

    study: Study
    folder: Path
    states: dict[str, str]
    jobs: int
    console: Console
    failed: dict[str, str] = field(default_factory=dict[str, str])
    success: dict[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.progress = Progress(*columns, console=self.console)
        self.done = {r.name: iterations_done(self.folder / r.name) or 0 for r in self.study.runs}
        self.total = {r.name: r.config.run.iterations for r in self.study.runs}
        finished = sum(state == "finished" for state in self.states.values())
        self.bar = self.progress.add_task(
            f"[bold]{escape(self.study.name)}",
            total=sum(self.total.values()),
            completed=sum(self.done.values()),
            note="",
        )
        self.bars: dict[str, TaskID] = {}
        self.begun, self.before = time.monotonic(), sum(self.done.values())
        if finished:
            self.console.print(f"{finished} of {len(self.total)} runs are finished already")

    def start(self, job: Job) -> None:
        self.bars[job.name] = self.progress.add_task(
            escape(job.name), total=self.total[job.name], completed=self.done[job.name], note="starting"
        )

    def message(self, job: Job, message: dict[str, Any]) -> None:
        self.done[job.name] = message["iteration"]
        if message["panel"] is not None:
            self.success[job.name] = message["panel"]
        note = f"panel {self.success[job.name]:.1%}" if job.name in self.success else ""
        self.progress.update(self.bars[job.name], completed=message["iteration"], note=note)
        self.progress.update(self.bar, completed=sum(self.done.values()), note=self._left())

    def end(self, job: Job, status: int) -> None:
        self.progress.remove_task(self.bars.pop(job.name))
        complete = self.done[job.name] >= self.total[job.name]
        if status != 0:
            self.failed[job.name] = _reason(job, status)
            self.console.print(f"[red]failed[/]   {escape(job.name)}", soft_wrap=True)
        elif complete:
            note = f"panel {self.success[job.name]:.1%}" if job.name in self.success else ""
            self.console.print(f"[green]finished[/] {escape(job.name)} {note} {self._left()}", soft_wrap=True)

    def _left(self) -> str:
        made = sum(self.done.values()) - self.before
        if made <= 0:
            return ""
        lost = sum(self.total[name] - self.done[name] for name in self.failed)
        left = sum(self.total.values()) - sum(self.done.values()) - lost
        return f"{timedelta(seconds=round((time.monotonic() - self.begun) / made * left))} left"


def _reason(job: Job, status: int) -> str:
    """The last line of the log: a worker's own errors are one line, a traceback ends with what was raised."""
    lines = (
        job.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if job.log.is_file()
        else []
    )
    ended = (
        f"killed by signal {-status}"
        if status < 0
        else (lines[-1].removeprefix("error: ") if lines else "no message")
    )
    return f"{ended} (log: {job.log})"


def _outcome(run: PlannedRun, folder: Path, shown: _Shown) -> dict[str, Any]:
    done = iterations_done(folder / run.name)
    finished = done == run.config.run.iterations
    state = "finished" if finished else "failed" if run.name in shown.failed else "stopped"
    return {
        "run": run.name,
        "state": state,
        "iterations": done,
        "success": shown.success.get(run.name),
        "reason": shown.failed.get(run.name) if state == "failed" else None,
    }


def _print_outcome(console: Console, found: dict[str, Any]) -> None:
    counts = {s: sum(r["state"] == s for r in found["runs"]) for s in ("finished", "stopped", "failed")}
    for run in found["runs"]:
        if run["state"] != "finished":
            why = f": {run['reason']}" if run["reason"] else ""
            line = f"{run['state']} at iteration {run['iterations'] or 0}: {run['run']}{why}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(
        ", ".join(f"{n} {state}" for state, n in counts.items() if n) + f" of {len(found['runs'])} runs"
    )
    if counts["stopped"] or counts["failed"]:
        console.print("The same command goes on where each run stopped.")
    if found["report"]:
        console.print(f"report       {found['report']}", highlight=False, soft_wrap=True)
    console.print(f"study folder {found['folder']}", highlight=False, soft_wrap=True)
