"""A few saved episodes: a solved and a failed one of the last iteration.

Their text is untrusted and stays text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bipace.report.runs import RunRecord

__all__ = ["sample_episodes"]

_RUNS, _TEXT, _STEPS = 8, 1500, 20
_TAIL = 4_000_000  # bytes read from the end of rollouts.jsonl: the last iterations


def sample_episodes(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """At most two episodes of the first run of each method that saved its rollouts (run.save_rollouts).

    Long texts and long episodes are cut, and say so.
    """
    found: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    for run in runs:
        path, key = run.folder / "rollouts.jsonl", (run.environment, run.method)
        if key in seen or len(seen) == _RUNS or not path.is_file():
            continue
        seen.add(key)
        chosen: dict[bool, Mapping[str, Any]] = {}
        for record in _last_first(path):
            if record.get("steps"):
                chosen.setdefault(bool(record.get("won")), record)
            if len(chosen) == 2:
                break
        found += [_episode(run, chosen[won]) for won in sorted(chosen, reverse=True)]
    return found


def _last_first(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _TAIL, 0))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:  # the first line read was cut, or the last one was being written
            continue
        if isinstance(record, dict):
            yield record


def _episode(run: RunRecord, record: Mapping[str, Any]) -> dict[str, Any]:
    steps = list(record["steps"])
    return {
        "run": run.name,
        "iteration": record.get("iteration"),
        "task": _cut(record.get("task")),
        "won": bool(record.get("won")),
        "reward": record.get("reward"),
        "steps_in_all": len(steps),
        "steps": [
            {
                **{k: _cut(step.get(k)) for k in ("observation", "response", "action")},
                "valid": bool(step.get("valid", True)),
            }
            for step in steps[:_STEPS]
        ],
    }


def _cut(text: Any) -> str:
    text = str(text)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} [... {len(text) - _TEXT} more characters]"
