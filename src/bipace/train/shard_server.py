"""The second process of a run: `serve` computes the shards it is sent, until whoever started it is gone."""

from __future__ import annotations

import os
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from bipace.envs.registry import get_suite
from bipace.train.actors import load_actor, make_collector
from bipace.train.config import config_from
from bipace.train.messages import Answer, Order, receive, send
from bipace.train.shard_work import Work
from bipace.train.timing import peak_memory_mb, waited_seconds

__all__ = ["serve"]


def serve(number: int, lifeline: int) -> None:
    """Load the run's actor and suite, then answer orders.

    Args:
        number: file descriptor of the socket to the process that started this one.
        lifeline: one that is closed when that process has ended, however that came about.
    """
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    connection = Connection(number)
    try:
        work = _prepare(receive(connection))
    except Exception as error:
        send(connection, Answer([], _told(error)))
        return
    send(connection, Answer([]))
    trained = [p for p in work.actor.model.parameters() if p.requires_grad]
    while True:
        try:
            order: Order = receive(connection)
        except (EOFError, OSError):
            return
        try:
            with torch.no_grad():
                for parameter, value in zip(trained, order.weights, strict=True):
                    parameter.copy_(value)
            answer = Answer(
                [work.do(request) for request in order.requests], "", peak_memory_mb(), waited_seconds()
            )
        except Exception as error:
            answer = Answer([], _told(error))
        send(connection, answer)


def _prepare(beginning: dict[str, Any]) -> Work:
    config = config_from(beginning["config"])
    torch.set_num_threads(beginning["threads"])
    checkpoint = beginning["checkpoint"]
    actor = load_actor(config, None if checkpoint is None else Path(checkpoint))
    return Work(config, actor, actor, make_collector(config, get_suite(config.env.suite)))


def _told(error: Exception) -> str:
    if os.environ.get("BIPACE_TRACEBACK"):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _end_with(lifeline: int) -> None:
    """End this process, whatever it is doing, as soon as the other end of the pipe is closed."""
    while os.read(lifeline, 1):
        pass
    os._exit(1)
