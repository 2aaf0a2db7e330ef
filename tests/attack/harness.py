"""One attack: words for the real command line, run in a process of its own, and what may come of it.

A warm parent forks a child for every case, so that torch is imported once. A case is right where the child
ends in time with a status that the case allows, says what it must, leaves no traceback, and where every file
that was there is as it was unless the case says that it may change.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECONDS = 180.0
MEMORY = 8 << 30


@dataclass(frozen=True)
class Case:
    """An input and its outcome.

    Attributes:
        name: shown where it goes wrong; the kind stands before the first slash.
        words: of the command line, run in the case's own folder.
        status: those that are right.
        says: a pattern that stderr or stdout must hold; empty for none.
        prepare: puts what is needed into the folder.
        before: run in the child before the command line (limits, another user).
        may_change: a pattern of files (relative to the folder) that may change or go.
        after: looks at the folder when the child has ended; returns what is wrong, or "".
    """

    name: str
    words: tuple[str, ...]
    status: tuple[int, ...] = (2,)
    says: str = ""
    prepare: Callable[[Path], None] = lambda _folder: None
    before: Callable[[], None] = lambda: None
    may_change: str = r"(?!)"
    after: Callable[[Path], str] = lambda _folder: ""


def run(case: Case) -> str:
    """What is wrong with the outcome; empty where it is right."""
    place = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        folder = place / "here"
        folder.mkdir()
        place.chmod(0o755)
        case.prepare(folder)
        before = contents(folder)
        status, said, seconds = _in_child(case, folder, place)
        return _judge(case, folder, before, status, said, seconds)
    finally:
        for path in [place, *place.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(place)


def contents(folder: Path) -> dict[str, str]:
    """Every file's digest, and every link's target."""
    found: dict[str, str] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[path.relative_to(folder).as_posix()] = f"-> {path.readlink()}"
        elif path.is_file():
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _in_child(case: Case, folder: Path, place: Path) -> tuple[int | None, str, float]:
    said = place / "said"
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command(case, folder, said)
    status: int | None = None
    while status is None and time.monotonic() - start < SECONDS:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = -os.WTERMSIG(code) if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)
        else:
            time.sleep(0.003)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return status, said.read_text(encoding="utf-8", errors="replace"), time.monotonic() - start


def _be_the_command(case: Case, folder: Path, said: Path) -> None:
    status = 99
    try:
        os.setsid()
        out = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        sys.stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        case.before()
        sys.argv = ["bipace", *case.words]
        from bipace.cli import main

        try:
            main()
        except SystemExit as leaving:
            status = leaving.code if isinstance(leaving.code, int) else 1 if leaving.code else 0
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _judge(
    case: Case, folder: Path, before: dict[str, str], status: int | None, said: str, seconds: float
) -> str:
    if status is None:
        return f"no end within {SECONDS:g} s"
    if "Traceback (most recent call last)" in said:
        return f"a traceback: {said.strip().splitlines()[-1][:200]}"
    if status not in case.status:
        return f"status {status} instead of {case.status} after {seconds:.1f} s: {said.strip()[-300:]}"
    if case.says and not re.search(case.says, " ".join(said.split())):
        return f"does not say {case.says!r}: {said.strip()[-300:]}"
    after = contents(folder)
    lost = [n for n, d in before.items() if after.get(n) != d and not re.search(case.may_change, n)]
    if lost:
        return f"{len(lost)} files changed or gone, the first {lost[0]}"
    return case.after(folder)
