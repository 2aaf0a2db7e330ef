"""Findings about the data itself.

What was not read, what stands outside the baselines, what looks misread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from bipace.analyze.evidence import Evidence, Finding, Rule, Severity, Worst
from bipace.analyze.reach import WORST
from bipace.analyze.table import NO_OWN_REWARD, NO_REWARD, file_names
from bipace.core import segments

__all__ = ["QUALITY"]


def _not_read(e: Evidence) -> Iterator[Finding]:
    names = file_names([reading.file for reading in e.readings])
    for name, reading in zip(names, e.readings, strict=True):
        if reading.skipped:
            where = "; ".join(f"{p.where}: {p.why}" for p in reading.problems[:3])
            yield Finding(
                "skipped",
                "error" if reading.understood < 0.5 else "warning",
                f"{name}: {reading.skipped} places could not be read and were skipped, "
                f"{reading.understood:.1%} of the file was understood ({where})",
                "What is shown rests on the rest of the file.",
                "Repair the file, or stop at the first bad place with --strict.",
                count=reading.skipped,
                first=True,
            )


def _left_out(e: Evidence) -> Iterator[Finding]:
    bad = [d for d in e.table.dropped if d.cause == NO_REWARD]
    if bad:
        names = ", ".join(d.name for d in bad[:3])
        yield Finding(
            "no-reward",
            "warning",
            f"{len(bad)} trajectories were left out: a reward is missing, not a number, NaN or infinite "
            f"({names})",
            "One such reward would poison the statistics of its whole group, so the trajectory is dropped "
            "and its siblings are kept.",
            "Find out why the reward function failed. Aborted rollouts belong out of every baseline.",
            count=len(bad),
            first=True,
        )
    failed = [d for d in e.table.dropped if d.cause not in (NO_REWARD, NO_OWN_REWARD)]
    if failed:
        causes = Counter(d.cause for d in failed).most_common()
        told = ", ".join(f"{n} x {cause}" for cause, n in causes[:5]) + (", ..." if len(causes) > 5 else "")
        groups = Counter(d.group for d in failed if d.group is not None)
        share = len(failed) / (len(failed) + len(e.table.trajectories))
        yield Finding(
            "failed-rollouts",
            "warning" if share >= 0.01 else "info",
            f"{len(failed)} rollouts ({share:.1%}) did not fail by the policy's own doing and count "
            f"nowhere: {told}",
            "A rollout that died of its sandbox, a time-out or its grader says nothing about its actions. "
            "Counted as 0 it would push the policy away from them, and lower its group's baseline for the "
            "others.",
            "Check that training masks them too (a reward of 0 is no mask), and mend the most frequent "
            "cause.",
            count=len(failed),
            groups=tuple(g for g, _ in groups.most_common()),
            worst=[Worst(g, f"{n} rollouts count nowhere") for g, n in groups.most_common(WORST)],
            first=True,
        )
    alone = [d for d in e.table.dropped if d.cause == NO_OWN_REWARD]
    if alone:
        yield Finding(
            "sub-agents",
            "info",
            f"{len(alone)} trajectories of sub-agents have no reward of their own and are left out",
            "A sub-agent is a rollout of another task; its parent's reward is not its own.",
            "Give sub-agents a reward, or train on their parents alone.",
            count=len(alone),
        )


def _no_rewards(e: Evidence) -> Iterator[Finding]:
    if not e.table.rewarded:
        yield Finding(
            "no-rewards",
            "warning",
            f"none of the {len(e.table.trajectories)} trajectories has a reward: structure is shown, not "
            "credit",
            "Groups, lengths, loops and peers can be judged without rewards; advantages are all 0.",
            "Name the reward column with --map reward=COLUMN, or join rewards kept elsewhere with "
            "--rewards FILE.",
            count=len(e.table.trajectories),
            first=True,
        )


_DOUBTS: dict[str, tuple[Severity, str, str]] = {
    "one-group": (
        "error",
        "Rollouts of different tasks are compared with each other: advantages say which task is easier.",
        "Name the column of the prompt group: --map task=COLUMN.",
    ),
    "one-step": (
        "error",
        "Every row counts as an episode of its own, so steps of one rollout are taken for its peers.",
        "Name the column of the rollout: --map trajectory=COLUMN, and of the order: --map step=COLUMN.",
    ),
    "no-observations": (
        "error",
        "Without observations all states are equal, so step credit compares early with late steps of "
        "anything.",
        "Name the column of what the agent saw: --map observation=COLUMN.",
    ),
    "duplicate-ids": (
        "error",
        "Steps of several rollouts stand in one trajectory, so its returns and its length are wrong.",
        "Give every rollout an id of its own, or name the right column with --map trajectory=COLUMN.",
    ),
    "missing-uid": (
        "warning",
        "Rollouts of one prompt are told apart by their texts alone: equal ones may be joined wrongly, and a "
        "prompt that occurs twice in a batch becomes one group.",
        "Log the uid with each row (verl 0.9 and later do).",
    ),
    "repeated-reward": (
        "info",
        "Summed over rows, a terminal reward of 1 on three rows would read as 3, and long rollouts would "
        "look good.",
        "If each row has a reward of its own after all, say so with --row-reward each.",
    ),
    "constant-reward": (
        "warning",
        "It may be a reward for every step (as in CartPole) or a terminal reward written on every row; the "
        "first was assumed, and longer trajectories then earn more.",
        "Say which it is: --row-reward last, or --row-reward each.",
    ),
    "missing-segment": (
        "warning",
        "A part of a rollout is judged as if it were the whole.",
        "Give the whole folder, or all files of the run.",
    ),
    "unmatched-rewards": (
        "warning",
        "Rewards that reach no rollout are lost; rollouts without one are left out.",
        "Compare the ids of both files; --explain shows a rollout's.",
    ),
}


def _doubts(e: Evidence) -> Iterator[Finding]:
    names = file_names([reading.file for reading in e.readings])
    for name, reading in zip(names, e.readings, strict=True):
        for doubt in reading.doubts:
            severity, meaning, advice = _DOUBTS[doubt.id]
            title = f"{name}: {doubt.text.removeprefix(f'{reading.file}: ')}"
            yield Finding(doubt.id, severity, title, meaning, advice, count=doubt.count, first=True)


def _misread(e: Evidence) -> Iterator[Finding]:
    """Signs of a misreading that no reader saw: they are looked for in the table itself."""
    told = {doubt.id for reading in e.readings for doubt in reading.doubts}
    empty = sum(step.observation in (None, "") for step in e.table.steps)
    if empty == len(e.table.steps) and "no-observations" not in told:
        yield _sign("no-observations", f"none of the {empty} steps has an observation", empty)
    first = segments.first_rows(e.table.batch.trajectory)
    openings = len(np.unique(e.table.batch.observation[first]))
    lone = len(e.table.tasks) == 1 and len(first) >= 4 and openings > len(first) // 2
    if lone and "one-group" not in told:
        text = (
            f"all {len(first)} trajectories are one prompt group, and they begin with {openings} different "
            "observations"
        )
        yield _sign("one-group", text, len(first))
    names = Counter(
        (int(g), t.name) for g, t in zip(e.table.batch.task[first], e.table.trajectories, strict=True)
    )
    twice = {key: n for key, n in names.items() if n > 1}
    if twice and "duplicate-ids" not in told:
        example = ", ".join(name for _, name in list(twice)[:3])
        yield Finding(
            "duplicate-ids",
            "warning",
            f"{len(twice)} names are borne by several trajectories of one group ({example})",
            "They are kept apart, but one may be a copy of the other, or a segment of the same rollout.",
            "Give every rollout an id of its own; segments of one rollout need its id and a segment number.",
            count=len(twice),
            groups=tuple(dict.fromkeys(g for g, _ in twice)),
            first=True,
        )
    single = e.number("single_step_trajectories")
    if single >= 0.9 * e.number("trajectories") and "one-step" not in told:
        yield Finding(
            "single-step",
            "warning",
            f"{single:.0f} of {e.number('trajectories'):.0f} trajectories have one step",
            "Step-level credit equals trajectory-level credit there.",
            "If the episodes have several turns, the file keeps each as one text: log one row a model call, "
            "or messages.",
            count=int(single),
            first=single == e.number("trajectories"),
        )


def _sign(identity: str, text: str, count: int) -> Finding:
    severity, meaning, advice = _DOUBTS[identity]
    return Finding(identity, severity, text, meaning, advice, count=count, first=True)


def _clashes(e: Evidence) -> Iterator[Finding]:
    if e.table.clashes:
        yield Finding(
            "clashing-tasks",
            "info",
            f"{e.table.clashes} task names stand in several files; they are kept apart",
            "Two files may hold two policies; rollouts of different policies must not share a baseline.",
            "If the files hold the same policy, join their groups with --merge.",
            count=e.table.clashes,
        )


QUALITY: tuple[Rule, ...] = (_no_rewards, _doubts, _misread, _left_out, _not_read, _clashes)
