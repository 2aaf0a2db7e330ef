"""Which file is it? Detected by content; every reader is one function and one line of the table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from bipace.analyze.fields import pick
from bipace.analyze.messages import is_messages
from bipace.analyze.readers import (
    art,
    atif,
    claude_code,
    episodes,
    inspect_logs,
    openhands,
    responses,
    rows,
    spans,
    swe_agent,
    terminal_bench,
    transcripts,
    trl,
    verifiers,
    verl,
)  # fmt: skip
from bipace.analyze.readers.base import ReadAll, each
from bipace.analyze.records import LoggedTrajectory, Reading
from bipace.analyze.source import Located

__all__ = ["FORMATS", "TEXT_FORMAT", "NotTrajectories", "detect", "trajectories"]


class NotTrajectories(ValueError):
    """The file holds nothing that any reader knows; the message lists what was looked for.

    Examples:
        >>> from bipace.analyze import NotTrajectories, analyze
        >>> try:
        ...     analyze([{"name": "Ada", "age": 36}])
        ... except NotTrajectories as error:
        ...     print(str(error).split(";")[0])
        ...
        in memory: no trajectories found
    """


class Format(NamedTuple):
    """A reader, what it needs to see in a record, that in words, and whether it judges other records."""

    matches: Callable[[Any], bool]
    read: ReadAll
    looks_for: str
    judges: bool = False


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda record: isinstance(record, Mapping) and all(name in record for name in names)


def _is_bipace(record: Any) -> bool:
    return _has("task", "steps")(record) and isinstance(record["steps"], list) and "source" not in record


def _is_openai(record: Any) -> bool:
    return is_messages(record) or (
        isinstance(record, Mapping) and any(_is_chat(record.get(name)) for name in episodes.MESSAGES)
    )


def _is_chat(value: Any) -> bool:
    return is_messages(value) or (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, Mapping) and {"role", "message"} & set(m) for m in value)
    )


def _read_openai(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """A bare list of messages is a conversation without anything beside it."""
    as_records = (Located(w, {"messages": r} if isinstance(r, list) else r) for w, r in found)
    return each(episodes.read_openai)(as_records, reading)


FORMATS: dict[str, Format] = {
    "nemo_gym": Format(
        responses.is_nemo_gym,
        each(responses.read_nemo_gym),
        "NeMo Gym rollouts {responses_create_params, response, reward}",
    ),
    "inspect": Format(
        inspect_logs.is_inspect,
        each(inspect_logs.read_inspect),
        "Inspect samples {id, epoch, input, messages, scores}",
    ),
    "terminal_bench": Format(
        terminal_bench.is_terminal_bench,
        each(terminal_bench.read_terminal_bench),
        "terminal-bench results {trial_name, task_id, is_resolved}",
    ),
    "openhands_eval": Format(
        openhands.is_evaluation,
        each(openhands.read_evaluation),
        "OpenHands evaluation output {instance_id, test_result, history}",
    ),
    "tau_bench": Format(
        _has("task_id", "traj"), each(episodes.read_tau_bench), "records {task_id, trial, reward, traj}"
    ),
    "verifiers_traces": Format(
        verifiers.is_traces,
        each(verifiers.read_traces),
        "episodes {task, traces} of verifiers 0.4 and prime-rl",
    ),
    "atif": Format(
        atif.is_atif, each(atif.read_atif), "ATIF trajectories {schema_version, session_id, agent, steps}"
    ),
    "swe_agent": Format(
        swe_agent.is_swe_agent, each(swe_agent.read_swe_agent), "SWE-agent runs {trajectory, history, info}"
    ),
    "mini_swe_agent": Format(
        swe_agent.is_mini,
        each(swe_agent.read_mini),
        "mini-swe-agent runs {messages, info, trajectory_format}",
    ),
    "bipace": Format(_is_bipace, each(episodes.read_bipace), "this project's episodes {task, member, steps}"),
    "art": Format(art.is_art, each(art.read_art), "ART rows {group_index, reward, messages}"),
    "openhands": Format(
        openhands.is_event,
        openhands.read_events,
        "OpenHands events {source, action, observation or kind}",
        True,
    ),
    "claude_code": Format(
        claude_code.is_claude_code,
        claude_code.read_claude_code,
        "Claude Code lines {type, uuid, sessionId, message}",
        True,
    ),
    "langfuse": Format(
        spans.is_langfuse,
        spans.read_langfuse,
        "Langfuse traces {id, observations} or observations {traceId, type}",
        True,
    ),
    "openinference": Format(
        spans.is_openinference,
        spans.read_openinference,
        "OpenInference spans {attributes: openinference.span.kind}",
        True,
    ),
    "openai": Format(_is_openai, _read_openai, "message lists [{role, content}], bare or under `messages`"),
    "verl": Format(
        _has("input", "output", "score"), verl.read_verl, "verl rows {input, output, score, step}", True
    ),
    "trl": Format(trl.is_trl, trl.read_trl, "TRL rows {step, prompt, completion, advantage, ...}", True),
    "verifiers": Format(
        _has("prompt", "completion", "reward"),
        each(episodes.read_verifiers),
        "verifiers results {example_id, prompt, completion, reward}",
    ),
    "adapt": Format(
        transcripts.is_adapt, transcripts.read_adapt, "ADaPT results {task: {problem, trace, reward}}"
    ),
    "rows": Format(
        rows.is_rows,
        partial(rows.read_rows, given={}),
        "flat rows with task, trajectory, step, observation, action, reward",
        True,
    ),
}
TEXT_FORMAT = "reflexion"
# Parts that a reader of records finds by these names, where --map puts them.
_NAMEABLE = ("openai", "tau_bench", "verifiers", "nemo_gym")
_MAPPED = {
    "task": "task_id",
    "trajectory": "trajectory_id",
    "reward": "reward",
    "outcome": "won",
    "role": "agent_name",
}


def detect(record: object) -> str:
    """The first format whose marks the record bears, or ""."""
    return next((name for name, known in FORMATS.items() if known.matches(record)), "")


def trajectories(
    found: Iterator[Located], reading: Reading, columns: Mapping[str, str]
) -> Iterator[LoggedTrajectory]:
    """The trajectories of a file's records, by the reader that `reading.format` or the records name.

    A record that another reader would claim is skipped and counted: the file mixes formats. With `columns`
    the records of a flat table are read by them; in other formats they say where the task, reward, outcome or
    name stands.
    """
    head = list(itertools.islice(found, 20))
    shown = next((name for name in (detect(r.value) for r in head) if name), "")
    if not reading.format:
        reading.format = "rows" if columns and ("action" in columns or shown not in _NAMEABLE) else shown
    if not reading.format:
        return
    known = FORMATS[reading.format]
    everything = _of_one_format(itertools.chain(head, found), reading, known)
    if columns and reading.format not in ("rows", *_NAMEABLE):
        raise ValueError(
            f"--map: the reader {reading.format} knows where its parts stand; rewards kept elsewhere: "
            "--rewards"
        )
    if reading.format == "rows":
        yield from rows.read_rows(everything, reading, columns)
    else:
        yield from known.read(_with_parts(everything, columns) if columns else everything, reading)


def _of_one_format(found: Iterable[Located], reading: Reading, known: Format) -> Iterator[Located]:
    for where, record in found:
        if known.matches(record):
            yield Located(where, record)
            continue
        other = detect(record)
        if other:
            reading.skip(where, f"a record of the format {other} in a file that is read as {reading.format}")
        elif known.judges:
            yield Located(where, record)
        else:
            reading.skip(where, f"not of the format {reading.format}, which reads {known.looks_for}")


def _with_parts(found: Iterable[Located], columns: Mapping[str, str]) -> Iterator[Located]:
    unknown = [part for part in columns if part not in _MAPPED]
    if unknown:
        raise ValueError(
            f"--map {unknown[0]}=...: only a flat table has it; here {', '.join(_MAPPED)} can be named"
        )
    for where, record in found:
        if isinstance(record, Mapping):
            record = {**record, **{_MAPPED[part]: pick(record, column) for part, column in columns.items()}}
        yield Located(where, record)
