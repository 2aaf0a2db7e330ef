"""Trackers beside the console and metrics.jsonl.

TensorBoard, Weights & Biases (offline unless told), trackio.

Each is optional, switched on by `run.loggers`, and gets every line of metrics.jsonl with its iteration as the
step. Nothing is sent anywhere unless the tracker's own environment variables say so.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bipace.train.config import Config

__all__ = ["check_loggers", "open_loggers"]

Log = Callable[[int, dict[str, float]], None]


def check_loggers(names: Iterable[str]) -> None:
    """Find a missing package before a file is written.

    Raises:
        ValueError: a logger whose package is not installed; the message says how to install it.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"run.loggers: {name} is not installed: pip install 'bipace[{name}]', or leave it out of "
                f"run.loggers"
            )


@contextmanager
def open_loggers(config: Config, folder: Path, start: int = 0) -> Iterator[Log]:
    """Open the trackers of `run.loggers`; what is yielded logs one iteration's metrics to all of them.

    Args:
        config: the run's; trackers show it.
        folder: the run folder; TensorBoard and wandb write below it, trackio where TRACKIO_DIR says.
        start: the iteration the run goes on from: TensorBoard drops what an earlier process logged behind it.
    """
    with ExitStack() as stack:
        logs = [stack.enter_context(_OPEN[name](config, folder, start)) for name in config.run.loggers]

        def log(iteration: int, metrics: dict[str, float]) -> None:
            for one in logs:
                one(iteration, metrics)

        yield log


@contextmanager
def _tensorboard(config: Config, folder: Path, start: int) -> Iterator[Log]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1 if start else None)
    if not start:
        writer.add_text("config", "    " + config.model_dump_json(indent=1).replace("\n", "\n    "))

    def log(iteration: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, iteration)
        writer.flush()  # a killed run has shown what it did

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(config: Config, folder: Path, start: int) -> Iterator[Log]:
    import wandb  # pyright: ignore[reportMissingImports]  (an optional extra)

    run: Any = wandb.init(
        project="bipace",
        name=_name(folder),
        group=_name(folder),
        dir=str(folder),
        config={**config.model_dump(mode="json"), "start": start},
        mode="online" if os.environ.get("WANDB_MODE") == "online" else "offline",
    )
    try:
        yield lambda iteration, metrics: run.log(metrics, step=iteration)
    finally:
        run.finish()


@contextmanager
def _trackio(config: Config, folder: Path, _start: int) -> Iterator[Log]:
    import trackio  # pyright: ignore[reportMissingImports]  (an optional extra)

    run: Any = trackio.init(
        project="bipace",
        name=_name(folder),
        config=config.model_dump(mode="json"),
        resume="allow",
        embed=False,
    )
    try:
        yield lambda iteration, metrics: run.log(metrics, step=iteration)
    finally:
        run.finish()


_OPEN = {"tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio}


def _name(folder: Path) -> str:
    """The last three parts of the path: a study's environment, method and seed."""
    return "-".join(folder.resolve().parts[-3:])
