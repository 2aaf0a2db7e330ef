"""Writes src/bipace/assets/panels/SUITE.json: the task ids of every panel, which never change under their
version.

    PYTHONPATH=src:tests python tests/golden/panels.py

It adds panels that are new, and refuses one whose tasks are no longer those of its version: give a changed
panel a new name or raise its version here, so that results under the old one keep their meaning. Official
games are named by a digest alone; their ids come with the games.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bipace.envs.alfworld import AlfworldSuite
from bipace.envs.alfworld.suite import OFFICIAL_SPLITS
from bipace.envs.base import Suite
from bipace.envs.registry import SUITES, get_suite
from bipace.rollout.panel import PANELS, task_digest
from samples import extract

DIGEST_ONLY = OFFICIAL_SPLITS[1:]
VERSIONS: dict[str, int] = {}  # "suite/panel" -> version, where it is not 1


def shipped_panels(suite: Suite) -> dict[str, dict[str, object]]:
    """Panel -> version, number of tasks, sha256, and the ids (official games: without)."""
    found: dict[str, dict[str, object]] = {}
    for name, tasks in suite.splits.items():
        official = suite.name == "alfworld" and name in DIGEST_ONLY
        if name.endswith("panel") or official:
            version = VERSIONS.get(f"{suite.name}/{name}", 1)
            found[name] = {"version": version, "n": len(tasks), "sha256": task_digest(tasks)}
            found[name] |= {} if official else {"tasks": list(tasks)}
    return found


def merge(
    old: dict[str, dict[str, object]], new: dict[str, dict[str, object]]
) -> dict[str, dict[str, object]]:
    """Both together. Raises ValueError for a panel whose tasks changed under one version."""
    for panel in old.keys() & new.keys():
        if old[panel] != new[panel] and old[panel]["version"] == new[panel]["version"]:
            raise ValueError(f"{panel}: its tasks changed under version {old[panel]['version']}")
    return {**old, **new}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for split in DIGEST_ONLY:
            extract(split, Path(folder))
        for name in SUITES:
            write(name, AlfworldSuite(folder) if name == "alfworld" else get_suite(name))


def write(name: str, suite: Suite) -> None:
    path = Path(PANELS) / f"{name}.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    new = shipped_panels(suite)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(merge(old, new), indent=1) + "\n", encoding="utf-8")
    print(name, {panel: entry["n"] for panel, entry in new.items()}, file=sys.stderr)


if __name__ == "__main__":
    main()
