"""Findings about the data itself: what was not read, what stands outside the baselines, what looks misread."""

from __future__ import annotations

from collections.abc import Iterator

from bipace.analyze.evidence import Evidence, Finding, Rule
from bipace.analyze.table import NO_REWARD

__all__ = ["QUALITY"]


def _left_out(e: Evidence) -> Iterator[Finding]:
    dropped = [d for d in e.table.dropped if d.cause == NO_REWARD]
    if dropped:
        names = ", ".join(d.name for d in dropped[:3])
        yield Finding(
            "no-reward",
            "warning",
            f"{len(dropped)} trajectories were left out: a reward is missing, not a number, NaN or infinite ({names})",
            "One such reward would poison the statistics of its whole group, so the trajectory is dropped and its "
            "siblings "
            "are kept.",
            "Find out why the reward function failed. Aborted rollouts belong out of every baseline.",
            count=len(dropped),
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
                count=reading.skipped,
            )
    if e.table.clashes:
        yield Finding(
            "clashing-tasks",
            "info",
            f"{e.table.clashes} task names stand in several files; they are kept apart",
            "Two files may hold two policies; rollouts of different policies must not share a baseline.",
            "If the files hold the same policy, join their groups with --merge.",
        )


QUALITY: tuple[Rule, ...] = (_left_out,)
