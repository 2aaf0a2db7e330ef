"""A run's folder: may this run use it, where does it go on from, and what of its logs belongs to that point?

`config.json` comes first and `provenance.json` second; a folder without the former holds no run. Lines and
files of iterations behind the checkpoint are dropped when a run is resumed: they are made again, the same to
the bit.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bipace.train.checkpoints import find_last, is_sealed, is_temporary, prune
from bipace.train.config import Config, ConfigError, config_from, write_config
from bipace.train.files import LOCK, write_json
from bipace.train.history import LOGS, logged
from bipace.train.provenance import COMPARED

__all__ = ["begin", "check_folder", "clear", "saved_config", "start_of"]

# What may change between the parts of one run: its length, who else is told, and the machine's own numbers of
# threads and processes.
FREE = frozenset({"run.iterations", "run.loggers", "actor.threads", "actor.processes"})
_FILES = {"config.json", "config.toml", "provenance.json", "summary.json", "curve.png", "last", "best", *LOGS}
_RESULT = re.compile(r"\.?iteration-\d+\..*jsonl(\.tmp)?")


def check_folder(config: Config, folder: Path, resume: bool) -> None:
    """Refuse a folder that does not fit, before anything is written.

    Raises:
        ConfigError: a new run in a folder that holds something; a resumed one without a run in it, or with
            one that was made under another configuration (the differing keys are named; those in FREE may
            differ).
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; name a folder for the run with --out")
    if not resume:
        if folder.exists() and any(not _is_leftover(path) for path in folder.iterdir()):
            holds = "a run" if (folder / "config.json").is_file() else "something else"
            way = f"continue it with --resume {folder}, or name" if holds == "a run" else "name"
            raise ConfigError(f"{folder}: already holds {holds}; {way} another folder with --out")
        return
    refuse_differences(folder, saved_config(folder).model_dump(mode="json"), config.model_dump(mode="json"))


def saved_config(folder: Path) -> Config:
    """The configuration of the run in the folder.

    Raises:
        ConfigError: the folder holds no run, or its config.json is damaged.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ConfigError(f"{folder}: holds no run to resume; start one without --resume")
    tree = _read(path)
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: is damaged; put an undamaged copy there or start a new run")
    actor = tree.get("actor")
    if isinstance(actor, dict) and "shards" not in actor:  # made before an iteration could be split
        actor["shards"] = 1
    return config_from(tree)


def begin(config: Config, folder: Path, origin: dict[str, Any]) -> None:
    """Write the configuration and the provenance; in a resumed folder the latter must be the same.

    What an earlier version did not write down is not compared.

    Raises:
        ConfigError: the recipe, a user's file, the actor or a task list is no longer what the run began with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / "provenance.json"
    if saved.is_file():
        old = _read(saved)
        new = (
            origin
            if "actor" in old
            else {**origin, "files": {k: origin["files"].get(k) for k in old["files"]}}
        )
        compared = [key for key in COMPARED if old.get(key) is not None and new.get(key) is not None]
        refuse_differences(folder, {k: old[k] for k in compared}, {k: new[k] for k in compared})
        origin = {**origin, "actor": origin.get("actor") or old.get("actor")}
    write_json(folder / "config.json", config.model_dump(mode="json"))
    write_json(saved, origin)
    write_config(config, folder / "config.toml")


def start_of(folder: Path) -> Path | None:
    """The checkpoint to go on from; None where the run was stopped before its first.

    Raises:
        ConfigError: there was one, and it is gone; a log is damaged.
    """
    found = find_last(folder)
    done = logged(folder)
    if found is None and done > 0:
        raise ConfigError(
            f"{folder}: its log reaches iteration {done}, but it holds no whole checkpoint; copy the folder "
            "again with its checkpoints/, or start a new run with --out"
        )
    return found


def clear(config: Config, folder: Path) -> None:
    """Remove a run of this very configuration, so that another can take its place.

    Raises:
        ConfigError: the folder holds anything that such a run does not write, or a run of another
            configuration; nothing is removed then.
    """
    if not folder.is_dir() or all(_is_leftover(path) for path in folder.iterdir()):
        return
    try:
        refuse_differences(
            folder, saved_config(folder).model_dump(mode="json"), config.model_dump(mode="json")
        )
    except ConfigError as error:
        raise ConfigError(
            f"{folder}: holds no run of the same kind, so it is left alone; name another with --out ({error})"
        ) from error
    foreign = sorted(str(path) for path in _foreign(folder))
    if foreign:
        raise ConfigError(
            f"{folder}: is left alone, because the run did not write {foreign[0]}; name another folder with "
            f"--out"
        )
    for name in ("last", "best"):
        (folder / name).unlink(missing_ok=True)
    prune(folder)
    for path in (*(folder / "validation").glob("*"), *folder.iterdir()):
        if path.is_file() and path.name != LOCK:
            path.unlink()


def refuse_differences(folder: Path, old: Any, new: Any) -> None:
    """Raise ConfigError where two JSON trees differ, naming the keys."""
    differing = sorted(_differences(old, new) - FREE)
    if differing:
        raise ConfigError(
            f"{folder}: was made under another configuration; these keys differ: {', '.join(differing)}"
        )


def _differences(old: Any, new: Any, prefix: str = "") -> set[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return {
            d
            for k in old.keys() | new.keys()
            for d in _differences(old.get(k), new.get(k), f"{prefix}.{k}" if prefix else k)
        }
    return set() if old == new else {prefix}


def _is_leftover(path: Path) -> bool:
    """The lock, or a temporary file of `write_json` left by a run that was killed."""
    return path.name == LOCK or (path.name.startswith(".") and path.name.endswith(".tmp"))


def _foreign(folder: Path) -> list[Path]:
    """What in the folder no run has written."""
    found = [
        path
        for path in folder.iterdir()
        if not _is_leftover(path) and path.name not in {*_FILES, "checkpoints", "validation"}
    ]
    found += [path for name in ("last", "best") if (path := folder / name).is_dir() and not path.is_symlink()]
    inside = folder / "validation"
    found += [
        path for path in (inside.iterdir() if inside.is_dir() else ()) if not _RESULT.fullmatch(path.name)
    ]
    inside = folder / "checkpoints"
    for path in inside.iterdir() if inside.is_dir() else ():
        if path.is_symlink() or not (is_temporary(path) or is_sealed(path)):
            found.append(path)
    return found


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is damaged; put an undamaged copy there or start a new run") from error
