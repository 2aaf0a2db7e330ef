"""Where an actor is: shipped, fetched, or a folder.

Knows no framework, so that a slip in a name is told at once.
"""

from __future__ import annotations

import json
from pathlib import Path

from bipace.envs.registry import SUITES
from bipace.policies.pretrained import CATALOGUE, cached_folder
from bipace.train.config import ConfigError

__all__ = ["SHIPPED", "actor_folder", "mismatch", "run_of"]

SHIPPED = Path(__file__).resolve().parent.parent / "assets" / "actors"


def actor_folder(name: str) -> Path:
    """The folder of a shipped actor ("textcraft-small"), of a fetched model ("smollm2-135m"), or itself.

    A checkpoint folder (it holds `actor/`) and a run folder (it holds `best/` or `last/`) stand for the actor
    inside.

    Raises:
        ConfigError: none of these; a model that has not been fetched yet.
    """
    shipped = SHIPPED / name
    if "/" not in name and shipped.is_dir():
        return shipped
    fetched = cached_folder(name)
    if fetched is not None:
        return fetched
    folder = Path(name)
    for inner in ("actor", "best/actor", "last/actor"):
        if (folder / inner).is_dir():
            return folder / inner
    if folder.is_dir():
        return folder
    if name in CATALOGUE:
        raise ConfigError(f"actor.folder: {name!r} has not been fetched yet; run: bipace models fetch {name}")
    known = ", ".join([*(sorted(p.name for p in SHIPPED.iterdir()) if SHIPPED.is_dir() else ()), *CATALOGUE])
    raise ConfigError(
        f"actor.folder: no folder {name!r} and no shipped actor of that name (known names: {known})"
    )


def run_of(path: Path) -> Path | None:
    """The run folder that a folder is or lies in (RUN, RUN/best, RUN/checkpoints/...), or None."""
    for place in dict.fromkeys((path, *list(path.absolute().parents)[:3], *list(path.resolve().parents)[:3])):
        if (place / "provenance.json").is_file() and (place / "config.json").is_file():
            return place
    return None


def mismatch(actor: Path, suite: str) -> str:
    """A warning where an actor learned another suite's episodes (its imitation.json says so), else empty."""
    try:
        card = json.loads((actor / "imitation.json").read_text(encoding="utf-8"))
        words = str(card["command"]).split()
        learned = words[words.index("--suite") + 1]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ""
    if learned == suite or suite not in SUITES or learned not in SUITES:
        return ""
    fitting = ", ".join(path.name for path in sorted(SHIPPED.glob(f"{suite}-*")))
    return (
        f"warning: the actor {actor.name} was made for {learned}, not for {suite}: expect it to solve next "
        f"to nothing; "
        f"made for {suite}: actor.folder={fitting} (bipace train --config {suite}, where there is a preset)"
    )
