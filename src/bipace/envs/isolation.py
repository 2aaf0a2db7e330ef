"""Environments in processes of their own, with a time limit.

One that hangs or dies costs its episode, nothing else.

A small server process loads the suite once and forks a child for every episode; parent and child speak JSON
over a socket. A child that does not answer in time is killed. The server leads its own process group, which
it ends when the trainer is gone, however that came about; a Ctrl-C in the terminal does not reach it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from bipace.envs.base import Environment, Suite, Turn, offers_of
from bipace.envs.turns import checked_turn

__all__ = ["EnvironmentLost", "IsolatedEnvironment", "IsolatedSuite", "isolate"]

_START_SECONDS = 300.0  # for importing and building the suite, once a run


class EnvironmentLost(RuntimeError):
    """An environment raised, hung or died in its own process; the message says which."""


def isolate(suite: Suite, where: str, seconds: float) -> IsolatedSuite:
    """The suite with every environment in a process of its own.

    Args:
        suite: what it is in this process: names, splits, families, expert.
        where: how the server finds it (`bipace.envs.registry.get_suite`).
        seconds: time limit of one reset or step.

    Raises:
        ValueError: this system cannot fork processes.
    """
    if not (hasattr(os, "fork") and hasattr(socket, "send_fds")):
        raise ValueError(
            "env.step_seconds: needs a system that can fork processes (Linux, macOS); leave it unset"
        )
    return IsolatedSuite(suite, where, seconds)


class IsolatedSuite:
    """A `Suite` (see `bipace.envs.base`) whose environments live in other processes.

    Args:
        suite: the suite in this process.
        where: its name for the server.
        seconds: time limit of one reset or step.
    """

    def __init__(self, suite: Suite, where: str, seconds: float) -> None:
        self.name, self.max_steps, self.instructions = suite.name, suite.max_steps, suite.instructions
        self.splits: Mapping[str, Sequence[str]] = suite.splits
        self.offers = offers_of(suite)
        self._suite, self._where, self._seconds = suite, where, seconds
        self._server: _Server | None = None

    def make(self) -> Environment:
        """A fresh environment in a fresh process.

        The server is started with the first one, and again if it died.

        Raises:
            EnvironmentLost: the server cannot be started or does not answer.
        """
        if self._server is None or not self._server.alive:
            self._server = _Server(self._where)
        return IsolatedEnvironment(self._server, self._seconds)

    def family(self, task: str) -> str:
        """The suite's."""
        return self._suite.family(task)

    def expert(self, task: str) -> tuple[str, ...]:
        """The suite's."""
        return self._suite.expert(task)


class IsolatedEnvironment:
    """An `Environment` (see `bipace.envs.base`) played by another process.

    Args:
        server: forks the process.
        seconds: time limit of one reset or step.
    """

    def __init__(self, server: _Server, seconds: float) -> None:
        self._server, self._seconds = server, seconds
        self._past: list[tuple[str, str]] = []
        self._connection, self._process = server.fork()

    def reset(self, task: str) -> Turn:
        """Begin the task. Raises EnvironmentLost."""
        self._past.clear()
        return self._ask("reset", task)

    def step(self, action: str) -> Turn:
        """Apply one action. Raises EnvironmentLost."""
        return self._ask("step", action)

    def copy(self) -> IsolatedEnvironment:
        """A new process brought to the same state by the same task and actions. Raises EnvironmentLost."""
        other = IsolatedEnvironment(self._server, self._seconds)
        for method, argument in self._past:
            other._ask(method, argument)
        return other

    def _ask(self, method: str, argument: str) -> Turn:
        try:
            self._connection.send_bytes(json.dumps([method, argument]).encode())
            if not self._connection.poll(self._seconds):
                with suppress(ProcessLookupError):
                    os.kill(self._process, signal.SIGKILL)
                self._connection.close()
                raise EnvironmentLost(
                    f"no answer to {method} within {self._seconds:g} s; its process was killed"
                )
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:  # closed: by its death, or by us when it hung
            raise EnvironmentLost(f"its process is gone, at {method}") from error
        if "error" in answer:
            raise EnvironmentLost(answer["error"])
        self._past.append((method, argument))
        return Turn(**{**answer, "admissible": tuple(answer["admissible"])})


class _Server:
    """The process that loads a suite and forks a child for each environment."""

    def __init__(self, where: str) -> None:
        ours, theirs = socket.socketpair()
        command = "from bipace.envs.isolation import serve; import sys; serve(int(sys.argv[1]), sys.argv[2])"
        # forking is for processes of one thread
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", command, str(theirs.fileno()), where],
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    **one_thread,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = ours
        weakref.finalize(self, _end, self._process, ours)
        ours.settimeout(_START_SECONDS)
        problem = self._read()
        if problem:
            raise EnvironmentLost(f"the environment server did not start: {problem}")

    @property
    def alive(self) -> bool:
        """False once the process ended."""
        return self._process.poll() is None

    def fork(self) -> tuple[Connection, int]:
        """A new child: the connection to it and its process id. Raises EnvironmentLost."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            return Connection(ours.detach()), int(self._read())
        except (OSError, ValueError) as error:
            raise EnvironmentLost("the environment server is gone") from error

    def _read(self) -> str:
        data = b""
        while not data.endswith(b"\n"):
            part = self._control.recv(4096)
            if not part:
                return "it died" if not data else data.decode()
            data += part
        return data[:-1].decode()


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def serve(control_number: int, where: str) -> None:
    """Run the server: load the suite, fork children as asked, end them all when the trainer is gone."""
    from bipace.envs.registry import get_suite

    control = socket.socket(fileno=control_number)
    try:
        suite = get_suite(where)
    except Exception as error:
        control.sendall(f"{type(error).__name__}: {error}".replace("\n", " ").encode() + b"\n")
        return
    control.sendall(b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    while True:
        order, numbers, _, _ = socket.recv_fds(control, 1, 1)
        if not order:
            os.killpg(0, signal.SIGKILL)
        child = os.fork()
        if child == 0:
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                control.close()
                _play(suite, Connection(numbers[0]))
            finally:
                os._exit(0)
        os.close(numbers[0])
        control.sendall(f"{child}\n".encode())


def _play(suite: Suite, connection: Connection) -> None:
    environment: Any = None
    while True:
        try:
            method, argument = json.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            environment = environment or suite.make()
            said = environment.reset(argument) if method == "reset" else environment.step(argument)
            answer = asdict(checked_turn(said))
        except (Exception, SystemExit) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        connection.send_bytes(json.dumps(answer).encode())
