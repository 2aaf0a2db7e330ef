"""The training loop: iterations, validations, checkpoints and logs of a `bipace.train.run.Run`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bipace.rollout.panel import panel_tasks
from bipace.train.config import Config, ConfigError
from bipace.train.files import held
from bipace.train.history import append_lines, check_logs
from bipace.train.interrupt import finish_iteration_first, say_on_stderr
from bipace.train.loggers import check_loggers, open_loggers
from bipace.train.places import actor_folder, mismatch
from bipace.train.provenance import provenance
from bipace.train.run import Run
from bipace.train.run_folder import begin, check_folder, start_of
from bipace.train.stopped import NonFiniteError, NothingPlayed, RunStopped
from bipace.train.timing import Slowness

__all__ = ["NonFiniteError", "NothingPlayed", "Run", "RunStopped", "train"]


def train(
    config: Config,
    folder: Path,
    *,
    resume: bool = False,
    on_iteration: Callable[[Run, dict[str, float]], None],
    say: Callable[[str], None] = say_on_stderr,
) -> Run:
    """Train to `run.iterations`, validating and saving on the way.

    The first Ctrl-C finishes the iteration, saves, and returns; the second stops at once (the last complete
    checkpoint stays). The panel is validated before the first iteration, every `run.validate_every`, and at
    the end; the held-out panels at the beginning and at the end.

    Args:
        config: the run.
        folder: must be empty or absent, unless resume is set.
        resume: continue the run of this folder from its last checkpoint, or from the start where it was
            stopped before the first; the configuration must be the same but for run.iterations, run.loggers,
            actor.threads and actor.processes.
        on_iteration: called with the run and the metrics of each finished iteration (0: the warm start's
            validation).
        say: called with what a user should know: the number of threads and why, iterations that the machine
            slows.

    Raises:
        ConfigError: the folder holds another run, or resume with another configuration; another process
            trains in it; its logs or its last checkpoint are damaged.
        NonFiniteError: the update broke down.
        NothingPlayed: every episode of an iteration or a validation was aborted.
        OSError: the disk is full (errno ENOSPC); the last complete checkpoint is untouched.
    """
    check_folder(config, folder, resume)
    check_loggers(config.run.loggers)
    with ExitStack() as stack:
        if resume:
            stack.enter_context(held(folder))
        run = Run(config, folder, start_of(folder) if resume else None)
        stack.callback(run.close)
        # Everything that can be wrong with the settings was found by now, before a file is written.
        if resume:
            check_logs(folder, run.iteration if run.checkpoint else -1)
        else:
            stack.enter_context(held(folder))
            check_folder(config, folder, resume)  # another process may have been here meanwhile
        begin(config, folder, _origin(run))
        split = run.shards.split
        threads = f"threads: {run.threads.number} ({run.threads.why})"
        shards = (
            f"shards: {split.shards}, computed by {split.processes} process{'es' * (split.processes > 1)}"
        )
        for what in filter(None, (*run.go_on(), threads, shards, _warning(run))):
            say(what)
        _train(run, on_iteration, say)
    return run


def _train(
    run: Run, on_iteration: Callable[[Run, dict[str, float]], None], say: Callable[[str], None]
) -> None:
    config, folder, slowness = run.config, run.folder, Slowness()
    with open_loggers(config, folder, run.iteration) as log, finish_iteration_first() as interrupted:

        def record(metrics: dict[str, float]) -> None:
            append_lines(folder / "metrics.jsonl", [{"iteration": run.iteration, **metrics}])
            log(run.iteration, metrics)
            on_iteration(run, metrics)
            if notice := slowness.notice(metrics):
                say(f"iteration {run.iteration}: {notice}")

        if run.checkpoint is None:
            record(_validation(run, first=True))
            run.save()
        while run.iteration < config.run.iterations and not interrupted:
            metrics = run.step()
            last = run.iteration == config.run.iterations
            if last or run.due:
                metrics |= _validation(run, last=last)
            record(metrics)
            if last or interrupted or run.improved or run.iteration % config.run.save_every == 0:
                run.save()
    run.stopped = run.iteration < config.run.iterations


def _warning(run: Run) -> str:
    """That the starting actor was made for another suite, where its card says so."""
    return "" if run.checkpoint else mismatch(actor_folder(run.config.actor.folder), run.config.env.suite)


def _origin(run: Run) -> dict[str, Any]:
    """What the run is made of (`bipace.train.provenance`)."""
    names = (run.panels.split, run.panels.panel, *run.panels.held_out)
    tasks = {name: panel_tasks(run.suite, name) for name in names}
    try:
        actor = actor_folder(run.config.actor.folder)
    except ConfigError:
        if run.checkpoint is None:
            raise
        actor = None  # its checkpoint has all that a run without a reference needs
    return provenance(run.config, run.recipe, tasks, run.threads, run.shards.split, actor)


def _validation(run: Run, first: bool = False, last: bool = False) -> dict[str, float]:
    start = time.perf_counter()
    panels = (run.panels.panel, *(run.panels.held_out if first or last else ()))
    metrics: dict[str, float] = {}
    for panel in panels:
        result = run.validate(panel)
        metrics |= {f"val/{panel}/{name}": value for name, value in result.metrics().items()}
    return {**metrics, "timing_s/validation": time.perf_counter() - start}
