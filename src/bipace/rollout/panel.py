"""Success and score on a fixed list of tasks, each played once, with an interval."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bipace.core.labels import label
from bipace.envs.base import Suite, offers_of
from bipace.rollout.collect import Collector, Decoder
from bipace.rollout.intervals import score_interval, success_interval
from bipace.rollout.records import Trajectory, events

__all__ = [
    "PanelResult",
    "Panels",
    "choose_panels",
    "evaluate",
    "panel_tasks",
    "shipped_name",
    "task_digest",
]

PANELS = Path(__file__).resolve().parent.parent / "assets" / "panels"


@dataclass(frozen=True)
class Panels:
    """Which tasks a run uses: the training split, the validation panel, and the panels reported beside it."""

    split: str
    panel: str
    held_out: tuple[str, ...]


def choose_panels(
    suite: Suite, split: str | None = None, panel: str | None = None, held_out: Sequence[str] | None = None
) -> Panels:
    """The names given, and the suite's own where none is given.

    The suite's first split is for training. A training split has the panels that the suite declares for it
    (`Offers.panels`). Otherwise panels are the splits whose name ends in "panel": the one named after the
    training split (else the first) validates, the next two are held out.

    Raises:
        ValueError: the suite lacks a name, has only a part of it, or has no panel to default to.
    """
    if not (isinstance(suite.splits, Mapping) and suite.splits):
        raise ValueError(
            f"env.suite: {suite.name} has no splits; a suite needs a mapping of split names to task ids"
        )
    names = list(suite.splits)
    split = split or names[0]
    panel_tasks(suite, split)
    panels = list(offers_of(suite).panels.get(split, ())) or _by_name(names, split)
    if panel is None and not panels:
        raise ValueError(f"env.panel: {suite.name} has no panel; name one of its splits: {', '.join(names)}")
    panel = panel or panels[0]
    chosen = Panels(
        split, panel, tuple([p for p in panels if p != panel][:2] if held_out is None else held_out)
    )
    for name in (split, chosen.panel, *chosen.held_out):
        if not len(panel_tasks(suite, name)):
            raise ValueError(f"env: {suite.name}: the split or panel {name!r} holds no tasks; name another")
    for name in (chosen.panel, *chosen.held_out):  # before anything is played: results are reported by family
        for task in suite.splits[name]:
            _family(suite, task)
    return chosen


def _family(suite: Suite, task: str) -> str:
    try:
        return str(suite.family(task))
    except Exception as error:
        raise ValueError(
            f"env.suite: {suite.name}.family({task!r}) raised {type(error).__name__}: {error}; it must name "
            "the family that every task of a panel is reported under"
        ) from error


def _by_name(names: Sequence[str], split: str) -> list[str]:
    """The panels among the names, the training split's own first."""
    panels = [name for name in names if name.endswith("panel")]
    return sorted(panels, key=lambda name: name != f"{split}-panel")


@dataclass(frozen=True)
class PanelResult:
    """One evaluation of a panel: a trajectory per task."""

    suite: Suite
    trajectories: Sequence[Trajectory]

    @property
    def success(self) -> float:
        """Share of tasks solved; an aborted episode counts as not solved."""
        return sum(t.won for t in self.trajectories) / max(len(self.trajectories), 1)

    @property
    def score(self) -> float:
        """Mean sum of rewards per task: the success where rewards are 0 and 1.

        Aborted episodes count what they had.
        """
        return sum(t.reward for t in self.trajectories) / max(len(self.trajectories), 1)

    def summary(self) -> dict[str, Any]:
        """Success, score, n, their 95 % intervals, success by family, which tasks, and what the data are."""
        n, won = len(self.trajectories), sum(t.won for t in self.trajectories)
        tasks = [t.task for t in self.trajectories]
        return {
            "success": self.success,
            "score": self.score,
            "n": n,
            "ci95": list(success_interval(won, n)),
            "score_ci95": score_interval([t.reward for t in self.trajectories]),
            "family": self.by_family(),
            "list": shipped_name(self.suite.name, tasks),
            "sha256": task_digest(tasks),
            "data": offers_of(self.suite).data_label,
        }

    def by_family(self) -> dict[str, dict[str, float]]:
        """Family -> success and number of tasks."""
        families, names = label([_family(self.suite, t.task) for t in self.trajectories])
        found: dict[str, dict[str, float]] = {}
        for index, name in sorted(enumerate(names), key=lambda pair: str(pair[1])):
            members = [t for t, f in zip(self.trajectories, families, strict=True) if f == index]
            found[str(name)] = {
                "success": sum(t.won for t in members) / len(members),
                "n": float(len(members)),
            }
        return found

    def by_task(self) -> list[dict[str, Any]]:
        """One record a task, in panel order: what came of its single episode."""
        return [
            {
                "task": t.task,
                "family": _family(self.suite, t.task),
                "success": t.won,
                "score": t.reward,
                "steps": len(t.steps),
                "truncated": t.truncated,
                "error": t.error,
            }
            for t in self.trajectories
        ]

    def metrics(self) -> dict[str, float]:
        """Numbers for the log."""
        steps = sum(len(t.steps) for t in self.trajectories) / max(len(self.trajectories), 1)
        families = {f"success/{name}": values["success"] for name, values in self.by_family().items()}
        counts = {name.removeprefix("event/"): value for name, value in events(self.trajectories).items()}
        return {"success": self.success, "reward_mean": self.score, "steps_mean": steps, **families, **counts}


def evaluate(
    actor: Decoder,
    collector: Collector,
    tasks: Sequence[str],
    *,
    temperature: float,
    generator: Any,
    progress: Callable[[int], None] = lambda _episodes: None,
) -> PanelResult:
    """Play each task once. The same actor, tasks and random stream give the same result."""
    found = collector.collect(
        actor, tasks, 1, temperature=temperature, generator=generator, progress=progress
    )
    return PanelResult(collector.suite, found)


def panel_tasks(suite: Suite, panel: str) -> Sequence[str]:
    """The tasks of a split or panel.

    Raises:
        ValueError: the suite has none of that name (the message lists those it has), or only a part of it.
    """
    offers = offers_of(suite)
    if panel in offers.incomplete:
        raise ValueError(f"env: {suite.name} has only a part of {panel!r}: {offers.incomplete[panel]}")
    if panel not in suite.splits:
        has = ", ".join(suite.splits)
        raise ValueError(f"env: {suite.name} has no split or panel {panel!r}; it has {has}{offers.absent}")
    return suite.splits[panel]


def task_digest(tasks: Sequence[str]) -> str:
    """sha256 over the task ids, one a line."""
    return hashlib.sha256("".join(f"{task}\n" for task in tasks).encode()).hexdigest()


def shipped_name(suite: str, tasks: Sequence[str]) -> str | None:
    """Name and version of the shipped list that these tasks are ("textcraft/train-panel v1"), or None."""
    found = task_digest(tasks)
    return next(
        (
            f"{suite}/{name} v{entry['version']}"
            for name, entry in _shipped(suite).items()
            if entry["sha256"] == found
        ),
        None,
    )


@cache
def _shipped(suite: str) -> dict[str, dict[str, Any]]:
    """The lists in assets/panels/SUITE.json.

    Panel -> version, n, sha256 and, but for official games, the tasks.
    """
    names = {path.stem: path for path in PANELS.glob("*.json")}
    return json.loads(names[suite].read_text(encoding="utf-8")) if suite in names else {}
