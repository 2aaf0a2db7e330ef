"""verl's rows as model calls: what each one is stands in its name.

verl names a row `{uid}_{session}_{index}`: prompt group, trajectory, step. It re-orders rows to balance
ranks, adds padding rows that are copies of a real one, and drops groups that failed; nothing here depends on
the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bipace.integrations.common.rows import EngineStep
from bipace.rollout.records import EpisodeSummary, episode_metrics

__all__ = ["RowKey", "batch_metrics", "engine_steps", "parse_key"]


class RowKey(NamedTuple):
    """Prompt group, trajectory within it, step within that."""

    uid: str
    session: int
    index: int


def parse_key(key: str) -> RowKey:
    """`{uid}_{session}_{index}` taken apart. Raises ValueError on any other form."""
    parts = key.rsplit("_", 2)
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        raise ValueError(
            f"row key {key!r}: expected uid_session_index; is this verl 0.9's TransferQueue trainer?"
        )
    return RowKey(parts[0], int(parts[1]), int(parts[2]))


def engine_steps(
    keys: Sequence[str], records: Sequence[Mapping[str, Any]], padding: Sequence[bool]
) -> list[EngineStep]:
    """Verl's rows as model calls.

    Args:
        keys: [N] row names.
        records: [N] what the agent loop wrote on each row (`StepRow.record`).
        padding: [N] True on rows verl added to fill a batch.

    Raises:
        ValueError: a key of another form, or columns of different lengths.
    """
    if not len(keys) == len(records) == len(padding):
        raise ValueError(
            f"keys, records, padding: lengths {len(keys)}, {len(records)}, {len(padding)} differ"
        )
    return [
        _step(parse_key(key), record, pad) for key, record, pad in zip(keys, records, padding, strict=True)
    ]


def _step(key: RowKey, record: Mapping[str, Any], padding: bool) -> EngineStep:
    episode = EpisodeSummary(**record["episode"])
    last = key.index == episode.steps - 1
    return EngineStep(
        group=key.uid,
        trajectory=key.session,
        t=key.index,
        observation=record["observation"],
        action=_hashable(record["action"]),
        reward=record["reward"],
        parsed=record["parsed"],
        terminated=last and episode.terminated,
        truncated=last and episode.truncated,
        steps=episode.steps,
        aborted=episode.aborted,
        padding=padding,
    )


def batch_metrics(
    keys: Sequence[str], records: Sequence[Mapping[str, Any]], padding: Sequence[bool], group_size: int
) -> dict[str, float]:
    """Episodes and mishaps of a batch, under the names `bipace train` logs (`episode/`, `event/`).

    `event/missing_episodes` counts those of a group of `group_size` that left no row at all: the environment
    failed before the first call, or the first prompt did not fit.
    """
    episodes = {
        parse_key(key)[:2]: EpisodeSummary(**record["episode"])
        for key, record, pad in zip(keys, records, padding, strict=True)
        if not pad
    }
    groups = len({uid for uid, _ in episodes})
    missing = float(groups * group_size - len(episodes))
    return {**episode_metrics(list(episodes.values())), "event/missing_episodes": missing}


def _hashable(action: Any) -> Any:
    return tuple(action) if isinstance(action, (list, tuple)) else action
