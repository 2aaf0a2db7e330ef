"""Output files: shown to be writable before any work, and never over a file that is not ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from bipace.train.config import ConfigError

__all__ = ["check_file", "check_folder", "starts_with"]


def check_file(path: Path, option: str, ours: Callable[[Path], bool], *, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output file that could not be written, or would replace what no such command wrote.

    Missing folders are made. Nothing else is changed.

    Args:
        path: the file.
        option: how the user named it, for the message.
        ours: tells of a file that exists whether it may be replaced.
        inputs: files that are read, which the output must not be.

    Raises:
        ConfigError: a folder, an input, or somebody else's file.
        OSError: it cannot be written.
    """
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder; name a file")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise ConfigError(f"{option}: {path} is one of the inputs; name another file")
    if path.exists() and path.stat().st_size and not ours(path):
        raise ConfigError(f"{option}: {path} exists and was not written by this command; name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    _show_writable(path.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))


def check_folder(path: Path, option: str) -> None:
    """Refuse a folder for outputs that is a file or cannot be written; it is made where it is absent.

    Raises:
        ConfigError: a file.
        OSError: it cannot be made or written.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{option}: {path} is a file; name a folder")
    path.mkdir(parents=True, exist_ok=True)
    _show_writable(path)


def starts_with(*heads: str) -> Callable[[Path], bool]:
    """A test for files that begin with one of the texts."""

    def ours(path: Path) -> bool:
        with path.open("rb") as file:
            begin = file.read(max(len(head.encode()) for head in heads))
        return any(begin.startswith(head.encode()) for head in heads)

    return ours


def _show_writable(folder: Path) -> None:
    probe = folder / f".bipace-{os.getpid()}.tmp"
    probe.touch()
    probe.unlink()
