"""Reader of TRL's `completions_<step>.parquet` (trl/trainer/grpo_trainer.py: log)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bipace.analyze.messages import as_text, is_messages, message_steps, text_steps
from bipace.analyze.readers.base import mapping_records
from bipace.analyze.records import LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["is_trl", "read_trl"]

_NO_REWARD = re.compile(
    r"(?:^|_)(?:steps?|index|idx|ids?|length|len|tokens?|count|num|epoch|entropy|kl|logps?|logprobs?|time|duration|seed|"
    r"turns?|advantages?|temperature|weight|ratio|prompt|completion)(?:_|$)"
)
_MOST = 6  # columns of which every combination is tried


def is_trl(record: object) -> bool:
    """A row {prompt, completion, advantage, one column a reward function}."""
    return isinstance(record, Mapping) and {"prompt", "completion", "advantage"} <= set(record)


def read_trl(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{step, prompt, completion, one column a reward function, advantage}.

    A prompt group is a prompt at its step.

    The reward columns are chosen: columns of numbers whose names do not say that they are something else (a
    length, an index), and of these the combination that the logged advantages follow, if one does. They are
    summed; the weights a trainer gave the functions are not in the file.
    """
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for where, row in mapping_records(found, reading):
        missing = [name for name in ("prompt", "completion") if name not in row]
        if missing:
            reading.skip(where, f"no {', '.join(missing)}")
        else:
            rows.append((where, row))
    groups = [f"{as_text(row['prompt'])}@{row.get('step', '')}" for _, row in rows]
    names = _reward_columns([row for _, row in rows], groups, reading)
    for (where, row), group in zip(rows, groups, strict=True):
        values = [as_number(row.get(name)) for name in names]
        reward = sum(v for v in values if v is not None) if any(v is not None for v in values) else None
        prompt, completion = row["prompt"], row["completion"]
        context, steps = "", ()
        if is_messages(completion):
            before = list(prompt) if is_messages(prompt) else [{"role": "user", "content": as_text(prompt)}]
            context, steps = message_steps([*_asked(before), *completion], reward)
        else:
            steps = text_steps([(as_text(prompt), as_text(completion))], reward)
        if not steps:
            reading.skip(where, "completion: holds no answer")
            continue
        logged = as_number(row.get("advantage"))
        yield LoggedTrajectory(
            group, where, tuple(replace(s, logged=logged) for s in steps), context, where=where
        )


def _asked(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A prompt's own answers were given to the agent, not by it."""
    return [{**m, "role": "user"} if m.get("role") == "assistant" else m for m in messages]


def _reward_columns(rows: Sequence[Mapping[str, Any]], groups: Sequence[str], reading: Reading) -> list[str]:
    numeric = {k: None for row in rows for k, v in row.items() if isinstance(v, (int, float))}
    candidates = [name for name in numeric if not _NO_REWARD.search(str(name).lower())]
    chosen = _followed(rows, groups, candidates) if 1 < len(candidates) <= _MOST else candidates
    left = [name for name in numeric if name not in chosen and name not in ("step", "advantage")]
    told = f"reward = sum of the columns {', '.join(chosen) or '(none found)'}, unweighted"
    reading.notes.append(told + (f"; not rewards: {', '.join(left)}" if left else ""))
    return chosen


def _followed(rows: Sequence[Mapping[str, Any]], groups: Sequence[str], names: list[str]) -> list[str]:
    """The most columns whose sums, centred in their groups, the advantages follow; all where none do."""
    label = np.unique(np.array(groups), return_inverse=True)[1].ravel()
    table = np.array(
        [
            [np.nan if (v := as_number(row.get(n))) is None else v for n in (*names, "advantage")]
            for row in rows
        ]
    )
    table = np.where(np.isfinite(table), table, 0.0)
    advantage = table[:, -1]
    for size in range(len(names), 0, -1):
        for picked in itertools.combinations(range(len(names)), size):
            total = table[:, list(picked)].sum(axis=1)
            centred = total - (np.bincount(label, total) / np.bincount(label))[label]
            # Advantages may be divided by each group's own deviation: compare group by group.
            if _parallel(centred, advantage, label):
                return [names[i] for i in picked]
    return names


def _parallel(a: np.ndarray, b: np.ndarray, label: np.ndarray) -> bool:
    """True where in every group b is a multiple of a (cosine above 0.999), and somewhere both vary."""
    product, aa, bb = (np.bincount(label, x) for x in (a * b, a * a, b * b))
    varied = (aa > 1e-12) | (bb > 1e-12)
    follows = product >= 0.999 * np.sqrt(aa * bb) - 1e-12
    together = (aa > 1e-12) == (bb > 1e-12)
    return bool(varied.any() and follows[varied].all() and together.all())
