"""What a folder holds: files of trajectories, and run folders with transcript and verdict apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bipace.analyze.readers.terminal_bench import harbor_verdict
from bipace.analyze.source import suffixes

__all__ = ["Place", "place_of", "places"]

_READ = (".json", ".jsonl", ".parquet", ".csv", ".tsv", ".traj", ".eval")
# Files that the tools write beside their trajectories.
_BESIDE = frozenset({
    "config.json", "lock.json", "result.json", "run_metadata.json", "manifest.json", "preds.json",
    "metrics.jsonl",
    "provenance.json", "run.lock", "tb.lock", "args.json", "generation_config.json", "tokenizer.json",
    "tokenizer_config.json", "base_state.json", "summaries.json", "special_tokens_map.json",
})  # fmt: skip
_CONTINUED = re.compile(r"trajectory(\.cont-\d+)?\.json")


@dataclass(frozen=True)
class Place:
    """Files that are read together, and what stands beside them.

    Attributes:
        name: what is shown.
        files: in order; none for a trial that left no transcript.
        together: True where the files hold the events of one conversation.
        verdict: {task, name, reward, out} of a trial, for the trajectories that are not a sub-agent's.
    """

    name: Path
    files: tuple[Path, ...]
    together: bool = False
    verdict: dict[str, Any] = field(default_factory=dict[str, Any])


def places(path: Path) -> list[Place]:
    """Everything below a folder that may hold trajectories, sorted by name."""
    return list(_walk(path))


def place_of(path: Path) -> Place:
    """A file on its own; a trial's transcript brings the trial's verdict along."""
    trial = path.parent.parent
    if path.parent.name == "agent" and _is_harbor(trial):
        return Place(path, (path,), verdict=harbor_verdict(trial))
    return Place(path, (path,))


def _walk(folder: Path) -> Iterator[Place]:
    if _is_harbor(folder):
        yield _trial(folder)
        return
    inside = sorted(folder.iterdir())
    if (folder / "agent-logs").is_dir() and (folder / "results.json").is_file():
        yield Place(folder / "results.json", (folder / "results.json",))
        return
    if folder.name == "events" and (events := [p for p in inside if re.fullmatch(r"event-.*\.json", p.name)]):
        yield Place(folder, tuple(events), together=True)
        return
    below = any(folder.glob("*/*/agent-logs"))
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file() and _is_candidate(path) and not (below and path.name == "results.json"):
            yield Place(path, (path,))


def _trial(folder: Path) -> Place:
    """A Harbor trial: its ATIF documents, those of its sub-agents and of its steps too."""
    own = sorted(
        (folder / "agent").glob("trajectory*.json"), key=lambda p: (not _CONTINUED.fullmatch(p.name), p.name)
    )
    steps = sorted(folder.glob("steps/*/agent/trajectory*.json"))
    return Place(folder, tuple(p for p in (*own, *steps) if p.is_file()), verdict=harbor_verdict(folder))


def _is_harbor(folder: Path) -> bool:
    ran = (folder / "agent").is_dir() or (folder / "steps").is_dir() or (folder / "verifier").is_dir()
    graded = (folder / "verifier").is_dir() or (folder / "trial.log").is_file()
    return ran and ((folder / "result.json").is_file() or (folder / "config.json").is_file() or graded)


def _is_candidate(path: Path) -> bool:
    return path.name not in _BESIDE and suffixes(path)[-1:] in [[s] for s in _READ]
