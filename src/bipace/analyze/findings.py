"""Findings: what the numbers mean for training, in plain words, with places to look and something to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bipace.analyze.credit import Credit
from bipace.analyze.health import Health, Place
from bipace.analyze.records import Reading
from bipace.analyze.table import Table

__all__ = ["SEVERITIES", "Evidence", "Finding", "find"]

Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """One observation about the rollouts.

    Attributes:
        id: stable name, for filters and CI.
        severity: "error": training on this data cannot work as it is; "warning": signal is lost; "info": good to know.
        title: the fact with its number.
        meaning: what it does to training.
        advice: what to change.
        places: where to look.
    """

    id: str
    severity: Severity
    title: str
    meaning: str
    advice: str
    places: Sequence[Place] = field(default_factory=tuple)


@dataclass(frozen=True)
class Evidence:
    """Everything the rules may look at."""

    table: Table
    health: Health
    credits: Mapping[str, Credit]
    readings: Sequence[Reading]
    feature_kind: str
    eps: float

    def number(self, name: str) -> float:
        """A number of the health check; 0 where it was not measured."""
        return self.health.numbers.get(name, 0.0)

    def clusters(self, recipe: str) -> dict[str, float]:
        """Cluster diagnostics of a recipe's step term."""
        return self.credits[recipe].diagnostics


Rule = Callable[[Evidence], Iterator[Finding]]


def find(evidence: Evidence) -> list[Finding]:
    """All findings, the gravest first."""
    found = [finding for rule in _RULES for finding in rule(evidence)]
    return sorted(found, key=lambda f: -SEVERITIES.index(f.severity))


def _flat_groups(e: Evidence) -> Iterator[Finding]:
    groups, lone, flat = e.number("groups"), e.number("lone_groups"), e.number("flat_groups")
    several, stuck = groups - lone, flat - lone
    if stuck <= 0:
        return
    share = stuck / several
    severity: Severity = "error" if share == 1 else "warning" if share >= 0.3 else "info"
    yield Finding(
        "flat-groups",
        severity,
        f"{stuck:.0f} of {several:.0f} prompt groups have no reward variance ({share:.0%})",
        "Every rollout of such a group ended with the same outcome, so a trajectory-level method (GRPO, Dr. GRPO, "
        "RLOO) "
        f"gives all its steps an advantage of exactly 0: {e.number('steps_in_flat_groups_share'):.0%} of all steps "
        "lie in "
        "groups like that (lone ones included) and were paid for without teaching anything.",
        "Drop or re-weight tasks that are always solved or never solved, raise the sampling temperature, or draw more "
        "rollouts a task. In an all-fail group with reward 0 everywhere no estimator finds a signal.",
        e.health.places["flat"],
    )  # fmt: skip


def _shaped_only(e: Evidence) -> Iterator[Finding]:
    count = e.number("flat_groups_with_reward_variance")
    if count and e.table.shaped:
        yield Finding(
            "shaping-only",
            "warning",
            f"in {count:.0f} groups only the shaped reward varies, not the outcome",
            "Rollouts with one outcome get different rewards (penalties, format rewards, lengths). Divided by the "
            "group's "
            "small deviation such differences become full-size gradients.",
            "Judge variance on the outcome, keep penalties out of the return (bipace's default), or use mean_norm.",
            e.health.places["shaped"],
        )


def _lone_groups(e: Evidence) -> Iterator[Finding]:
    lone, groups = e.number("lone_groups"), e.number("groups")
    if lone:
        yield Finding(
            "lone-groups",
            "error" if lone == groups else "warning",
            f"{lone:.0f} of {groups:.0f} tasks have a single trajectory",
            "Group-relative credit compares rollouts of one task. A lone rollout has nobody to be compared with: its "
            "trajectory term is 0, and a step term can compare it only with itself.",
            "Collect several rollouts a task (8 is usual). If the file does hold several, the task ids differ: name "
            "the "
            "right column with --map task=COLUMN, or join files with --merge.",
            e.health.places["lone"],
        )


