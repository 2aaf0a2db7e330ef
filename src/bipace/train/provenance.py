"""What a run is made of, by content.

The recipe's terms, the user's own code, the starting actor, the task lists.

The configuration names these things; `provenance.json` holds their digests, so that a run goes on with what
it began with or is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from bipace.core.advantages import Recipe
from bipace.core.estimators import RECIPES, describe
from bipace.envs.registry import SUITES
from bipace.rollout.panel import task_digest
from bipace.train.config import Config
from bipace.train.split import Split
from bipace.train.threads import Threads

__all__ = ["COMPARED", "provenance"]

_OF_ACTORS = {".safetensors", ".json", ".jinja", ".txt", ".model"}
COMPARED = ("recipe", "files", "actor", "tasks", "shards")
"""What must be the same when a run goes on; the rest is for the record."""


def provenance(
    config: Config,
    recipe: Recipe,
    tasks: dict[str, Sequence[str]],
    threads: Threads,
    split: Split,
    actor: Path | None,
) -> dict[str, Any]:
    """Everything that the configuration names but does not hold.

    Args:
        config: the run.
        recipe: what its estimator was found to be.
        tasks: split or panel -> task ids.
        threads: of the CPU, and why so many.
        split: shards of an iteration and the processes that compute them.
        actor: folder of the starting actor; None where it is gone and the run no longer needs it.

    Returns:
        JSON: recipe; files (path -> sha256) of the user's own code, with what it imports from its own folder
        or package; actor (file -> sha256), or None; tasks (name -> n and sha256); shards; versions, cores,
        threads and processes.
    """
    found = {
        "recipe": describe(recipe),
        "files": {name: _digest(path) for name, path in _own_code(config)},
        "actor": None if actor is None else _folder_digests(actor),
        "tasks": {name: {"n": len(ids), "sha256": task_digest(ids)} for name, ids in tasks.items()},
        "versions": {
            "python": platform.python_version(),
            **{p: version(p) for p in ("torch", "transformers", "numpy")},
        },
        "cpus": os.cpu_count(),
        "threads": asdict(threads),
        "shards": split.shards,
        "processes": split.processes,
    }
    return json.loads(json.dumps(found, default=lambda value: type(value).__name__))


def _own_code(config: Config) -> Iterator[tuple[str, Path]]:
    """The user's own source files: those named, and what they import from their own folder or package."""
    named = {config.estimator, config.env.suite} - {*RECIPES, *SUITES}
    for where in sorted({name.rpartition(":")[0] for name in named if ":" in name}):
        if where.endswith(".py"):
            file = Path(where)
            home = file.resolve().parent
            for path in sorted(_imported(f"bipace_user_{file.resolve().as_posix()}", home)):
                yield (file.parent / path.relative_to(home)).as_posix(), path
        elif where in sys.modules:
            top = sys.modules[where.partition(".")[0]]
            home = _source(sys.modules[where] if top.__name__ == "bipace" else top)
            if home is None:  # a module without a source file
                continue
            home = home.parent if home.name == "__init__.py" else home
            for path in sorted(_imported(where, home)):
                yield (
                    path.name if path == home else f"{top.__name__}/{path.relative_to(home).as_posix()}",
                    path,
                )


def _imported(start: str, home: Path) -> set[Path]:
    """Source files at or below `home` of the module `start` and of what can be reached from its names."""
    found: set[Path] = set()
    waiting, seen = [start], {start}
    while waiting:
        module = sys.modules.get(waiting.pop())
        path = _source(module)
        if module is None or path is None or not path.is_relative_to(home) or "site-packages" in path.parts:
            continue
        found.add(path)
        for value in list(vars(module).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(name, str) and name not in seen:
                seen.add(name)
                waiting.append(name)
    return found


def _source(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) and file.endswith(".py") else None


def _folder_digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix in _OF_ACTORS)
    return {path.name: _digest(path) for path in files if path.name != "imitation.json"}


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()
