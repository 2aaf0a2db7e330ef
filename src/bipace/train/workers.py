"""Run many training processes side by side: each run in a fresh process, a failure costs its run alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Job", "run_jobs"]

_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """A process to run.

    Attributes:
        name: shown and handed to the callbacks.
        command: the program with its arguments; it prints one JSON object a line on stdout.
        log: file for its stderr, appended to.
    """

    name: str
    command: Sequence[str]
    log: Path


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    *,
    on_start: Callable[[Job], None],
    on_message: Callable[[Job, dict[str, Any]], None],
    on_end: Callable[[Job, int], None],
) -> bool:
    """Run the jobs in order, at most `workers` at a time, and wait for them.

    The callbacks are called one at a time. The first SIGINT or SIGTERM starts no further job and is passed on
    to those that run (a trainer finishes its iteration and saves); the second is passed on as well (it stops
    at once).

    Returns:
        True where every job was run, False where a signal came in between.
    """
    pool = _Pool(threading.Lock(), {}, threading.Event(), on_start, on_message, on_end)
    environment = {**os.environ, **{name: os.environ.get(name, "1") for name in _ONE_THREAD}}
    environment["TOKENIZERS_PARALLELISM"] = "false"
    with _passed_on(pool), ThreadPoolExecutor(workers) as threads:
        futures = [threads.submit(pool.run, job, environment) for job in jobs]
        while wait(futures, timeout=0.2).not_done:  # the main thread must wake up to run its signal handlers
            pass
        for future in futures:
            future.result()
    return not pool.stopping.is_set()


@dataclass
class _Pool:
    lock: threading.Lock
    running: dict[str, subprocess.Popen[str]]
    stopping: threading.Event
    on_start: Callable[[Job], None]
    on_message: Callable[[Job, dict[str, Any]], None]
    on_end: Callable[[Job, int], None]

    def run(self, job: Job, environment: Mapping[str, str]) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("a", encoding="utf-8") as log:
            with self.lock:
                if self.stopping.is_set():
                    return
                # A session of its own: a Ctrl-C in the terminal reaches the process once, through us.
                process = subprocess.Popen(
                    job.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                    encoding="utf-8", env=environment, start_new_session=True,
                )  # fmt: skip
                self.running[job.name] = process
                self.on_start(job)
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    with self.lock:
                        self.on_message(job, json.loads(line))
            status = process.wait()
            with self.lock:
                del self.running[job.name]
                self.on_end(job, status)

    def stop(self) -> None:
        self.stopping.set()
        for process in list(self.running.values()):
            process.send_signal(signal.SIGINT)


@contextmanager
def _passed_on(pool: _Pool) -> Iterator[None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        pool.stop()

    try:
        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
