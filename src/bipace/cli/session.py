"""A training run on the screen: progress, what the user should know, and at the end table, picture and summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bipace.cli.failure import INTERRUPTED
from bipace.cli.tables import show_table
from bipace.envs.base import offers_of
from bipace.report.curve import draw_curve, read_metrics
from bipace.train.config import Config
from bipace.train.files import write_json
from bipace.train.loop import Run, train

__all__ = ["progress_bar", "train_and_report", "write_results"]


def progress_bar(console: Console) -> Progress:
    """A bar with counts, the time left and a note."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=console)


def train_and_report(
    config: Config, folder: Path, *, resume: bool = False, install_seconds: float = 0.0
) -> int:
    """Train with a progress bar; then the table, the curve and summary.json.

    A run that Ctrl-C stopped gets none of them: what is final is known at the end alone.

    Args:
        config: the run.
        folder: where it goes.
        resume: continue the run in the folder.
        install_seconds: passed through to the summary.

    Returns:
        The exit status: 0, or 130 where Ctrl-C stopped the run.
    """
    console = Console(stderr=True)
    started = time.perf_counter()
    progress = progress_bar(console)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    try:
        run = train(config, folder, resume=resume, on_iteration=_Shown(config, progress, say), say=say)
    except KeyboardInterrupt:
        _stop(progress)
        say(f"stopped at once; the last checkpoint is whole, go on with: bipace train --resume {folder}")
        return INTERRUPTED
    finally:
        _stop(progress)
    if run.stopped:
        say(
            f"stopped at {run.iteration} of {config.run.iterations}; go on with: bipace train --resume {folder}"
        )
        return INTERRUPTED
    summary = write_results(run, {"install": install_seconds, "train": time.perf_counter() - started})
    _print_summary(Console(), summary, folder)
    return 0


class _Shown:
    """Shows an iteration: the bar, validations, and after the first what the whole run will take."""

    def __init__(self, config: Config, progress: Progress, say: Callable[[str], None]) -> None:
        self._config, self._progress, self._say = config, progress, say
        self._bar = progress.add_task(config.estimator, total=config.run.iterations, note="")
        self._validation = 0.0
        self._told = False

    def __call__(self, run: Run, metrics: dict[str, float]) -> None:
        self._progress.start()  # not before the settings proved usable: an error stands alone on the screen
        success = metrics.get("episode/success_rate")
        latest = metrics.get(f"val/{run.panels.panel}/success")
        if latest is not None:
            reward = metrics[f"val/{run.panels.panel}/reward_mean"]
            score = f", score {100 * reward:.1f}" if reward != latest else ""
            self._progress.console.print(
                f"iteration {run.iteration:4d}  {run.panels.panel} success {latest:.1%}{score}"
            )
            self._validation = metrics["timing_s/validation"]
        if "timing_s/iteration" in metrics and not self._told:
            self._told = True
            self._say(self._estimate(run, metrics))
        note = "warm start" if success is None else f"success {success:.0%}"
        self._progress.update(self._bar, completed=run.iteration, note=note)

    def _estimate(self, run: Run, metrics: dict[str, float]) -> str:
        settings = self._config.run
        left = settings.iterations - run.iteration
        checks = left // settings.validate_every
        seconds = round(left * metrics["timing_s/iteration"] + checks * self._validation)
        return (
            f"about {timedelta(seconds=seconds)} to go: {left} iterations of {metrics['timing_s/iteration']:.1f} s and "
            f"{checks} validations; {metrics['perf/peak_memory_mb']:.0f} MB of memory so far"
        )


def _stop(progress: Progress) -> None:
    if progress.live.is_started:
        progress.stop()


def write_results(run: Run, seconds: dict[str, float]) -> dict[str, Any]:
    """Put summary.json and curve.png into the folder of a run and return the summary."""
    summary = summarize(run, seconds)
    try:
        log = read_metrics(run.folder)
        draw_curve(log, run.panels.panel, summary["panel"]["n"], _title(run), run.folder / "curve.png")
    except Exception as error:  # the run is done: a picture that cannot be drawn costs the picture
        print(f"no learning curve: {type(error).__name__}: {error}", file=sys.stderr)
    write_json(
        run.folder / "summary.json", summary
    )  # last: a study takes it for the sign that nothing is missing
    return summary


def _title(run: Run) -> str:
    """What a figure must say: suite, recipe, and on which data where that is not plain."""
    data = offers_of(run.suite).data_label
    return f"{run.suite.name}, {run.config.estimator}" + (f"\n{data}" if data else "")


