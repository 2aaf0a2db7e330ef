"""Policies without a model: a suite's expert, and random admissible commands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bipace.envs.base import Suite, Turn

__all__ = ["ExpertPolicy", "RandomPolicy"]


class ExpertPolicy:
    """Replays the suite's expert plan; the last action is repeated where the plan has run out."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self._plans: list[tuple[str, ...]] = []
        self._next: list[int] = []

    def begin(self, tasks: Sequence[str]) -> None:
        """Plan every task. Raises UnknownTask from the suite, ValueError on an empty plan."""
        self._plans = [self.suite.expert(task) for task in tasks]
        for task, plan in zip(tasks, self._plans, strict=True):
            if not plan:
                raise ValueError(f"the expert's plan for task {task!r} is empty")
        self._next = [0] * len(tasks)

    def act(self, rows: Sequence[int], turns: Sequence[Turn]) -> list[str]:  # noqa: ARG002  (a plan needs no look)
        """The next action of each row's plan."""
        actions = []
        for row in rows:
            plan = self._plans[row]
            actions.append(plan[min(self._next[row], len(plan) - 1)])
            self._next[row] += 1
        return actions


class RandomPolicy:
    """Uniform over the admissible commands, one seeded stream per row; "look" where none is offered."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: list[np.random.Generator] = []

    def begin(self, tasks: Sequence[str]) -> None:
        """Seed one stream per row from (seed, row), so that rows do not depend on each other."""
        self._streams = [np.random.default_rng((self.seed, row)) for row in range(len(tasks))]

    def act(self, rows: Sequence[int], turns: Sequence[Turn]) -> list[str]:
        """One admissible command per row."""
        return [
            turn.admissible[self._streams[row].integers(len(turn.admissible))] if turn.admissible else "look"
            for row, turn in zip(rows, turns, strict=True)
        ]
