"""`bipace analyze --explain`.

The first trajectories as they were understood, and what was dropped and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bipace.analyze.messages import as_text
from bipace.analyze.reading import Readings
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading
from bipace.analyze.table import NO_REWARD

__all__ = ["explain"]

SHOWN = 2
_WIDTH, _STEPS, _CAUSES = 160, 60, 10
_FORMS = {
    "tag": "<action> tag",
    "tool": "tool call",
    "written": "tool call written as text",
    "text": "the whole answer",
}


def explain(found: Readings) -> str:
    """For every file: what was understood, the first two trajectories step by step, and what was left out.

    Texts are cut to one line; control characters are shown as escapes, so that a file cannot write to the
    terminal.
    """
    lines = [line for reading in found.files for line in _file(reading)]
    if found.foreign:
        lines += [
            "",
            "Files without trajectories:",
            *(f"  {p.where}: {p.why}" for p in found.foreign[:_CAUSES]),
        ]
    return "\n".join(map(_plain, lines)) + "\n"


def _file(reading: Reading) -> Iterator[str]:
    steps = sum(len(t.steps) for t in reading.trajectories)
    yield f"{reading.file}"
    yield (
        f"  read as {reading.format}: {len(reading.trajectories)} trajectories, {steps} steps; "
        f"{reading.understood:.1%} of {reading.records} records understood"
    )
    yield from (f"  note: {note}" for note in reading.notes)
    yield from (f"  doubt: {doubt.text}" for doubt in reading.doubts)
    for number, trajectory in enumerate(reading.trajectories[:SHOWN], 1):
        yield ""
        yield from _trajectory(number, trajectory)
    yield ""
    yield from _left_out(reading)


def _trajectory(number: int, trajectory: LoggedTrajectory) -> Iterator[str]:
    yield f"  Trajectory {number} ({trajectory.where})"
    yield f"    group:  {_line(trajectory.task)}" + (f"   role: {trajectory.role}" if trajectory.role else "")
    yield f"    member: {_line(trajectory.name)}" + (
        f"   sub-agent of: {trajectory.parent}" if trajectory.parent else ""
    )
    if trajectory.outcome is not None:
        yield f"    outcome: {trajectory.outcome:g}"
    if trajectory.out:
        yield f"    outside every baseline: {trajectory.out}"
    if trajectory.context:
        yield f"    context: {_line(trajectory.context)}"
    yield from (f"    note: {note}" for note in trajectory.notes)
    for t, step in enumerate(trajectory.steps[:_STEPS]):
        yield from _step(t, step)
    if len(trajectory.steps) > _STEPS:
        yield f"    ... {len(trajectory.steps) - _STEPS} more steps"


def _step(t: int, step: LoggedStep) -> Iterator[str]:
    reward = "none" if step.reward is None else f"{step.reward:g}"
    marks = (", cut at its length limit" if step.cut else "") + (
        f", policy {step.version}" if step.version else ""
    )
    yield f"    step {t}: reward {reward}{marks}"
    yield f"      observation: {_line(as_text(step.observation)) or '(nothing)'}"
    yield f"      action:      {_line(step.action) or '(nothing)'}   [{_FORMS[step.form]}]"
    if step.response.strip().lower() != step.action.strip().lower():
        yield f"      said:        {_line(step.response)}"


def _left_out(reading: Reading) -> Iterator[str]:
    yield "  Left out:"
    causes = Counter(t.out for t in reading.trajectories if t.out)
    known = [t for t in reading.trajectories if not t.out]
    bare = sum(any(step.reward is None for step in t.steps) for t in known)
    if bare and bare < len(known):
        causes[NO_REWARD] += bare
    told = [f"{n} rollouts outside every baseline: {cause}" for cause, n in causes.most_common(_CAUSES)]
    told += [f"{n} {what}" for what, n in reading.folded.items()]
    told += [f"{p.where}: {p.why}" for p in reading.problems[:_CAUSES]]
    if reading.skipped > _CAUSES:
        told.append(f"... {reading.skipped} places in all could not be read")
    yield from (f"    {line}" for line in told or ["nothing"])


def _line(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= _WIDTH else f"{one[:_WIDTH]} [... {len(one) - _WIDTH} more characters]"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
