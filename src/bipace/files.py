"""Files written whole or not at all, and the one folder for what can be made or fetched again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["cache_folder", "to_disk", "whole", "write_json", "write_text"]


@contextmanager
def whole(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """A temporary sibling to write to, which takes the file's place at the end.

    A reader never sees half of it.

    Its content is on the disk before it is renamed. Where the block raises, the sibling is removed and the
    file is as it was.

    Args:
        path: the file; its folder must be there.
        alone: True where nobody else can write it at the same time (a folder under a lock). The sibling then
            has the same name each time, so that the next write takes away what a kill has left.
    """
    temporary = path.with_name(f".{path.name}.tmp" if alone else f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        to_disk(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str, *, alone: bool = False) -> None:
    """Text in UTF-8 through `whole`; half a surrogate pair, which is no UTF-8, is written as an escape."""
    with (
        whole(path, alone=alone) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
    ):
        file.write(text)


def write_json(path: Path, content: Any, *, alone: bool = False) -> None:
    """Indented JSON through `whole`."""
    write_text(path, json.dumps(content, indent=1) + "\n", alone=alone)


def to_disk(path: Path) -> None:
    """Bring a file's content, or a folder's names, to the disk: a rename must not outrun what it names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder(part: str) -> Path:
    """Where a part of the package keeps what it fetched or built.

    $BIPACE_CACHE/PART, else the user's cache folder.
    """
    own, cache = os.environ.get("BIPACE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    base = Path(own) if own else (Path(cache) if cache else Path.home() / ".cache") / "bipace"
    return base.expanduser() / part
