"""The runs of a study: what each folder holds, those left run side by side, and the report at the end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bipace.report.write import make_report
from bipace.train.config import write_config
from bipace.train.study import Study, iterations_done, load_study, run_state, write_plan
from bipace.train.workers import Job, run_jobs

__all__ = ["StudyRuns", "Watcher", "open_study", "run_study"]

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Who wants to know how a study goes; called after the change, one call at a time."""

    def started(self, name: str) -> None:
        """A run's process was started."""
        ...

    def advanced(self, name: str) -> None:
        """A run finished an iteration."""
        ...

    def ended(self, name: str) -> None:
        """A run's process ended: all its iterations are done, or it stopped, or it stands in `failed`."""
        ...


class _Nobody:
    def started(self, name: str) -> None: ...

    def advanced(self, name: str) -> None: ...

    def ended(self, name: str) -> None: ...


@dataclass
class StudyRuns:
    """A study in its folder, and where its runs are; every mapping is by the run's name.

    Attributes:
        study: the plan.
        folder: the study's.
        states: new, unfinished or finished, as the study was opened.
        total: iterations planned.
        done: iterations done.
        success: the last validation's success on the run's panel, of runs that were validated since.
        failed: why a run failed, and where its log is.
    """

    study: Study
    folder: Path
    states: dict[str, str]
    total: dict[str, int]
    done: dict[str, int]
    success: dict[str, float] = field(default_factory=dict[str, float])
    failed: dict[str, str] = field(default_factory=dict[str, str])

    def outcomes(self) -> list[dict[str, Any]]:
        """What became of every run.

        State (finished, stopped, failed), iterations, success, reason of a failure.
        """
        outcomes: list[dict[str, Any]] = []
        for run in self.study.runs:
            done = iterations_done(self.folder / run.name)
            finished = done == run.config.run.iterations
            state = "finished" if finished else "failed" if run.name in self.failed else "stopped"
            outcomes.append(
                {
                    "run": run.name,
                    "state": state,
                    "iterations": done,
                    "success": self.success.get(run.name),
                    "reason": self.failed.get(run.name) if state == "failed" else None,
                }
            )
        return outcomes


def open_study(path: Path, overrides: Iterable[str] = (), out: Path | None = None) -> StudyRuns:
    """Read a study file, look at the folder of every run, and write the plan into the study's folder.

    Args:
        path: the study file.
        overrides: `section.key=value` for every run.
        out: the study's folder; default runs/NAME.

    Raises:
        ConfigError: what `load_study` refuses; a run folder made under another configuration.
    """
    study = load_study(path, overrides)
    folder = out or Path("runs") / study.name
    states: dict[str, str] = {run.name: run_state(run, folder / run.name) for run in study.runs}
    write_plan(study, folder)
    return StudyRuns(
        study,
        folder,
        states,
        total={run.name: run.config.run.iterations for run in study.runs},
        done={run.name: iterations_done(folder / run.name) or 0 for run in study.runs},
    )


def run_study(runs: StudyRuns, jobs: int = 1, watcher: Watcher | None = None) -> dict[str, Any]:
    """Run what is not finished, each run in a process of its own, and write the report.

    A run that fails costs itself alone. Called again, for the same folder, it goes on where each run stopped.

    Args:
        runs: of `open_study`; kept up to date.
        jobs: runs side by side.
        watcher: told of every change.

    Returns:
        The study's folder, its report (None where there is nothing to report; the log says why), whether a
        signal stopped it, and the runs' outcomes.
    """
    follower = _Follower(runs, watcher or _Nobody())
    todo = [_job(runs, i) for i, run in enumerate(runs.study.runs) if runs.states[run.name] != "finished"]
    whole = run_jobs(todo, jobs, on_start=follower.start, on_message=follower.message, on_end=follower.end)
    return {
        "folder": str(runs.folder),
        "stopped": not whole,
        "runs": runs.outcomes(),
        "report": _report(runs.folder),
    }


@dataclass(frozen=True)
class _Follower:
    """Puts what the processes say into the state of the study."""

    runs: StudyRuns
    watcher: Watcher

    def start(self, job: Job) -> None:
        self.watcher.started(job.name)

    def message(self, job: Job, message: dict[str, Any]) -> None:
        self.runs.done[job.name] = message["iteration"]
        if message["panel"] is not None:
            self.runs.success[job.name] = message["panel"]
        self.watcher.advanced(job.name)

    def end(self, job: Job, status: int) -> None:
        if status != 0:
            self.runs.failed[job.name] = _reason(job, status)
        self.watcher.ended(job.name)


def _job(runs: StudyRuns, number: int) -> Job:
    run = runs.study.runs[number]
    side = runs.folder / "logs" / run.name
    side.parent.mkdir(parents=True, exist_ok=True)
    config, lock = side.with_name(f"{side.name}.toml"), side.with_name(f"{side.name}.lock")
    write_config(run.config, config)
    place = runs.folder / run.name
    command = (sys.executable, "-m", "bipace.train.worker", str(config), str(place), str(lock))
    return Job(run.name, command, side.with_name(f"{side.name}.log"))


def _report(folder: Path) -> str | None:
    """Write the report into the study's folder; None where there is nothing to report."""
    try:
        make_report([folder], out=folder / "report")
    except ValueError as error:
        _log.warning("no report: %s", error)
        return None
    return str(folder / "report" / "report.html")


def _reason(job: Job, status: int) -> str:
    """The last line of the log: a worker's own errors are one line, a traceback ends with what was raised."""
    text = job.log.read_text(encoding="utf-8", errors="replace") if job.log.is_file() else ""
    lines = text.strip().splitlines()
    said = lines[-1].removeprefix("error: ") if lines else "no message"
    return f"{f'killed by signal {-status}' if status < 0 else said} (log: {job.log})"
