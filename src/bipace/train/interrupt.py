"""Ctrl-C: the first one lets the iteration finish, the second stops at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["finish_iteration_first", "say_on_stderr"]


def say_on_stderr(what: str) -> None:
    """One line for whoever runs this."""
    print(what, file=sys.stderr, flush=True)


@contextmanager
def finish_iteration_first() -> Iterator[list[int]]:
    """The first SIGINT is noted, the second raises KeyboardInterrupt.

    Yields a list that is empty until the first.
    """
    noted: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)
        print(
            "\nCtrl-C: finishing this iteration, then saving. Press again to stop at once.", file=sys.stderr
        )

    try:
        previous = signal.signal(signal.SIGINT, handle)
    except ValueError:  # not the main thread: signals are somebody else's
        yield noted
        return
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)
