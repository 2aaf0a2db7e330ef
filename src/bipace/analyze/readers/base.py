"""What the readers of conversations share: where rewards, tasks, names and failures stand in a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bipace.analyze.fields import BadField, cause, first, mapped, named
from bipace.analyze.messages import as_text, message_steps
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = [
    "OUTCOMES",
    "REWARDS",
    "conversation",
    "each",
    "failure",
    "ids_of",
    "mapping_records",
    "outcome_of",
    "reward_of",
    "spoken",
]

REWARDS = ("reward", "score", "return", "reward_info.reward")
OUTCOMES = ("won", "is_resolved", "resolved", "success", "solved", "acc", "is_correct", "correct", "passed")
TASKS = (
    "task_id",
    "task",
    "example_id",
    "prompt_id",
    "instance_id",
    "question_id",
    "problem_id",
    "uid",
    "group_id",
)
NAMES = ("trajectory_id", "traj_uid", "rollout_id", "id", "trial", "rollout", "sample", "member")
ROLES = ("agent", "agent_name", "role", "agent_role")
SEGMENTS = ("segment", "segment_index", "segment_id", "part", "continuation_index")
ERRORS = ("error", "exception", "exception_info", "error_message", "error_kind", "failure_reason")
TIMEOUTS = ("timed_out", "agent_timed_out", "eval_timed_out", "timeout")
MASKS = ("mask_sample", "masked", "is_masked", "mask")

ReadOne = Callable[[str, Mapping[str, Any], Reading], Iterable[LoggedTrajectory]]
ReadAll = Callable[[Iterable[Located], Reading], Iterator[LoggedTrajectory]]


def each(read: ReadOne) -> ReadAll:
    """A reader of files from a reader of records: a record that cannot be read costs itself only."""

    def read_all(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
        for where, record in mapping_records(found, reading):
            try:
                yield from read(where, record, reading)
            except BadField as error:
                reading.skip(where, str(error))

    read_all.__doc__ = read.__doc__
    return read_all


def mapping_records(found: Iterable[Located], reading: Reading) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The records that are objects; others are skipped and counted."""
    for where, record in found:
        if isinstance(record, Mapping):
            yield where, record
        else:
            kind = type(record).__name__
            reading.skip(where, f"{kind} where a record of the format {reading.format} was expected")


def conversation(
    messages: Sequence[Mapping[str, Any]],
    reward: float | None,
    about: Mapping[str, Any],
    where: str,
    reading: Reading,
    name: str = "",
) -> Iterator[LoggedTrajectory]:
    """A trajectory of a message list; task, name, role, outcome and failure are looked for in `about`."""
    context, steps = message_steps(messages, reward)
    yield from spoken(context, steps, about, where, reading, name)


def spoken(
    context: str,
    steps: tuple[LoggedStep, ...],
    about: Mapping[str, Any],
    where: str,
    reading: Reading,
    name: str = "",
    out: str | None = None,
) -> Iterator[LoggedTrajectory]:
    """A trajectory of steps; without steps it counts only if `out`, or `about`, says why it failed."""
    out = failure(about) if out is None else out
    if not steps and not out:
        reading.skip(where, "no answer of a model, so no step")
        return
    task = named(about, TASKS) or (as_text(steps[0].observation) if steps else "") or context
    role = named(about, ROLES) if not isinstance(about.get("agent"), Mapping) else ""
    ids = ids_of(about)
    segment = as_number(first(about, SEGMENTS))
    yield LoggedTrajectory(
        task=task,
        name=name or (ids[0] if ids else where),
        steps=steps,
        context=context,
        outcome=outcome_of(about),
        where=where,
        role=role,
        out=out,
        part=(ids[0], segment) if ids and segment is not None else None,
        ids=ids,
    )


def ids_of(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Every id of a rollout in a record, the most telling first."""
    return tuple(
        dict.fromkeys(str(about[k]) for k in NAMES if isinstance(about.get(k), (str, int)) and about[k] != "")
    )


def outcome_of(about: Mapping[str, Any]) -> float | None:
    """The stated success of a record, apart from its reward."""
    return as_number(first(about, OUTCOMES))


def failure(about: Mapping[str, Any]) -> str:
    """Why a rollout stands outside every baseline (an error, a time-out, an abort, a mask), or ""."""
    error = next((about[k] for k in ERRORS if about.get(k)), None)
    if error is not None:
        inside = mapped(error, "error") if isinstance(error, Mapping) else {}
        kinds = ("type", "exception_type", "code", "message", "exception_message")
        return cause("error", named(inside, kinds) if inside else as_text(error))
    if any(about.get(k) is True for k in TIMEOUTS):
        return cause("time-out")
    if about.get("aborted") is True:
        return cause("aborted")
    return cause("masked") if any(about.get(k) is True for k in MASKS) else ""


def reward_of(record: Mapping[str, Any], where: str, reading: Reading) -> float | None:
    """The reward of a record, else its stated success; None where it has none that is a number.

    Raises:
        ValueError: none, under `strict`.
    """
    given = first(record, (*REWARDS, *OUTCOMES))
    value = as_number(given)
    if value is None and reading.strict:
        raise ValueError(f"{reading.file}: {where}: reward is {given!r}, expected a number")
    return value