def _exact_text(e: Evidence) -> Iterator[Finding]:
    numbers = e.clusters("gigpo")
    lone = numbers["lone_step_share"]
    severity: Severity = "warning" if lone > 0.5 else "info"
    yield Finding(
        "exact-text-peers",
        severity,
        f"grouped by exact observation text, {lone:.1%} of steps have no peer and "
        f"{numbers['singleton_rate']:.1%} of clusters hold one step",
        "GiGPO and HGPO compare steps that saw the same text. A step without a peer gets no step-level credit there: "
        "what is left for it is the trajectory's outcome, as in GRPO.",
        "Group by similar states instead of equal text (bigpo, bipace), and move the eps slider to see what joins. "
        "Texts "
        "that differ only in ids, dates or wording are what similarity recovers.",
    )


def _step_credit(e: Evidence) -> Iterator[Finding]:
    grpo, gigpo, bipace = (e.credits[name] for name in ("grpo", "gigpo", "bipace"))
    moved = float(((bipace.values != 0) & (bipace.values != grpo.values)).mean())
    exact = float(((gigpo.values != 0) & (gigpo.values != grpo.values)).mean())
    features = "text vectors" if e.feature_kind == "text" else "hidden states"
    yield Finding(
        "step-credit",
        "info",
        f"step-level credit changes the advantage of {moved:.0%} of steps with BiPACE (eps {e.eps:g}, {features}) "
        f"and {exact:.0%} with GiGPO",
        "On these steps a comparison with other steps in a like state adds to, or corrects, what the trajectory's "
        "outcome "
        "says. Where the share is near 0, step-level credit cannot help whatever its name.",
        "Compare the recipes in the groups below: look for steps that GRPO rewards only because the episode went well.",
    )


def _collapse(e: Evidence) -> Iterator[Finding]:
    numbers = e.clusters("bipace")
    mean_share = numbers["cluster_size_mean"] * e.number("groups") / max(e.number("steps"), 1)
    if mean_share > 0.5 and e.number("steps_per_trajectory_mean") > 2 and e.number("group_size_max") > 1:
        yield Finding(
            "collapsed-clusters",
            "warning",
            f"at eps {e.eps:g} the average cluster holds {mean_share:.0%} of its prompt group's steps",
            "Nearly everything counts as one state, so step credit turns into a comparison of early with late steps.",
            "Lower eps, or remove the leading directions of the hidden states (whiten = 3).",
        )


def _one_action(e: Evidence) -> Iterator[Finding]:
    numbers = e.clusters("bipace")
    several = numbers["clusters"] * (1 - numbers["singleton_rate"])
    if several and numbers["multi_action_rate"] < 0.3:
        yield Finding(
            "no-counterfactual",
            "info",
            f"only {numbers['multi_action_rate']:.0%} of clusters with several steps hold more than one action",
            "BiPACE compares the mean return of an action with that of its cluster. With one action there is nothing "
            "to "
            "compare; the leave-one-out baseline steps in.",
            "A higher sampling temperature gives more distinct actions. If actions are long free text, use a coarser "
            "key: "
            "--action-key first_word.",
        )


def _duplicates(e: Evidence) -> Iterator[Finding]:
    copies, share = e.number("duplicate_trajectories"), e.number("duplicate_share")
    if copies:
        yield Finding(
            "duplicates",
            "warning" if share >= 0.1 else "info",
            f"{copies:.0f} trajectories are copies of another one in their group ({share:.0%} of those that could be)",
            "Copies cost a rollout each and add no information; they make a group look larger than it is.",
            "Sample with a temperature above 0 and check that every worker has its own seed.",
            e.health.places["duplicate"],
        )


