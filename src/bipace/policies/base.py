"""What a policy is: it reads conversations and answers each with a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from bipace.envs.base import Turn

__all__ = ["Policy"]


@runtime_checkable
class Policy(Protocol):
    """Plays a batch of episodes in lock-step; row i of every call belongs to episode i until the next `begin`."""

    def begin(self, tasks: Sequence[str]) -> None:
        """Start one episode per task id."""
        ...

    def act(self, rows: Sequence[int], turns: Sequence[Turn]) -> list[str]:
        """The action of each given episode on its newest turn."""
        ...
