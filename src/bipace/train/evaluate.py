"""Success on a fixed list of tasks, each played once, with an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bipace.core.labels import label
from bipace.envs.base import Suite
from bipace.policies.hf import Actor
from bipace.rollout.collect import Collector
from bipace.rollout.records import Trajectory, events
from bipace.train.config import ConfigError
from bipace.train.stats import success_interval

__all__ = ["PanelResult", "evaluate", "panel_tasks"]


@dataclass(frozen=True)
class PanelResult:
    """One evaluation of a panel: a trajectory per task."""

    suite: Suite
    trajectories: Sequence[Trajectory]

    @property
    def success(self) -> float:
        """Share of tasks solved; an aborted episode counts as not solved."""
        return sum(t.won for t in self.trajectories) / max(len(self.trajectories), 1)

    def summary(self) -> dict[str, Any]:
        """Success, n, 95 % interval and success by family."""
        n, won = len(self.trajectories), sum(t.won for t in self.trajectories)
        return {"success": self.success, "n": n, "ci95": list(success_interval(won, n)), "family": self.by_family()}

    def by_family(self) -> dict[str, dict[str, float]]:
        """Family -> success and number of tasks."""
        families, names = label([self.suite.family(t.task) for t in self.trajectories])
        found: dict[str, dict[str, float]] = {}
        for index, name in sorted(enumerate(names), key=lambda pair: str(pair[1])):
            members = [t for t, f in zip(self.trajectories, families, strict=True) if f == index]
            found[str(name)] = {"success": sum(t.won for t in members) / len(members), "n": float(len(members))}
        return found

    def metrics(self) -> dict[str, float]:
        """Numbers for the log."""
        steps = sum(len(t.steps) for t in self.trajectories) / max(len(self.trajectories), 1)
        reward = sum(t.reward for t in self.trajectories) / max(len(self.trajectories), 1)
        families = {f"success/{name}": values["success"] for name, values in self.by_family().items()}
        counts = {name.removeprefix("event/"): value for name, value in events(self.trajectories).items()}
        return {"success": self.success, "reward_mean": reward, "steps_mean": steps, **families, **counts}


def evaluate(
    actor: Actor,
    collector: Collector,
    tasks: Sequence[str],
    *,
    temperature: float,
    seed: int,
    progress: Callable[[int], None] = lambda episodes: None,
) -> PanelResult:
    """Play each task once. The same actor, tasks and seed give the same result."""
    generator = torch.Generator(device=actor.device)
    generator.manual_seed(seed)
    found = collector.collect(actor, tasks, 1, temperature=temperature, generator=generator, progress=progress)
    return PanelResult(collector.suite, found)


def panel_tasks(suite: Suite, panel: str) -> Sequence[str]:
    """The tasks of a split or panel.

    Raises:
        ConfigError: the suite has none of that name.
    """
    if panel not in suite.splits:
        raise ConfigError(f"env: {suite.name} has no split or panel {panel!r}; it has {', '.join(suite.splits)}")
    return suite.splits[panel]
