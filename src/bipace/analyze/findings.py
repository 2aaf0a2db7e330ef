"""Findings: what the numbers mean for training, in plain words, with places to look and something to do."""

from __future__ import annotations

from collections.abc import Iterator

from bipace.analyze.answers import ANSWERS
from bipace.analyze.evidence import SEVERITIES, Evidence, Finding, Rule, Severity
from bipace.analyze.quality import QUALITY
from bipace.analyze.reach import alone, one_action, others, reach

__all__ = ["find"]


def find(evidence: Evidence) -> list[Finding]:
    """All findings in order of harm.

    By severity, faults of the data first, then by the share of steps harmed.
    """
    rules = [rule for rule in _RULES if evidence.table.rewarded or rule not in _ON_REWARDS]
    found = [finding for rule in rules for finding in rule(evidence)]
    return sorted(found, key=lambda f: (-SEVERITIES.index(f.severity), not f.first, -f.harm))


def _flat_groups(e: Evidence) -> Iterator[Finding]:
    groups, lone, flat = e.number("groups"), e.number("lone_groups"), e.number("flat_groups")
    several, stuck = groups - lone, flat - lone
    if stuck <= 0:
        return
    share = stuck / several
    alike = e.health.flat & ~e.health.lone
    severity: Severity = "error" if share == 1 else "warning" if share >= 0.3 else "info"
    yield Finding(
        "flat-groups",
        severity,
        f"{stuck:.0f} of {several:.0f} prompt groups have no reward variance ({share:.0%})",
        "Every rollout of such a group ended with the same outcome, so a trajectory-level method (GRPO, Dr. "
        "GRPO, RLOO) gives all its steps an advantage of exactly 0: "
        f"{e.number('steps_in_flat_groups_share'):.0%} of all steps lie in groups like that (lone ones "
        "included) and were paid for without teaching anything.",
        "Drop or re-weight tasks that are always solved or never solved, raise the sampling temperature, or "
        "draw more rollouts a task. In an all-fail group with reward 0 everywhere no estimator finds a "
        "signal.",
        e.health.places["flat"],
        **reach(e, alike[e.table.batch.task], "ended with one outcome", count=stuck, unit="rollouts"),
    )  # fmt: skip


def _shaped_only(e: Evidence) -> Iterator[Finding]:
    count = e.number("flat_groups_with_reward_variance")
    if count and e.table.shaped:
        yield Finding(
            "shaping-only",
            "warning",
            f"in {count:.0f} groups only the shaped reward varies, not the outcome",
            "Rollouts with one outcome get different rewards (penalties, format rewards, lengths). Divided "
            "by the group's small deviation such differences become full-size gradients.",
            "Judge variance on the outcome, keep penalties out of the return (bipace's default), or use "
            "mean_norm.",
            e.health.places["shaped"],
            **reach(
                e, e.health.shaped[e.table.batch.task], "differ in reward alone", count=count, unit="rollouts"
            ),
        )


def _lone_groups(e: Evidence) -> Iterator[Finding]:
    lone, groups = e.number("lone_groups"), e.number("groups")
    if lone:
        yield Finding(
            "lone-groups",
            "error" if lone == groups else "warning",
            f"{lone:.0f} of {groups:.0f} tasks have a single trajectory",
            "Group-relative credit compares rollouts of one task. A lone rollout has nobody to be compared "
            "with: its trajectory term is 0, and a step term can compare it only with itself.",
            "Collect several rollouts a task (8 is usual). If the file does hold several, the task ids "
            "differ: name the right column with --map task=COLUMN, or join files with --merge.",
            e.health.places["lone"],
            **reach(e, e.health.lone[e.table.batch.task], "have no rollout to be compared with", count=lone),
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
        "GiGPO and HGPO compare steps that saw the same text. A step without a peer gets no step-level "
        "credit there: what is left for it is the trajectory's outcome, as in GRPO. "
        f"{1 - others(e, 'gigpo').mean():.1%} of steps have no peer in another trajectory.",
        _advice_on_similarity(e),
        **reach(e, alone(e, "gigpo"), "have no peer", weight=0.5),
    )


def _advice_on_similarity(e: Evidence) -> str:
    """Whether to group by similar states, as the sweep over radii has it."""
    best = min(e.errors, key=lambda eps: (e.errors[eps], eps))
    exact, least, worst = e.errors[0.0], e.errors[best], max(e.errors.values())
    if worst == 0:
        return (
            "Whether similar states should count as one cannot be judged here: no group has two trajectories "
            "whose returns could foretell each other. Collect several rollouts a task first."
        )
    if best == 0:
        wider = min(eps for eps in e.errors if eps > 0)
        better = "another --layer" if e.feature_kind == "hidden" else "hidden states (--model FOLDER)"
        return (
            "Do not widen the radius on these features: the clusters that foretell returns best are those of "
            f"eps 0 (squared error {exact:.4g}, at eps {wider:g} {e.errors[wider]:.4g}), so states that "
            f"merely look alike differ in value here. Try {better}, or make observations of one state equal: "
            "take ids, dates and random wording out of them."
        )
    gain = 1 - least / exact if exact else 0.0
    little = "; little is to be won" if gain < 0.01 else ""
    return (
        f"Group by similar states instead of equal text (bipace or bigpo with eps = {best:g}): its clusters "
        f"foretell returns best (squared error {least:.4g}, at eps 0 {exact:.4g}, {gain:.1%} less{little}). "
        "Move the eps slider to see what joins."
    )