def summarize(run: Run, seconds: dict[str, float]) -> dict[str, Any]:
    """The run in numbers: first and last validation of every panel, time, and BiPACE's share of an iteration."""
    log = read_metrics(run.folder)
    shares = [m["perf/credit_share"] for m in log if "perf/credit_share" in m]
    panels = {name: _first_and_last(history) for name, history in run.validations.items()}
    held_out = [name for name in run.panels.held_out if name in panels]
    return {
        "recipe": run.config.estimator,
        "suite": run.suite.name,
        "data": offers_of(run.suite).data_label,
        "provenance": dict(offers_of(run.suite).provenance),
        "iterations": run.iteration,
        "threads": {"number": run.threads.number, "why": run.threads.why},
        "panel": panels[run.panels.panel],
        "held_out": panels[held_out[0]] if held_out else None,
        "panels": panels,
        "seconds": seconds,
        "credit_share": float(np.median(shares)) if shares else 0.0,
        "peak_memory_mb": max((m.get("perf/peak_memory_mb", 0.0) for m in log), default=0.0),
        "iteration_seconds": float(
            np.median([m["timing_s/iteration"] for m in log if "timing_s/iteration" in m] or [0])
        ),
    }


def _first_and_last(history: dict[str, dict[str, Any]]) -> dict[str, Any]:
    iterations = sorted(history, key=int)
    first, last = history[iterations[0]], history[iterations[-1]]
    top = max(iterations, key=lambda iteration: history[iteration]["success"])  # the first of equals
    return {
        "warm_start": first["success"],
        "final": last["success"],
        "final_iteration": int(iterations[-1]),
        "n": last["n"],
        "ci95": last["ci95"],
        "warm_start_ci95": first["ci95"],
        "gain_ci95": gain_interval(first["success"], first["ci95"], last["success"], last["ci95"]),
        "warm_start_score": first["score"],
        "final_score": last["score"],
        "warm_start_score_ci95": first["score_ci95"],
        "final_score_ci95": last["score_ci95"],
        "gain_score_ci95": gain_interval(
            first["score"], first["score_ci95"], last["score"], last["score_ci95"]
        ),
        "val@max": history[top]["success"],
        "val@max_iteration": int(top),
        "family": last["family"],
        "list": last["list"],
        "sha256": last["sha256"],
        "data": last["data"],
    }


def gain_interval(
    before: float, before_ci: list[float] | None, after: float, after_ci: list[float] | None
) -> list[float] | None:
    """95 % interval of after - before, from the two intervals: the distances to their far ends, square and add.

    With Wilson's intervals this is Newcombe's method 10 (Statistics in Medicine 17, 1998) for independent
    samples. The two evaluations play the same tasks, so it errs on the wide side. None where one interval is
    not known.
    """
    if before_ci is None or after_ci is None:
        return None
    low = np.hypot(after - after_ci[0], before_ci[1] - before)
    high = np.hypot(after_ci[1] - after, before - before_ci[0])
    return [float(after - before - low), float(after - before + high)]


def _print_summary(console: Console, summary: dict[str, Any], folder: Path) -> None:
    columns = ["panel", "tasks", "warm start", "final (95 % interval)", "gain (95 % interval)"]
    scored = any(p["final_score"] != p["final"] for p in summary["panels"].values())
    if scored:  # where rewards are 0 and 1 the score is the success
        columns.append("score")
    rows: list[list[str]] = []
    for name, p in summary["panels"].items():
        low, high = p["ci95"]
        cells = [name, str(p["n"]), f"{p['warm_start']:.1%}", f"{p['final']:.1%} ({low:.1%}-{high:.1%})"]
        cells.append(_gain(p["final"] - p["warm_start"], p["gain_ci95"]))
        if scored:
            change = _gain(p["final_score"] - p["warm_start_score"], p["gain_score_ci95"])
            cells.append(f"{100 * p['warm_start_score']:.1f} -> {100 * p['final_score']:.1f}, {change}")
        rows.append(cells)
    show_table(columns, rows, console)
    if summary["data"]:
        console.print(f"data: {summary['data']}", markup=False)
    console.print(
        f"{summary['recipe']}: {summary['iterations']} iterations, {summary['iteration_seconds']:.2f} s each, "
        f"{summary['seconds']['train']:.0f} s in all; credit (labels, clusters, advantages) took "
        f"{summary['credit_share']:.2%} of an iteration; peak memory {summary['peak_memory_mb']:.0f} MB",
        markup=False,
    )
    console.print(
        f"learning curve  {folder / 'curve.png'}\nrun folder      {folder}", highlight=False, markup=False,
        soft_wrap=True,
    )  # fmt: skip


def _gain(value: float, interval: list[float] | None) -> str:
    inside = "" if interval is None else f" ({100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})"
    return f"{100 * value:+.1f}{inside} points"
