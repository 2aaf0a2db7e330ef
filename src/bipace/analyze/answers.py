"""Findings about single answers.

Cut ones, unparsed ones, calls in text, policies, advantages that a trainer logged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from bipace.analyze.evidence import Evidence, Finding, Rule, Worst
from bipace.analyze.health import EXAMPLES, Place, place_of
from bipace.analyze.reach import WORST, reach
from bipace.core import segments

__all__ = ["ANSWERS"]

# A trainer's own recipe reproduces its logged advantages but for rounding.
_SAME = 0.999


def _truncated(e: Evidence) -> Iterator[Finding]:
    cut = np.array([step.cut for step in e.table.steps], np.bool_)
    if not cut.any():
        return
    share = float(cut.mean())
    yield Finding(
        "truncated-answers",
        "warning" if share >= 0.05 else "info",
        f"{cut.sum()} answers ({share:.1%}) hit their length limit",
        "What was done is the beginning of an answer: half a command is another action than the whole one.",
        "Raise the limit of an answer, and mask or penalise cut ones; do not take a cut answer for a wrong "
        "one.",
        _places(e, cut),
        **reach(e, cut, "hit their length limit"),
    )
    batch = e.table.batch
    starts = segments.first_rows(batch.trajectory)
    run = np.cumsum(cut) - cut
    before = run - run[starts][segments.compact(batch.trajectory)]
    ghosts = before > 0
    if ghosts.any():
        yield Finding(
            "ghost-steps",
            "warning",
            f"{ghosts.sum()} steps come after a cut answer of their trajectory",
            "They react to what the limit made of the answer, not to what the policy wanted; their returns "
            "blame or praise it all the same.",
            "End an episode at a cut answer, or keep the steps after it out of the baselines.",
            _places(e, ghosts),
            **reach(e, ghosts, "come after a cut answer"),
        )


def _parse_failures(e: Evidence) -> Iterator[Finding]:
    """Rollouts that end in an answer without the form and earned nothing.

    Format, not skill, may be what is scored.
    """
    parsed = e.table.parsed
    if parsed is None or not e.table.rewarded:
        return
    last = np.r_[segments.first_rows(e.table.batch.trajectory)[1:], len(e.table.batch)] - 1
    failed = ~parsed[last] & (e.table.outcome <= 0)
    if not failed.any():
        return
    rows = np.zeros(len(parsed), np.bool_)
    rows[last[failed]] = True
    lost = float(failed.sum() / max((e.table.outcome <= 0).sum(), 1))
    yield Finding(
        "parse-failures",
        "warning" if lost >= 0.1 else "info",
        f"{failed.sum()} rollouts without success ({lost:.0%} of those) end in an answer that could not be "
        "parsed",
        "They are scored like honest failures, so the format is trained as if it were the task.",
        "Warm the model up on the format, give the parser's failure a penalty of its own, or retry the call.",
        _places(e, rows),
        **reach(e, rows, "end a rollout without the action form"),
    )


def _written_calls(e: Evidence) -> Iterator[Finding]:
    forms = [step.form for step in e.table.steps]
    written, native = forms.count("written"), forms.count("tool")
    if written and native:
        share = written / (written + native)
        rows = np.array([form == "written" for form in forms])
        yield Finding(
            "calls-as-text",
            "warning" if share >= 0.05 else "info",
            f"{written} tool calls ({share:.1%} of all calls) are written as text instead of called",
            "The harness did not run them; they are keyed like the calls they stand for, so that they are "
            "compared.",
            "Check the chat template and the parser of tool calls: such rollouts usually end there with "
            "reward 0.",
            _places(e, rows),
            **reach(e, rows, "write a call as text"),
        )


def _policies(e: Evidence) -> Iterator[Finding]:
    seen: dict[int, set[str]] = defaultdict(set)
    for group, step in zip(e.table.batch.task.tolist(), e.table.steps, strict=True):
        if step.version:
            seen[group].add(step.version)
    mixed = {group: versions for group, versions in seen.items() if len(versions) > 1}
    if not mixed:
        return
    spread = max(_spread(versions) for versions in mixed.values())
    worst = sorted(mixed, key=lambda g: -_spread(mixed[g]))
    told = f", at most {spread:g} versions apart" if spread else ""
    yield Finding(
        "policy-versions",
        "warning" if len(mixed) >= 0.1 * len(e.table.tasks) else "info",
        f"{len(mixed)} of {len(e.table.tasks)} prompt groups hold answers of several policy versions{told}",
        "A baseline of older policies is not the current policy's value: advantages mix progress with merit.",
        "Bound the staleness of rollouts, or group only rollouts of one version.",
        [Place(group) for group in worst[:EXAMPLES]],
        count=len(mixed),
        groups=tuple(worst),
        worst=[Worst(g, f"{len(mixed[g])} policy versions") for g in worst[:WORST]],
        harm=float(np.isin(e.table.batch.task, worst).mean()),
    )


def _spread(versions: set[str]) -> float:
    """Newest minus oldest where versions are numbers (`3`, `3-5`), else how many there are but one."""
    parts = [part for version in versions for part in version.split("-")]
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        return float(len(versions) - 1)
    return max(numbers) - min(numbers)


def _logged(e: Evidence) -> Iterator[Finding]:
    logged = np.array([np.nan if s.logged is None else s.logged for s in e.table.steps], np.float64)
    known = np.isfinite(logged)
    if not e.table.rewarded or known.sum() < 2 or not logged[known].std():
        return
    fits: dict[str, float] = {}
    for name, credit in e.credits.items():
        if credit.values[known].std():
            fits[name] = float(np.corrcoef(logged[known], credit.values[known])[0, 1])
    if not fits:
        return
    best = max(fits, key=lambda name: fits[name])
    signs = (np.sign(logged) != np.sign(e.credits[best].values)) & known & (logged != 0)
    yield Finding(
        "logged-advantages",
        "info" if fits[best] >= _SAME else "warning",
        f"the advantages logged with {known.sum()} steps agree best with {best} (correlation "
        f"{fits[best]:.4f}); "
        f"{signs.sum()} steps have another sign",
        "Where they agree, the trainer does what it is thought to do. Where not, it scores, groups, weighs "
        "or filters otherwise than this analysis, or the file's rewards are not those that were trained on.",
        "With a low correlation check the reward column, the groups, and which rollouts the trainer drops.",
        _places(e, signs),
        **reach(e, signs, "have another sign", count=int(known.sum())),
    )


def _places(e: Evidence, rows: np.ndarray) -> list[Place]:
    return [place_of(e.table, int(row)) for row in np.flatnonzero(rows)[:EXAMPLES]]


ANSWERS: tuple[Rule, ...] = (_truncated, _parse_failures, _written_calls, _policies, _logged)
