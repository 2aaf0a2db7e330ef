"""A process that computes shards beside this one, seen from here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from bipace.train.config import Config
from bipace.train.messages import Answer, Order, receive, send
from bipace.train.stopped import RunStopped

__all__ = ["ShardProcess"]

_COMMAND = "import sys, bipace; from bipace.train.shard_server import serve; serve(*map(int, sys.argv[1:]))"


class ShardProcess:
    """A fresh Python process with its own copy of actor, suite and collector (`bipace.train.shard_server`).

    It is started, not forked, because torch's threads do not survive a fork. It leads a session of its own,
    so a Ctrl-C in the terminal does not reach it, and it ends when this process has ended, even by SIGKILL: a
    pipe that only this process holds open is then closed. What environments print there goes to stderr.

    Args:
        config: the run.
        checkpoint: what the run's actor was loaded from.
        threads: CPU threads of its model.
    """

    def __init__(self, config: Config, checkpoint: Path | None, threads: int) -> None:
        ours, theirs = socket.socketpair()
        lifeline, held = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(theirs.fileno()), str(lifeline)],
                pass_fds=[theirs.fileno(), lifeline],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__ if _has_file(sys.__stderr__) else subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(held)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self._connection = Connection(ours.detach())
        self.close = weakref.finalize(self, _end, self._process, self._connection, held)
        self._started = False
        self._send(
            {
                "config": config.model_dump(mode="json"),
                "checkpoint": None if checkpoint is None else str(checkpoint),
                "threads": threads,
            }
        )

    @property
    def number(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, weights: list[torch.Tensor], requests: Sequence[Any]) -> None:
        """Hand over an order; `answer` waits for what comes of it.

        Raises:
            RunStopped: the process is gone or could not start.
        """
        if not self._started:
            self.answer()
            self._started = True
        self._send(Order(weights, list(requests)))

    def answer(self) -> Answer:
        """What it says to the last order.

        Raises:
            RunStopped: it failed or is gone; the message says why.
        """
        try:
            answer: Answer = receive(self._connection)
        except (EOFError, OSError) as error:
            raise self._gone() from error
        if answer.problem:
            raise RunStopped(
                f"the run's second process failed: {answer.problem}; the last checkpoint is kept. "
                "BIPACE_TRACEBACK=1 shows where, actor.processes=1 computes everything in one process"
            )
        return answer

    def _send(self, message: Any) -> None:
        try:
            send(self._connection, message)
        except OSError as error:
            raise self._gone() from error

    def _gone(self) -> RunStopped:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        status = self._process.returncode
        how = f"ended with status {status}"
        if status is None:
            how = "closed its connection"
        elif status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        most = " (the system does that to what takes too much memory)" if status == -signal.SIGKILL else ""
        return RunStopped(
            f"the run's second process ({self._process.pid}) {how}{most}; the last checkpoint is kept, go on "
            "with bipace train --resume; actor.processes=1 computes everything in one process, with less "
            "memory"
        )


def _has_file(stream: Any) -> bool:
    try:
        return stream is not None and stream.fileno() >= 0
    except (OSError, ValueError):
        return False


def _end(process: subprocess.Popen[bytes], connection: Connection, held: int) -> None:
    connection.close()
    os.close(held)
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
