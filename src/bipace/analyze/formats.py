"""Which file is it? Detected by content; every reader behind one function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bipace.analyze import episodes, rows, transcripts
from bipace.analyze.messages import is_messages
from bipace.analyze.records import LoggedTrajectory, Reading
from bipace.analyze.source import Located, is_text, open_text, records

__all__ = ["FORMATS", "NotTrajectories", "detect", "read_file", "read_files"]


class NotTrajectories(ValueError):
    """The file holds nothing that any reader knows; the message lists what was looked for."""


class Format(NamedTuple):
    """A reader, what it needs to see in the first record, and that in words."""

    matches: Callable[[Any], bool]
    read: Callable[[Iterable[Located], Reading], Iterator[LoggedTrajectory]]
    looks_for: str


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda record: isinstance(record, Mapping) and all(name in record for name in names)


def _is_atif(record: Any) -> bool:
    return _has("steps")(record) and (
        str(record.get("schema_version", "")).upper().startswith("ATIF") or _has("agent", "session_id")(record)
    )


def _is_openai(record: Any) -> bool:
    return is_messages(record) or (
        isinstance(record, Mapping) and (is_messages(record.get("messages")) or is_messages(record.get("conversation")))
    )


def _is_rows(record: Any) -> bool:
    if not isinstance(record, Mapping):
        return False
    found = rows.column_map(record, {})
    return bool(found["action"] and (found["reward"] or found["observation"]))


FORMATS: dict[str, Format] = {
    "tau_bench": Format(_has("task_id", "traj"), episodes.read_tau_bench, "records {task_id, trial, reward, traj}"),
    "verifiers_traces": Format(_has("traces"), episodes.read_traces, "episodes {task, traces} of verifiers 0.4"),
    "atif": Format(_is_atif, episodes.read_atif, "ATIF trajectories {schema_version, session_id, agent, steps}"),
    "bipace": Format(_has("task", "steps"), episodes.read_bipace, "this project's episodes {task, member, steps}"),
    "openai": Format(_is_openai, episodes.read_openai, "message lists [{role, content}], bare or under `messages`"),
    "verl": Format(_has("input", "output", "score"), rows.read_verl, "verl rows {input, output, score, step}"),
    "trl": Format(_has("prompt", "completion", "advantage"), rows.read_trl, "TRL rows {step, prompt, completion, ...}"),
    "verifiers": Format(
        _has("prompt", "completion", "reward"), episodes.read_verifiers,
        "verifiers results {example_id, prompt, completion, reward}",
    ),
    "adapt": Format(transcripts.is_adapt, transcripts.read_adapt, "ADaPT results {task: {problem, trace, reward}}"),
    "rows": Format(
        _is_rows, partial(rows.read_rows, given={}),
        "flat rows with task, trajectory, step, observation, action, reward",
    ),
}  # fmt: skip
TEXT_FORMAT = "reflexion"


def detect(record: object) -> str | None:
    """The first format whose marks the record bears, or None."""
    return next((name for name, known in FORMATS.items() if known.matches(record)), None)


def read_file(
    path: str | Path, format: str | None = None, columns: Mapping[str, str] | None = None, strict: bool = False
) -> Reading:
    """Read one file.

    Args:
        path: JSON, JSON lines, parquet or a Reflexion log; may be gzip or zstd compressed.
        format: a name from FORMATS or "reflexion"; None detects it from the first records.
        columns: part -> column name; makes the format "rows".
        strict: raise at the first place that cannot be read instead of skipping it.

    Raises:
        NotTrajectories: nothing in the file looks like a trajectory.
        FileNotFoundError: no such file.
        ValueError: an unknown format; an empty file; under `strict` the first damaged place.
    """
    path = Path(path)
    reading = Reading(str(path), format or ("rows" if columns else ""), strict=strict)
    _check(path, reading.format)
    if reading.format == TEXT_FORMAT or (not reading.format and _looks_like_log(path)):
        reading.format = TEXT_FORMAT
        with open_text(path, reading) as file:
            reading.trajectories = list(transcripts.read_reflexion(file, reading))
    else:
        reading.trajectories = list(_read_records(path, reading, columns or {}))
    if not reading.trajectories:
        raise NotTrajectories(_nothing(reading))
    return reading


def read_files(
    paths: Sequence[str | Path], progress: Callable[[str], None] = lambda _what: None, **options: Any
) -> list[Reading]:
    """Read several files; a folder stands for the trajectory files in it, sorted by name."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(p for p in path.rglob("*") if p.is_file() and _is_candidate(p)) if path.is_dir() else [path]
        if not inside:
            raise NotTrajectories(f"{path}: the folder holds no .json, .jsonl or .parquet file")
        found += inside
    readings: list[Reading] = []
    for number, path in enumerate(found, 1):
        progress(f"reading {path.name} ({number} of {len(found)})")
        readings.append(read_file(path, **options))
    return readings


def _is_candidate(path: Path) -> bool:
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zst")]
    return bool(suffixes) and suffixes[-1] in (".json", ".jsonl", ".parquet")


def _check(path: Path, format: str) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if format and format not in FORMATS and format != TEXT_FORMAT:
        raise ValueError(f"--format {format}: unknown; the formats are {', '.join([*FORMATS, TEXT_FORMAT])}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")


def _looks_like_log(path: Path) -> bool:
    if not is_text(path):
        return False
    with open_text(path) as file:
        return transcripts.is_reflexion(file.read(1 << 16))


def _read_records(path: Path, reading: Reading, columns: Mapping[str, str]) -> Iterator[LoggedTrajectory]:
    found = _counted(records(path, reading), reading)
    head = list(itertools.islice(found, 20))
    if not reading.format:
        reading.format = next((name for name in (detect(r.value) for r in head) if name), "")
    if not reading.format:
        return
    read = partial(rows.read_rows, given=columns) if reading.format == "rows" else FORMATS[reading.format].read
    yield from read(itertools.chain(head, found), reading)


def _counted(found: Iterable[Located], reading: Reading) -> Iterator[Located]:
    for record in found:
        reading.records += 1
        yield record


def _nothing(reading: Reading) -> str:
    damaged = "; ".join(f"{p.where}: {p.why}" for p in reading.problems[:3])
    looked = "; ".join(known.looks_for for known in FORMATS.values())
    return (
        f"{reading.file}: no trajectories found"
        + (f" by the reader {reading.format}" if reading.format else "")
        + (f" ({damaged})" if damaged else "")
        + f". Looked for: {looked}; Reflexion logs. Name the columns of a flat table with --map task=COLUMN "
        "--map action=COLUMN ..., or force a reader with --format"
    )
