"""Reader of verl's `<step>.jsonl` (trainer: rollout_data_dir, validation_data_dir).

A prompt group is one prompt at one training step: the same prompt drawn again later met another policy. verl
0.9 writes one row a model call with uid `group_rollout_call` (trainer_base._log_rollout_data).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bipace.analyze.messages import action_of, as_text, text_steps
from bipace.analyze.readers.base import mapping_records
from bipace.analyze.readers.rewards import settled
from bipace.analyze.records import Doubt, LoggedStep, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["read_verl"]

_UID = re.compile(r"^(.*)_(\d+)_(\d+)$")
_CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|$)", re.DOTALL)


class Row(NamedTuple):
    """A model call, or a whole rollout: its place, its texts, the row."""

    where: str
    prompt: str
    output: str
    row: Mapping[str, Any]


def read_verl(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{input, output, score, step} and, where present, uid, traj_uid or acc.

    Rows whose uid reads `group_rollout_call`, or that share a traj_uid, are joined to trajectories. Other
    rows are joined where one's input continues another's input and holds its answer, as the calls of one
    rollout do. What is left is a row a trajectory: its output is split at chat markers if they were kept,
    else it is one step.
    """
    rollouts: dict[tuple[str, str], list[tuple[float, Row]]] = {}
    loose: list[tuple[str, str, Row]] = []
    for where, row in mapping_records(found, reading):
        missing = [name for name in ("input", "output", "score") if name not in row]
        if missing:
            reading.skip(where, f"no {', '.join(missing)}")
            continue
        call = Row(where, as_text(row["input"]), as_text(row["output"]), row)
        uid, at = as_text(row.get("uid")), f"@{as_text(row.get('step', ''))}"
        match = _UID.match(uid)
        if match:
            rollouts.setdefault((f"{match[1]}{at}", match[2]), []).append((float(match[3]), call))
        elif row.get("traj_uid"):
            key = (f"{uid or call.prompt}{at}", as_text(row["traj_uid"]))
            rollouts.setdefault(key, []).append((float(len(rollouts.get(key, ()))), call))
        else:
            loose.append((uid, at, call))
    joined = [(f"{uid or chain[0].prompt}{at}", chain) for uid, at, chain in _chains(loose)]
    _say(loose, joined, reading)
    for (task, rollout), calls in rollouts.items():
        calls.sort(key=lambda call: call[0])
        joined.append((task, [call for _, call in calls]))
        del rollout
    names = [""] * (len(joined) - len(rollouts)) + [f"{task} #{rollout}" for task, rollout in rollouts]
    rewards = settled([[as_number(call.row["score"]) for call in chain] for _, chain in joined], reading)
    for (task, chain), name, earned in zip(joined, names, rewards, strict=True):
        steps = _steps(chain, earned)
        outcome = as_number(chain[-1].row.get("acc"))
        where = chain[0].where
        ids = (as_text(chain[0].row.get("uid")) or where,)
        yield LoggedTrajectory(task, name or where, steps, outcome=outcome, where=where, ids=ids)


def _steps(chain: Sequence[Row], rewards: Sequence[float | None]) -> tuple[LoggedStep, ...]:
    if len(chain) == 1:
        return text_steps(_turns(chain[0].prompt, chain[0].output), rewards[0])
    return tuple(
        LoggedStep(call.prompt, call.output, *action_of(call.output), reward)
        for call, reward in zip(chain, rewards, strict=True)
    )


def _chains(loose: Sequence[tuple[str, str, Row]]) -> list[tuple[str, str, list[Row]]]:
    """Rows joined to rollouts: in sorted order, an input's prefixes are on a stack when it is visited."""
    order = sorted(range(len(loose)), key=lambda i: (loose[i][0], loose[i][1], loose[i][2].prompt, i))
    after: dict[int, int] = {}
    stack: list[int] = []
    for i in order:
        uid, at, call = loose[i]
        while stack and not _begins(loose[stack[-1]], uid, at, call.prompt):
            stack.pop()
        for j in reversed(stack):
            before = loose[j][2]
            rest = call.prompt[len(before.prompt) :].lower()
            said = action_of(before.output)[0].strip()
            if rest and said and said in rest and j not in after:
                after[j] = i
                break
        stack.append(i)
    chains: list[tuple[str, str, list[Row]]] = []
    for i in sorted(set(range(len(loose))) - set(after.values())):
        at_row: int | None = i
        chain: list[Row] = []
        while at_row is not None:
            chain.append(loose[at_row][2])
            at_row = after.get(at_row)
        chains.append((loose[i][0], loose[i][1], chain))
    return chains


def _begins(row: tuple[str, str, Row], uid: str, at: str, prompt: str) -> bool:
    return row[0] == uid and row[1] == at and prompt.startswith(row[2].prompt)


def _say(
    loose: Sequence[tuple[str, str, Row]], joined: Sequence[tuple[str, list[Row]]], reading: Reading
) -> None:
    bare = sum(not uid for uid, _, _ in loose)
    several = sum(len(chain) > 1 for _, chain in joined)
    if several:
        reading.notes.append(
            f"{several} rollouts of several rows were joined: each input continues the one before"
        )
    if bare:
        text = f"{bare} rows have no uid: the prompt at its training step is taken for the group"
        text += f", and {several} rollouts were joined by their texts" if several else ""
        reading.doubts.append(Doubt("missing-uid", bare, text))


def _turns(prompt: str, output: str) -> list[tuple[object, str]]:
    """(observation, response) pairs of a multi-turn output whose chat markers were kept; else one pair."""
    if "<|im_start|>" not in output:
        return [(prompt, output)]
    head, _, tail = output.partition("<|im_start|>")
    turns: list[tuple[object, str]] = [(prompt, head.replace("<|im_end|>", "").strip())]
    read: list[str] = []
    for role, content in _CHATML.findall("<|im_start|>" + tail):
        if role == "assistant":
            turns.append(("\n".join(read), content.strip()))
            read = []
        else:
            read.append(content.strip())
    return turns