def _step_credit(e: Evidence) -> Iterator[Finding]:
    grpo, gigpo, bipace = (e.credits[name] for name in ("grpo", "gigpo", "bipace"))
    # A trajectory's own earlier and later steps are no peers: a comparison with them says when, not what.
    moved = others(e, "bipace") & (bipace.values != grpo.values)
    exact = float((others(e, "gigpo") & (gigpo.values != grpo.values)).mean())
    features = "text vectors" if e.feature_kind == "text" else "hidden states"
    told = reach(e, moved, "are changed by BiPACE")
    yield Finding(
        "step-credit",
        "info",
        f"step-level credit changes the advantage of {moved.mean():.0%} of steps with BiPACE (eps {e.eps:g}, "
        f"{features}) and {exact:.0%} with GiGPO",
        "On these steps a comparison with other trajectories in a like state adds to, or corrects, what the "
        "outcome says. Where the share is near 0, step-level credit cannot help whatever its name. A "
        "trajectory's own steps are not counted as peers here.",
        "Compare the recipes in the groups below: look for steps that GRPO rewards only because the "
        "episode went well.",
        count=told["count"], groups=told["groups"], worst=told["worst"],
    )  # fmt: skip


def _collapse(e: Evidence) -> Iterator[Finding]:
    numbers = e.clusters("bipace")
    mean_share = numbers["cluster_size_mean"] * e.number("groups") / max(e.number("steps"), 1)
    if mean_share > 0.5 and e.number("steps_per_trajectory_mean") > 2 and e.number("group_size_max") > 1:
        yield Finding(
            "collapsed-clusters",
            "warning",
            f"at eps {e.eps:g} the average cluster holds {mean_share:.0%} of its prompt group's steps",
            "Nearly everything counts as one state, so step credit turns into a comparison of early with "
            "late steps.",
            "Lower eps, or remove the leading directions of the hidden states (whiten = 3).",
        )


def _one_action(e: Evidence) -> Iterator[Finding]:
    numbers = e.clusters("bipace")
    several = numbers["clusters"] * (1 - numbers["singleton_rate"])
    if several and numbers["multi_action_rate"] < 0.3:
        yield Finding(
            "no-counterfactual",
            "info",
            f"only {numbers['multi_action_rate']:.0%} of clusters with several steps hold more than one "
            "action",
            "BiPACE compares the mean return of an action with that of its cluster. With one action there is "
            "nothing to compare; the leave-one-out baseline steps in.",
            "A higher sampling temperature gives more distinct actions. If actions are long free text, use a "
            "coarser key: --action-key first_word.",
            **reach(e, one_action(e, "bipace"), "have peers that all took one action", weight=0.5),
        )


def _duplicates(e: Evidence) -> Iterator[Finding]:
    copies, share = e.number("duplicate_trajectories"), e.number("duplicate_share")
    if copies:
        yield Finding(
            "duplicates",
            "warning" if share >= 0.1 else "info",
            f"{copies:.0f} trajectories are copies of another one in their group ({share:.0%} of those "
            "that could be)",
            "Copies cost a rollout each and add no information; they make a group look larger than it is.",
            "Sample with a temperature above 0 and check that every worker has its own seed.",
            e.health.places["duplicate"],
            **reach(
                e, e.health.duplicate[e.table.batch.trajectory], "are copies", count=copies, unit="rollouts"
            ),
        )


def _loops(e: Evidence) -> Iterator[Finding]:
    share, steps, loops = (e.number(f"loop_{what}") for what in ("step_share", "steps", "trajectories"))
    if share:
        yield Finding(
            "loops",
            "warning" if share >= 0.1 else "info",
            f"{steps:.0f} step{'s' * (steps != 1)} ({share:.1%}) repeat{'s' * (steps == 1)} an action that "
            "the trajectory had already taken on the same observation; "
            f"{loops:.0f} {'trajectory loops' if loops == 1 else 'trajectories loop'}",
            "Repeated visits fill clusters with one trajectory's own steps: they look like peers and are not "
            "independent.",
            "Penalise or stop loops in the environment, show the agent its history, and look at distinct "
            "trajectories per cluster rather than at cluster size.",
            e.health.places["loop"],
            **reach(e, e.health.looping, "repeat an earlier one", weight=0.5),
        )  # fmt: skip


def _aliasing(e: Evidence) -> Iterator[Finding]:
    share = e.number("aliasing")
    if share:
        yield Finding(
            "aliasing",
            "warning" if share >= 0.2 else "info",
            f"{share:.0%} of repeated (observation, action) pairs led to different next observations",
            "Either the environment is random, or the observation does not show the whole state: equal text "
            "then joins states of different value (GiGPO and HGPO do this by construction).",
            "Group by features of the whole prompt (--model FOLDER), or by history (hgpo).",
            e.health.places["aliased"],
            **reach(e, e.health.aliased, "led elsewhere than their equals"),
        )


def _parse_rate(e: Evidence) -> Iterator[Finding]:
    if e.table.parsed is not None and e.number("parse_rate") < 0.99:
        yield Finding(
            "unparsed",
            "warning" if e.number("parse_rate") < 0.95 else "info",
            f"{1 - e.number('parse_rate'):.1%} of responses lack the action form the file uses",
            "Their action key is the whole response, so they match no other action and no peer is found "
            "for them.",
            "Give an invalid-action penalty, warm the model up on the format, or raise the response limit.",
            e.health.places["unparsed"],
            **reach(e, ~e.table.parsed, "lack the action form"),
        )


_RULES: tuple[Rule, ...] = (
    *QUALITY, *ANSWERS, _flat_groups, _lone_groups, _shaped_only, _step_credit, _exact_text, _collapse,
    _one_action,
    _duplicates, _loops, _aliasing, _parse_rate,
)  # fmt: skip
# Rules that say nothing where no rollout has a reward.
_ON_REWARDS = (_flat_groups, _shaped_only, _step_credit, _one_action)
