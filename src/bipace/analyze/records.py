"""What every reader returns: trajectories as text and numbers, whatever trainer wrote the file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Doubt", "Dropped", "Form", "LoggedStep", "LoggedTrajectory", "Problem", "Reading", "as_number"]

Form = Literal["tag", "tool", "written", "text"]


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One model call as a file remembers it.

    Attributes:
        observation: what the agent read since its last call; any JSON value.
        response: what it answered, tool calls written out.
        action: the action key: the text in the tag, the tool call, or the whole response, lower-cased.
        form: where the action came from: an `<action>` tag, a native tool call, a tool call written as text,
            or none of them (the whole text).
        reward: reward of the step; None where the file gives none that is a number.
        cut: True where the answer hit its length limit.
        version: the policy that sampled the answer, as the file names it; empty where it does not.
        logged: the advantage that the trainer logged for this step, or None.
        note: what the reader decided about this step, for `--explain`; empty for a plain one.
    """

    observation: object
    response: str
    action: str
    form: Form
    reward: float | None
    cut: bool = False
    version: str = ""
    logged: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class LoggedTrajectory:
    """One episode of one task.

    Attributes:
        task: the prompt group.
        name: unique within the file.
        steps: the model calls in order; none only where `out` says why the rollout does not count.
        context: what stood before the first observation (system prompt, instructions).
        outcome: success as the file states it apart from the reward, or None.
        where: line, item or row of the file.
        role: the agent's role where several take part in a task; part of the prompt group's key.
        out: why the rollout stands outside every baseline (an error, a time-out, a mask, a failed grader), in
            a few words that are equal for equal causes; empty for a rollout that counts.
        parent: name of the trajectory that called this one as its sub-agent; empty for none.
        part: (rollout, order) where this is one of several segments of a rollout, which are joined after
            reading.
        ids: every id by which the file names this rollout, for rewards kept elsewhere.
        notes: what was left out of it, and why, for `--explain`.
    """

    task: str
    name: str
    steps: tuple[LoggedStep, ...]
    context: str = ""
    outcome: float | None = None
    where: str = ""
    role: str = ""
    out: str = ""
    parent: str = ""
    part: tuple[str, float] | None = None
    ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A rollout that stands outside every baseline.

    Its name, task, cause and place, and the group it would be in.
    """

    name: str
    task: str
    cause: str
    where: str
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A place that could not be read, and why."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something about a file that may mean that it is misread.

    The id of the finding, how often, and in words.
    """

    id: str
    count: int
    text: str


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
        records: how many records (lines, items, rows, events) the file holds.
        fields: names in the first record, for messages.
        beside: what a JSON document says beside its list of records.
        folded: cause -> how many records or steps were left out on purpose (copies, ghost steps, thoughts).
        doubts: what may be misread, for the findings.
        strict: raise at the first place that cannot be read.
        row_reward: what a reward on every row of a trajectory is: "each" row's own, the "last" row's for the
            whole, or "auto" to tell by the numbers.
    """

    file: str
    format: str
    trajectories: list[LoggedTrajectory] = field(default_factory=list[LoggedTrajectory])
    problems: list[Problem] = field(default_factory=list[Problem])
    skipped: int = 0
    notes: list[str] = field(default_factory=list[str])
    records: int = 0
    fields: tuple[str, ...] = ()
    beside: dict[str, Any] = field(default_factory=dict[str, Any])
    folded: Counter[str] = field(default_factory=Counter[str])
    doubts: list[Doubt] = field(default_factory=list[Doubt])
    strict: bool = False
    row_reward: str = "auto"

    @property
    def understood(self) -> float:
        """Share of the file's records that were read; 1 where nothing was skipped."""
        return (
            1.0 - min(self.skipped, self.records) / self.records if self.records else float(not self.skipped)
        )

    def skip(self, where: str, why: str) -> None:
        """Count a place that cannot be read. Raises ValueError under `strict`."""
        if self.strict:
            raise ValueError(f"{self.file}: {where}: {why}; without --strict it is skipped and counted")
        self.skipped += 1
        if len(self.problems) < 20:
            self.problems.append(Problem(where, why))

    def damaged(self, where: str, why: str) -> None:
        """Count a record that is no JSON value at all, so that no reader ever sees it."""
        self.records += 1
        self.skip(where, why)


def as_number(value: Any) -> float | None:
    """A reward as a float; numeric text counts, anything else (None, "n/a", a list) is None.

    NaN and infinities stay: the table drops such a trajectory and says so. A whole number too large is
    infinite.
    """
    try:
        return float(value) if isinstance(value, (bool, int, float, str)) else None
    except ValueError:
        return None
    except OverflowError:
        return float("inf")
