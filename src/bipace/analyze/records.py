"""What every reader returns: trajectories as text and numbers, whatever trainer wrote the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Form", "LoggedStep", "LoggedTrajectory", "Problem", "Reading", "as_number"]

Form = Literal["tag", "tool", "text"]


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One model call as a file remembers it.

    Attributes:
        observation: what the agent read since its last call; any JSON value.
        response: what it answered, tool calls written out.
        action: the action key: the text in the tag, the tool call, or the whole response, lower-cased.
        form: where the action came from.
        reward: reward of the step; None where the file gives none that is a number.
    """

    observation: object
    response: str
    action: str
    form: Form
    reward: float | None


@dataclass(frozen=True, slots=True)
class LoggedTrajectory:
    """One episode of one task.

    Attributes:
        task: the prompt group.
        name: unique within the file.
        steps: the model calls in order; at least one.
        context: what stood before the first observation (system prompt, instructions).
        outcome: success as the file states it apart from the reward, or None.
        where: line, item or row of the file.
    """

    task: str
    name: str
    steps: tuple[LoggedStep, ...]
    context: str = ""
    outcome: float | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A place that could not be read, and why."""

    where: str
    why: str


@dataclass(slots=True)
class Reading:
    """One file as read.

    Attributes:
        file: its name as given.
        format: which reader.
        trajectories: in file order.
        problems: the first places that were skipped.
        skipped: how many places were skipped.
        notes: what the reader decided, in words for the user.
        columns: names found in a flat table, for messages.
    """

    file: str
    format: str
    trajectories: list[LoggedTrajectory] = field(default_factory=list[LoggedTrajectory])
    problems: list[Problem] = field(default_factory=list[Problem])
    skipped: int = 0
    notes: list[str] = field(default_factory=list[str])
    strict: bool = False

    def skip(self, where: str, why: str) -> None:
        """Count a place that cannot be read. Raises ValueError under `strict`."""
        if self.strict:
            raise ValueError(f"{self.file}: {where}: {why}; without --strict it is skipped and counted")
        self.skipped += 1
        if len(self.problems) < 20:
            self.problems.append(Problem(where, why))


def as_number(value: Any) -> float | None:
    """A reward as a float; numeric text counts, anything else (None, "n/a", a list) is None.

    NaN and infinities stay: the table drops such a trajectory and says so.
    """
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None
