"""From another engine's rows to the core's table of steps: by name, never by position.

An engine re-orders rows to balance its ranks, copies some to fill a batch, loses others. An adapter says of
each model call which prompt group, trajectory and step it is (`EngineStep`); the rest happens here, once for
all engines.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core.features import FeaturesElsewhere
from bipace.core.labels import canonical
from bipace.core.rows import Rows, build_batch
from bipace.core.steps import Bools, Floats

__all__ = ["EngineStep", "UndeclaredPaddingWarning", "to_table"]


class UndeclaredPaddingWarning(UserWarning):
    """Rows that are copies of another row were not marked as padding; the message says how many.

    Examples:
        >>> import warnings
        >>> from bipace.integrations.common.rows import EngineStep, UndeclaredPaddingWarning, to_table
        >>> step = EngineStep("cup", "first", 0, "a door", "open", 1.0)
        >>> with warnings.catch_warnings(record=True) as seen:
        ...     warnings.simplefilter("always", UndeclaredPaddingWarning)
        ...     rows, counts = to_table([step, step])
        ...
        >>> str(seen[0].message)[:58], counts["event/padding_rows"]
        ('1 rows are copies of another row and are taken for padding', 1.0)
    """


@dataclass(frozen=True, slots=True)
class EngineStep:
    """One model call, as an adapter found it in its engine's batch.

    Attributes:
        group: prompt group: calls of one task instance share it. Text, a number, or a tuple of them.
        trajectory: which trajectory of the group; the same name in two groups is two trajectories.
        t: step index within the trajectory, from 0.
        observation: what the policy was told before the call; any value that can be compared.
        action: the action key (`bipace.core.actions`); any value that can be compared.
        reward: what the environment paid for the action, in the estimator's unit; None where nobody knows.
        parsed: False where the response lacked the required form: it pays the penalty, on its own row.
        terminated: True where the environment ended the episode at this step.
        truncated: True where a horizon or a token limit ended it at this step.
        steps: how many steps the whole trajectory has; None where the engine cannot tell.
        aborted: True where the rollout failed: its whole trajectory gets 0 and enters no statistic.
        padding: True on a row copied to fill a batch: it gets 0 and enters no statistic.

    Examples:
        >>> from bipace.integrations.common.rows import EngineStep, to_table
        >>> steps = [EngineStep("cup", "first", t, "a door", "open", float(t)) for t in range(2)]
        >>> failed = EngineStep("cup", "second", 0, "a door", "wait", 0.0, aborted=True)
        >>> rows, counts = to_table([*steps, failed])
        >>> len(rows.batch), rows.batch.reward.tolist(), counts["event/aborted_rows"]
        (2, [0.0, 1.0], 1.0)
    """

    group: Any
    trajectory: Any
    t: int
    observation: object
    action: object
    reward: float | None
    parsed: bool = True
    terminated: bool = False
    truncated: bool = False
    steps: int | None = None
    aborted: bool = False
    padding: bool = False


# long: half of it says what the arguments are
def to_table(
    steps: Sequence[EngineStep],
    *,
    features: NDArray[Any] | FeaturesElsewhere | None = None,
    added: Floats | None = None,
    invalid_action_penalty: float = 0.0,
    to_go: Floats | None = None,
    whole: Floats | None = None,
) -> tuple[Rows, dict[str, float]]:
    """The table of a batch, and counts of what was left out of it.

    The values of a row do not depend on the order of the rows. Padding rows are dropped before anything is
    compared; a copy of another row that nobody marked is treated as padding, with a warning. A trajectory
    with a missing or aborted row, or with a number that is not finite, is dropped whole and gets advantage 0;
    its siblings keep their statistics.

    Args:
        steps: N model calls in any order.
        features: [N, D] hidden states, or None.
        added: [N] what the engine added to a call's reward (a KL penalty), or None. It becomes part of the
            step's reward, so it enters both the trajectory return and the return-to-go.
        invalid_action_penalty: cost of a response without the required form, on its own row.
        to_go: [N] return-to-go of each step where the engine has computed it, or None (`StepBatch.to_go`).
        whole: [N] return of each step's trajectory where the engine has computed it, or None
            (`StepBatch.whole`).

    Returns:
        The table, with the way back to the rows as they came, and the counts `event/padding_rows`,
        `event/missing_rows`, `event/aborted_rows`, `event/non_finite_rows`.

    Raises:
        ValueError: a step index that is no whole number from 0; two different rows with one name; a column of
            another length.

    Examples:
        >>> from bipace.integrations.common.rows import EngineStep, to_table
        >>> steps = [EngineStep("cup", name, 0, "a door", name, 1.0) for name in ("open", "wait")]
        >>> rows, counts = to_table(steps)
        >>> len(rows.batch)
        2
    """
    for name, column in {"features": features, "added": added, "to_go": to_go, "whole": whole}.items():
        if column is not None and len(column) != len(steps):
            raise ValueError(f"{name}: {len(column)} entries, expected {len(steps)}, one per row")
    _check_indices(steps)
    padding = _padding(steps)
    missing = _incomplete(steps, padding)
    extra = np.zeros(len(steps)) if added is None else np.asarray(added, np.float64)
    given = {"to_go": to_go, "whole": whole}
    unknown = np.zeros(len(steps), np.bool_)
    for column in given.values():
        unknown |= False if column is None else ~np.isfinite(column)
    # The core numbers groups and trajectories by their names, so the order of the rows says nothing.
    rows = build_batch(
        task=[s.group for s in steps],
        trajectory=[s.trajectory for s in steps],
        t=[s.t for s in steps],
        reward=[_reward(s, float(e), bool(u)) for s, e, u in zip(steps, extra, unknown, strict=True)],
        observation=[s.observation for s in steps],
        action=[s.action for s in steps],
        terminated=[s.terminated for s in steps],
        truncated=[s.truncated for s in steps],
        features=features,
        penalty=[invalid_action_penalty * (not s.parsed) for s in steps],
        padding=padding.tolist(),
        aborted=[s.aborted or bool(m) for s, m in zip(steps, missing, strict=True)],
    )
    batch = replace(
        rows.batch, **{k: None if v is None else np.asarray(v)[rows.kept] for k, v in given.items()}
    )
    counts = {
        "event/padding_rows": float(padding.sum()),
        "event/missing_rows": float(missing.sum()),
        "event/aborted_rows": float(sum(s.aborted and not p for s, p in zip(steps, padding, strict=True))),
        "event/non_finite_rows": float(
            sum(n for reason, n in rows.dropped.items() if reason.startswith("non-finite"))
        ),
    }
    return replace(rows, batch=batch), counts


def _check_indices(steps: Sequence[EngineStep]) -> None:
    for row, step in enumerate(steps):
        t = step.t
        if isinstance(t, bool) or not isinstance(t, (int, np.integer)) or t < 0:
            raise ValueError(
                f"t: {t!r} at row {row}, expected a whole number from 0, the step's index in its trajectory"
            )


def _padding(steps: Sequence[EngineStep]) -> Bools:
    """[N] rows that fill the batch, marked or found to be a copy of the row with the same name."""
    padding = np.array([s.padding for s in steps], np.bool_)
    first: dict[tuple[Any, ...], int] = {}
    found = 0
    for i, step in enumerate(steps):
        if padding[i]:
            continue
        before = first.setdefault((canonical(step.group), canonical(step.trajectory), int(step.t)), i)
        if before == i:
            continue
        if _content(step) != _content(steps[before]):
            raise ValueError(
                f"t: rows {before} and {i} are both step {step.t} of trajectory {step.trajectory!r} in "
                f"group {step.group!r} and differ; every model call needs a name of its own"
            )
        padding[i], found = True, found + 1
    if found:
        warnings.warn(
            f"{found} rows are copies of another row and are taken for padding (advantage 0, in no "
            "statistic); mark them as padding where the batch is filled",
            UndeclaredPaddingWarning,
            stacklevel=3,
        )
    return padding


def _content(step: EngineStep) -> object:
    return canonical((step.observation, step.action, step.reward, step.parsed, step.aborted))


def _incomplete(steps: Sequence[EngineStep], padding: Bools) -> Bools:
    """[N] True on the rows of a trajectory that lacks some of its rows."""
    found: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        if not padding[i]:
            found[canonical(step.group), canonical(step.trajectory)].append(i)
    missing = np.zeros(len(steps), np.bool_)
    for rows in found.values():
        seen = {int(steps[i].t) for i in rows}
        lengths = {n for i in rows if (n := steps[i].steps) is not None} or {max(seen) + 1}
        missing[rows] = len(lengths) > 1 or seen != set(range(lengths.pop()))
    return missing


def _reward(step: EngineStep, extra: float, unknown: bool) -> float | None:
    return None if unknown or step.reward is None else float(step.reward) + extra
