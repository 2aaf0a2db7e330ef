"""A folder that one process alone writes into, its files, and one kind of full disk."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bipace import files
from bipace.files import to_disk
from bipace.train.config import ConfigError

try:
    import fcntl
except ModuleNotFoundError:  # no such locks on this system
    fcntl = None

__all__ = ["LOCK", "FolderInUse", "held", "one_kind_of_full_disk", "to_disk", "write_json", "write_text"]

LOCK = ".lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class FolderInUse(ConfigError):
    """Another process writes into the folder; the message names it."""


def write_json(path: Path, content: Any) -> None:
    """`bipace.files.write_json` into a folder that is `held`.

    What a kill has left is taken away by the next write.
    """
    files.write_json(path, content, alone=True)


def write_text(path: Path, text: str) -> None:
    """`bipace.files.write_text` into a folder that is `held`."""
    files.write_text(path, text, alone=True)


@contextmanager
def one_kind_of_full_disk(folder: Path) -> Iterator[None]:
    """The libraries that write weights and tokenizers report a full disk each in its own way.

    Here it is an OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
    except Exception as error:
        if any(f"os error {number}" in str(error) or os.strerror(number) in str(error) for number in _FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Keep every other process that asks out of the folder, which is made where it is absent.

    The lock is the system's: it ends with the process, however that ends. Its file stays, for a lock on a
    file that somebody removes is none.

    Yields:
        False where this system or file system knows no locks; then nothing is kept out.

    Raises:
        FolderInUse: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="utf-8") as file:
        locked = _lock(file.fileno(), folder, file)
        if locked:
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        yield locked


def _lock(number: int, folder: Path, file: Any) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            return False
        file.seek(0)
        who = file.read(200).strip() or "another process"
        raise FolderInUse(
            f"{folder}: {who} is writing into it; wait for it or stop it, or name another folder with --out"
        ) from error
    return True
