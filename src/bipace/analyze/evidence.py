"""What a finding is, and what the rules that make findings may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bipace.analyze.credit import Credit
from bipace.analyze.health import Health, Place
from bipace.analyze.records import Reading
from bipace.analyze.table import Table

__all__ = ["SEVERITIES", "Evidence", "Finding", "Rule", "Severity", "Worst", "as_json"]

Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


@dataclass(frozen=True)
class Worst:
    """A prompt group that a finding hits hard, and how hard, in words."""

    group: int
    number: str


@dataclass(frozen=True)
class Finding:
    """One observation about the rollouts.

    Attributes:
        id: stable name, for filters and CI.
        severity: "error": training on this data cannot work as it is; "warning": signal is lost; "info": good
            to know.
        title: the fact with its number.
        meaning: what it does to training.
        advice: what to change.
        places: where to look.
        count: how many things the finding is about: the groups, trajectories, steps or records that its title
            counts.
        groups: the prompt groups concerned, the worst first; empty where the finding is about all of them.
        first: True for a fault of the data itself, which is shown before everything else of its severity.
        harm: share of all steps whose credit is lost or wrong, in [0, 1], a lost step term counting half: the
            order within a severity.
        worst: at most three prompt groups that it hits most, each with the number behind it, in words.

    Examples:
        >>> from bipace.analyze import analyze
        >>> rows = [
        ...     dict(task="cup", trajectory=name, step=0, observation="a door", action=action, reward=reward)
        ...     for name, action, reward in (("first", "open", 1), ("second", "wait", 0))
        ... ]
        >>> sorted({finding.severity for finding in analyze([rows]).findings})
        ['info', 'warning']
    """

    id: str
    severity: Severity
    title: str
    meaning: str
    advice: str
    places: Sequence[Place] = ()
    count: int = 1
    groups: Sequence[int] = ()
    first: bool = False
    harm: float = 0.0
    worst: Sequence[Worst] = ()


@dataclass(frozen=True)
class Evidence:
    """Everything the rules may look at; `errors` is the sweep's prediction error by radius."""

    table: Table
    health: Health
    credits: Mapping[str, Credit]
    readings: Sequence[Reading]
    feature_kind: str
    eps: float
    errors: Mapping[float, float]

    def number(self, name: str) -> float:
        """A number of the health check; 0 where it was not measured."""
        return self.health.numbers.get(name, 0.0)

    def clusters(self, recipe: str) -> dict[str, float]:
        """Cluster diagnostics of a recipe's step term."""
        return self.credits[recipe].diagnostics


Rule = Callable[[Evidence], Iterator[Finding]]


def as_json(finding: Finding, table: Table) -> dict[str, Any]:
    """A finding with its places and prompt groups named."""
    places = [
        {
            "task": table.tasks[p.task],
            "group": p.task,
            "trajectory": None if p.trajectory is None else table.trajectories[p.trajectory].name,
            "t": p.t,
        }
        for p in finding.places
    ]
    return {
        "id": finding.id,
        "severity": finding.severity,
        "count": finding.count,
        "groups": [table.tasks[group] for group in finding.groups],
        "title": finding.title,
        "meaning": finding.meaning,
        "advice": finding.advice,
        "harm": round(finding.harm, 6),
        "worst": [
            {"group": w.group, "task": table.tasks[w.group], "number": w.number} for w in finding.worst
        ],
        "places": places,
    }