def _loops(e: Evidence) -> Iterator[Finding]:
    share = e.number("loop_step_share")
    if share:
        yield Finding(
            "loops",
            "warning" if share >= 0.1 else "info",
            f"{e.number('loop_steps'):.0f} steps ({share:.1%}) repeat an action their trajectory had already taken on "
            "the "
            f"same observation; {e.number('loop_trajectories'):.0f} trajectories loop",
            "Repeated visits fill clusters with one trajectory's own steps: they look like peers and are not "
            "independent.",
            "Penalise or stop loops in the environment, show the agent its history, and look at distinct trajectories "
            "per "
            "cluster rather than at cluster size.",
            e.health.places["loop"],
        )  # fmt: skip


def _aliasing(e: Evidence) -> Iterator[Finding]:
    share = e.number("aliasing")
    if share:
        yield Finding(
            "aliasing",
            "warning" if share >= 0.2 else "info",
            f"{share:.0%} of repeated (observation, action) pairs led to different next observations",
            "Either the environment is random, or the observation does not show the whole state: equal text then joins "
            "states of different value (GiGPO and HGPO do this by construction).",
            "Group by features of the whole prompt (--model FOLDER), or by history (hgpo).",
            e.health.places["aliased"],
        )


def _parse_rate(e: Evidence) -> Iterator[Finding]:
    if e.table.parsed is not None and e.number("parse_rate") < 0.99:
        yield Finding(
            "unparsed",
            "warning" if e.number("parse_rate") < 0.95 else "info",
            f"{1 - e.number('parse_rate'):.1%} of responses lack the action form the file uses",
            "Their action key is the whole response, so they match no other action and no peer is found for them.",
            "Give an invalid-action penalty, warm the model up on the format, or raise the response limit.",
            e.health.places["unparsed"],
        )


def _single_step(e: Evidence) -> Iterator[Finding]:
    if e.number("single_step_trajectories") >= 0.9 * e.number("trajectories"):
        yield Finding(
            "single-step",
            "warning",
            f"{e.number('single_step_trajectories'):.0f} of {e.number('trajectories'):.0f} trajectories have one step",
            "Step-level credit equals trajectory-level credit there.",
            "If the episodes have several turns, the file keeps each as one text: log one row a model call, or "
            "messages.",
        )


def _reading(e: Evidence) -> Iterator[Finding]:
    dropped = e.table.dropped
    if dropped:
        names = ", ".join(dropped[:3])
        yield Finding(
            "no-reward",
            "warning",
            f"{len(dropped)} trajectories were left out: a reward is missing, not a number, NaN or infinite ({names})",
            "One such reward would poison the statistics of its whole group, so the trajectory is dropped and its "
            "siblings "
            "are kept.",
            "Find out why the reward function failed. Aborted rollouts belong out of every baseline.",
        )
    for reading in e.readings:
        if reading.skipped:
            where = "; ".join(f"{p.where}: {p.why}" for p in reading.problems[:3])
            yield Finding(
                "skipped",
                "warning",
                f"{reading.file}: {reading.skipped} places could not be read and were skipped ({where})",
                "What is shown rests on the rest of the file.",
                "Repair the file, or stop at the first bad place with --strict.",
            )
    if e.table.clashes:
        yield Finding(
            "clashing-tasks",
            "info",
            f"{e.table.clashes} task names stand in several files; they are kept apart",
            "Two files may hold two policies; rollouts of different policies must not share a baseline.",
            "If the files hold the same policy, join their groups with --merge.",
        )


_RULES: tuple[Rule, ...] = (
    _flat_groups, _lone_groups, _shaped_only, _step_credit, _exact_text, _collapse, _one_action, _duplicates, _loops,
    _aliasing, _parse_rate, _single_step, _reading,
)  # fmt: skip


def as_json(finding: Finding, table: Table) -> dict[str, Any]:
    """A finding with its places named."""
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
        "title": finding.title,
        "meaning": finding.meaning,
        "advice": finding.advice,
        "places": places,
    }
