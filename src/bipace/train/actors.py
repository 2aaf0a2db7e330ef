"""Actors by name: those shipped inside the package, or any folder."""

from __future__ import annotations

from pathlib import Path

from bipace.train.config import ConfigError

__all__ = ["SHIPPED", "actor_folder"]

SHIPPED = Path(__file__).resolve().parent.parent / "assets" / "actors"


def actor_folder(name: str) -> Path:
    """The folder of a shipped actor ("textcraft-small"), or the folder itself.

    A checkpoint folder (it holds `actor/`) and a run folder (it holds `best/` or `last/`) stand for the actor inside.

    Raises:
        ConfigError: neither.
    """
    shipped = SHIPPED / name
    if "/" not in name and shipped.is_dir():
        return shipped
    folder = Path(name)
    for inner in ("actor", "best/actor", "last/actor"):
        if (folder / inner).is_dir():
            return folder / inner
    if folder.is_dir():
        return folder
    known = ", ".join(sorted(p.name for p in SHIPPED.iterdir())) if SHIPPED.is_dir() else "none"
    raise ConfigError(f"actor.folder: no folder {name!r} and no shipped actor of that name (shipped: {known})")
