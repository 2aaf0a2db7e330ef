"""A training run on the screen.

Progress, what the user should know, and at the end table, picture and summary.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bipace.cli.tables import show_table
from bipace.train.config import Config
from bipace.train.failure import INTERRUPTED
from bipace.train.finish import read_summary
from bipace.train.loop import Run, train

__all__ = ["progress_bar", "train_and_report"]


def progress_bar(console: Console) -> Progress:
    """A bar with counts, the time left and a note."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=console)


def train_and_report(
    config: Config, folder: Path, *, resume: bool = False, install_seconds: float = 0.0
) -> int:
    """Train with a progress bar, then print the summary.

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
    progress = progress_bar(console)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    try:
        shown, spent = _Shown(config, progress, say), {"install": install_seconds}
        run = train(config, folder, resume=resume, on_iteration=shown, say=say, spent=spent)
    except KeyboardInterrupt:
        _stop(progress)
        say(f"stopped at once; the last checkpoint is whole, go on with: bipace train --resume {folder}")
        return INTERRUPTED
    finally:
        _stop(progress)
    if run.stopped:
        say(
            f"stopped at {run.iteration} of {config.run.iterations}; go on with: bipace train --resume "
            f"{folder}"
        )
        return INTERRUPTED
    if (summary := read_summary(folder)) is not None:
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
            f"about {timedelta(seconds=seconds)} to go: {left} iterations of "
            f"{metrics['timing_s/iteration']:.1f} s and {checks} validations; "
            f"{metrics['perf/peak_memory_mb']:.0f} MB of memory so far"
        )


def _stop(progress: Progress) -> None:
    if progress.live.is_started:
        progress.stop()


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
        f"{summary['recipe']}: {summary['iterations']} iterations, {summary['iteration_seconds']:.2f} s "
        f"each, {summary['seconds']['train']:.0f} s in all; credit (labels, clusters, advantages) took "
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
