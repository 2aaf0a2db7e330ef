"""Which checkpoints a run folder holds, which of them `last` and `best` mean, and which may go.

What is deleted is what we can prove that we wrote: a folder named `iteration-N` whose `files.json` lists
every file in it, or one under a temporary name of ours. Everything else stays where it is.

A folder that was copied may have lost its links, or have copies of what they pointed at in their place. Both
are put in order without losing anything: see `settle`.
"""

from __future__ import annotations

import filecmp
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bipace.train.config import ConfigError
from bipace.train.files import write_json

__all__ = [
    "STATE",
    "find_last",
    "is_sealed",
    "is_temporary",
    "is_whole",
    "place",
    "point",
    "prune",
    "read_state",
    "remove",
    "seal",
    "settle",
]

STATE, FILES = "trainer_state.json", "files.json"
LINKS = ("last", "best")
_NAME = re.compile(r"iteration-(\d{6,})")
_BUILDING, _REMOVING = ".building-", ".removing-"


def place(folder: Path, iteration: int) -> Path:
    """The folder of an iteration's checkpoint."""
    return folder / "checkpoints" / f"iteration-{iteration:06d}"


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The trainer state of a checkpoint.

    Raises:
        FileNotFoundError: there is none.
        ConfigError: it is damaged.
    """
    path = checkpoint / STATE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        int(state["iteration"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path}: is damaged ({type(error).__name__}); put an undamaged copy there"
        ) from error
    return state


def find_last(folder: Path) -> Path | None:
    """The checkpoint to go on from; None where the run was stopped before its first.

    That is what `last` points at or, in a copy that lost its links, the newest whole checkpoint.

    Raises:
        ConfigError: there was one, and it is gone.
    """
    last = folder / "last"
    if last.is_symlink() and not last.exists():
        raise ConfigError(
            f"{folder}: the last checkpoint, {last.readlink()}, is gone; put it back or start a new run"
        )
    if last.exists():
        if not is_whole(last):
            raise ConfigError(
                f"{last}: is no whole checkpoint; copy the run folder again, or start a new run"
            )
        return last.resolve()
    return max(_whole(folder), default=None, key=lambda path: int(path.name.split("-")[1]))


def is_whole(checkpoint: Path) -> bool:
    """True where everything is there to go on from."""
    return all((checkpoint / name).exists() for name in (STATE, "actor", "optimizer.safetensors"))


def settle(folder: Path, last: int | None, best: int | None, *, kept: tuple[int, ...] = ()) -> list[str]:
    """Point `last` and `best` at the checkpoints of these iterations, and drop what nothing needs.

    None means no link.

    A run killed between the two links, or while it pruned, is brought to where it would have gone on. Where a
    copy has folders in the place of links, each becomes the checkpoint it is a copy of.

    Args:
        folder: the run folder.
        last: iteration that the run goes on from.
        best: iteration of its best checkpoint.
        kept: further iterations whose checkpoints stay.

    Returns:
        What the user should know: a best checkpoint that is gone, and what was not deleted.

    Raises:
        ConfigError: a folder in the place of a link that differs from the checkpoint it seems to be a copy
            of.
    """
    said: list[str] = []
    for name in LINKS:
        _unfollow(folder / name, folder)
    for name, iteration in zip(LINKS, (last, best), strict=True):
        link = folder / name
        if iteration is not None and place(folder, iteration).is_dir():
            point(link, place(folder, iteration))
            continue
        if iteration is not None:
            said.append(
                f"{link}: the checkpoint of iteration {iteration} is gone; the next better one takes its "
                f"place"
            )
        link.unlink(missing_ok=True)
    return said + prune(folder, kept)


def point(link: Path, target: Path) -> None:
    """Replace a link in one step."""
    temporary = link.with_name(f".{link.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.relative_to(link.parent), target_is_directory=True)
    temporary.replace(link)


def seal(checkpoint: Path) -> None:
    """List a new checkpoint's files in it: the proof that all of them are ours."""
    write_json(checkpoint / FILES, sorted(_files(checkpoint)))


def prune(folder: Path, kept: tuple[int, ...] = ()) -> list[str]:
    """Delete checkpoints that neither `last` nor `best` points at.

    Returns what stays because not all of it is ours.

    Args:
        folder: the run folder.
        kept: iterations whose checkpoints stay all the same.
    """
    stay = {(folder / link).resolve() for link in LINKS if (folder / link).exists()}
    stay |= {place(folder, iteration).resolve() for iteration in kept}
    said: list[str] = []
    inside = folder / "checkpoints"
    for path in sorted(inside.iterdir()) if inside.is_dir() else ():
        if path.is_symlink() or not path.is_dir() or path.resolve() in stay:
            continue
        if is_temporary(path):
            shutil.rmtree(path)
        elif _NAME.fullmatch(path.name) and not remove(path):
            said.append(f"{path}: is no longer needed and stays, because not all of its files are this run's")
    return said


def remove(checkpoint: Path) -> bool:
    """Delete a checkpoint if every file in it is on its own list; False where it was left as it is."""
    if not is_sealed(checkpoint):
        return False
    going = checkpoint.with_name(f"{_REMOVING}{checkpoint.name}")
    if going.exists():
        shutil.rmtree(going)
    checkpoint.replace(going)
    shutil.rmtree(going)
    return True


def is_sealed(checkpoint: Path) -> bool:
    """True where every file of the folder is on the list written with them (`seal`), or it is empty."""
    try:
        listed = json.loads((checkpoint / FILES).read_text(encoding="utf-8"))
        return {*_files(checkpoint)} <= {*listed, FILES}
    except (OSError, ValueError, TypeError):
        return checkpoint.is_dir() and not any(checkpoint.iterdir())


def is_temporary(path: Path) -> bool:
    """True for the folder of a checkpoint that was being written or deleted."""
    return path.name.startswith((_BUILDING, _REMOVING)) and bool(_NAME.fullmatch(path.name.split("-", 1)[1]))


def _whole(folder: Path) -> Iterator[Path]:
    inside = folder / "checkpoints"
    for path in inside.iterdir() if inside.is_dir() else ():
        if _NAME.fullmatch(path.name) and is_whole(path):
            yield path


def _files(folder: Path) -> Iterator[str]:
    return (
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    )


def _unfollow(link: Path, folder: Path) -> None:
    """Make a folder that stands where a link was the checkpoint it is a copy of."""
    if link.is_symlink() or not link.is_dir():
        return
    original = place(folder, int(read_state(link)["iteration"]))
    if not original.exists():
        original.parent.mkdir(exist_ok=True)
        link.replace(original)
    elif _same(link, original):
        shutil.rmtree(link)
    else:
        raise ConfigError(
            f"{link}: differs from {original}, of which it should be a copy; move one of them away"
        )


def _same(a: Path, b: Path) -> bool:
    names = set(_files(a))
    return names == set(_files(b)) and all(filecmp.cmp(a / name, b / name, shallow=False) for name in names)
