"""What belongs together across records and files: the segments of a rollout, a trial's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bipace.analyze.messages import on_last
from bipace.analyze.records import Doubt, LoggedTrajectory, Reading

__all__ = ["join_segments", "with_verdict"]


def join_segments(readings: Sequence[Reading]) -> None:
    """Make one trajectory of the segments of a rollout, in their order; its reward counts once.

    A continuation may lie in a file of its own: the trajectory then stands where its first segment was read.
    """
    parts: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for i, reading in enumerate(readings):
        for j, trajectory in enumerate(reading.trajectories):
            if trajectory.part is not None:
                across = reading.format == "atif"
                place = () if across else (i, trajectory.task)
                parts.setdefault((reading.format, trajectory.role, trajectory.part[0], *place), []).append(
                    (i, j)
                )
    gone: set[tuple[int, int]] = set()
    for segments in parts.values():
        order = sorted(segments, key=lambda at: (_trajectory(readings, at).part or ("", 0.0))[1])
        found = [_trajectory(readings, at) for at in order]
        first, rest = order[0], order[1:]
        if not rest:
            _alone(readings[first[0]], found[0])
            continue
        readings[first[0]].trajectories[first[1]] = _joined(found)
        gone.update(rest)
        for i in {i for i, _ in rest} - {first[0]}:
            readings[i].notes.append(f"continues a trajectory of {readings[first[0]].file}")
    for i, reading in enumerate(readings):
        if any(at[0] == i for at in gone):
            reading.trajectories = [t for j, t in enumerate(reading.trajectories) if (i, j) not in gone]


def with_verdict(trajectory: LoggedTrajectory, verdict: dict[str, Any]) -> LoggedTrajectory:
    """A trial's transcript with its task, name, reward and failure; a sub-agent's keeps its own."""
    if not verdict or trajectory.parent:
        return trajectory
    rewards = on_last(verdict["reward"], len(trajectory.steps))
    steps = tuple(
        replace(step, reward=reward) for step, reward in zip(trajectory.steps, rewards, strict=True)
    )
    return replace(
        trajectory,
        task=verdict["task"],
        name=verdict["name"],
        steps=steps,
        out=verdict["out"] or trajectory.out,
        ids=(verdict["name"], *trajectory.ids),
    )


def _trajectory(readings: Sequence[Reading], at: tuple[int, int]) -> LoggedTrajectory:
    return readings[at[0]].trajectories[at[1]]


def _joined(found: Sequence[LoggedTrajectory]) -> LoggedTrajectory:
    given = [t.steps[-1].reward for t in found if t.steps]
    known = [reward for reward in given if reward is not None]
    reward = known[-1] if known else None
    steps = [step for t in found for step in t.steps]
    rewards = on_last(reward, len(steps))
    notes = [note for t in found for note in t.notes] + [
        f"{len(found)} segments of one rollout, joined; its reward counts once"
    ]
    if len(set(known)) > 1:
        notes.append(
            f"the segments name different rewards ({', '.join(f'{r:g}' for r in known)}); the last one counts"
        )
    outcomes = [t.outcome for t in found if t.outcome is not None]
    # A segment that is all copied, or a failed one among others, does not put the rollout out: its last one
    # decides.
    out = (
        found[-1].out if found[-1].steps else next((t.out for t in reversed(found) if t.steps), found[-1].out)
    )
    return replace(
        found[0],
        steps=tuple(replace(step, reward=r) for step, r in zip(steps, rewards, strict=True)),
        context=next((t.context for t in found if t.context), ""),
        outcome=outcomes[-1] if outcomes else None,
        out=out,
        part=None,
        ids=tuple(dict.fromkeys(i for t in found for i in t.ids)),
        notes=tuple(notes),
    )


def _alone(reading: Reading, trajectory: LoggedTrajectory) -> None:
    order = (trajectory.part or ("", 0.0))[1]
    if reading.format == "atif":
        missing = "beginning" if order > 0 else "continuation"
        text = f"{reading.file}: the {missing} of {trajectory.name} is in a file that was not given"
        reading.doubts.append(Doubt("missing-segment", 1, text))
