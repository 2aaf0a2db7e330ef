"""What a finished run leaves beside its log and checkpoints: the learning curve and summary.json."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bipace.envs.base import offers_of
from bipace.report.curve import draw_curve, read_metrics
from bipace.train.files import write_json

if TYPE_CHECKING:  # reading a summary needs no torch
    from bipace.train.run import Run

__all__ = ["finish", "gain_interval", "read_summary", "summarize"]

SUMMARY = "summary.json"

_log = logging.getLogger(__name__)


def finish(run: Run, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Draw curve.png, write summary.json into the run's folder, and return the summary.

    A picture that cannot be drawn costs the picture alone: the log says so, for the run is done.

    Args:
        run: after its last iteration, with its validations.
        seconds: what took how long; `train` and, of a demo, `install`.

    Raises:
        OSError: the folder cannot be written.
    """
    summary = summarize(run, seconds)
    try:
        log = read_metrics(run.folder)
        draw_curve(log, run.panels.panel, summary["panel"]["n"], _title(run), run.folder / "curve.png")
    except Exception as error:
        _log.warning("no learning curve: %s: %s", type(error).__name__, error)
    # Last: a study takes the summary for the sign that nothing is missing.
    write_json(run.folder / SUMMARY, summary)
    return summary


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished run, or None where the folder holds none."""
    path = folder / SUMMARY
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _title(run: Run) -> str:
    """What a figure must say: suite, recipe, and on which data where that is not plain."""
    data = offers_of(run.suite).data_label
    return f"{run.suite.name}, {run.config.estimator}" + (f"\n{data}" if data else "")


def summarize(run: Run, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The run in numbers: first and last validation of every panel, time, credit's share of an iteration."""
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
        "seconds": dict(seconds),
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
    """95 % interval of after - before, from the two intervals: distances to far ends, squared and added.

    With Wilson's intervals this is Newcombe's method 10 (Statistics in Medicine 17, 1998) for independent
    samples. The two evaluations play the same tasks, so it errs on the wide side. None where one interval is
    not known.
    """
    if before_ci is None or after_ci is None:
        return None
    low = np.hypot(after - after_ci[0], before_ci[1] - before)
    high = np.hypot(after_ci[1] - after, before - before_ci[0])
    return [float(after - before - low), float(after - before + high)]
