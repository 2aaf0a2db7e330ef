"""Files, folders and lists in memory -> readings: one file, or everything below a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bipace.analyze.folders import Place, place_of, places
from bipace.analyze.formats import FORMATS, TEXT_FORMAT, NotTrajectories, trajectories
from bipace.analyze.join import join_segments, with_verdict
from bipace.analyze.messages import is_messages
from bipace.analyze.readers import transcripts
from bipace.analyze.readers.rewards import ROW_REWARDS
from bipace.analyze.records import LoggedTrajectory, Problem, Reading
from bipace.analyze.source import DAMAGED, Located, is_text, open_text, records

__all__ = ["Readings", "read_file", "read_files"]

Source = str | Path | Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True)
class Readings:
    """What was read, and which files of a folder hold no trajectories.

    Attributes:
        files: the readings; one whose trajectories continue another file's has none left.
        foreign: files of a folder that no reader knows, and why.
    """

    files: Sequence[Reading]
    foreign: Sequence[Problem]


def read_file(
    path: str | Path,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
    row_reward: str = "auto",
) -> Reading:
    """Read one file.

    Args:
        path: JSON, JSON lines, parquet, CSV, an Inspect archive or a Reflexion log; may be gzip or zstd
            compressed.
        format: a name from FORMATS or "reflexion"; None detects it from the first records.
        columns: part -> column name, or a nested one as `info.score`.
        strict: raise at the first place that cannot be read instead of skipping it.
        row_reward: what a reward on every row of a trajectory means: "auto", "last" or "each".

    Raises:
        NotTrajectories: nothing in the file looks like a trajectory.
        FileNotFoundError: no such file.
        ValueError: an unknown format; an empty file; under `strict` the first damaged place.

    Examples:
        >>> import json, tempfile
        >>> from bipace.analyze import read_file
        >>> from pathlib import Path
        >>> step = dict(task="cup", trajectory="first", step=0, observation="a door", action="open", reward=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "rollouts.jsonl")
        ...     written = path.write_text(json.dumps(step), encoding="utf-8")
        ...     reading = read_file(path)
        ...
        >>> reading.format, len(reading.trajectories)
        ('rows', 1)
    """
    reading = _read(place_of(Path(path)), format or "", columns or {}, strict, row_reward)
    join_segments([reading])
    return reading


def read_files(
    sources: Sequence[Source],
    progress: Callable[[str], None] = lambda _what: None,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
    row_reward: str = "auto",
) -> Readings:
    """Read files, folders and records in memory.

    A folder stands for everything below it that holds trajectories, run folders among it. A file of a folder
    that no reader knows is named and left out; one that was named by the user is refused.

    Raises:
        NotTrajectories: nothing that any reader knows.
        FileNotFoundError: no such file.
        ValueError: as `read_file`.
    """
    how = (format or "", columns or {}, strict, row_reward)
    held = [source for source in sources if not isinstance(source, (str, Path))]
    found: list[tuple[Place, bool]] = []
    for path in (Path(source) for source in sources if isinstance(source, (str, Path))):
        inside = places(path) if path.is_dir() else [place_of(path)]
        if not inside:
            kinds = ".json, .jsonl, .parquet, .csv, .traj, .eval, run folders"
            raise NotTrajectories(f"{path}: the folder holds no file that a reader knows ({kinds})")
        found += [(place, path.is_dir()) for place in inside]
    readings = [_held(held, *how)] if held else []
    foreign: list[Problem] = []
    for number, (place, walked) in enumerate(found, 1):
        progress(f"reading {place.name.name} ({number} of {len(found)})")
        try:
            readings.append(_read(place, *how))
        except (ValueError, OSError) as error:
            if not walked or strict:
                raise
            foreign.append(
                Problem(str(place.name), str(error).removeprefix(f"{place.name}: ").split(". Looked for")[0])
            )
    if not readings:
        why = "; ".join(f"{p.where}: {p.why}" for p in foreign[:3])
        raise NotTrajectories(f"{len(foreign)} files, none with trajectories ({why})")
    join_segments(readings)
    return Readings(readings, foreign)


def _read(place: Place, format: str, columns: Mapping[str, str], strict: bool, row_reward: str) -> Reading:
    reading = _reading(str(place.name), format, strict, row_reward)
    for path in place.files:
        _check(path)
    if place.together:
        found = (record for path in place.files for record in records(path, reading))
        reading.trajectories = list(trajectories(_counted(found, reading), reading, columns))
    for path in () if place.together else place.files:
        part = _reading(str(path), reading.format, strict, row_reward)
        part.trajectories = list(_one(path, part, columns))
        _add(reading, part)
    if place.verdict and not reading.trajectories:
        verdict = place.verdict
        out = verdict["out"] or "no transcript of the agent"
        reading.trajectories = [
            LoggedTrajectory(verdict["task"], verdict["name"], (), out=out, where=str(place.name))
        ]
        reading.format = reading.format or "atif"
    reading.trajectories = [with_verdict(t, place.verdict) for t in reading.trajectories]
    if not reading.trajectories:
        raise NotTrajectories(_nothing(reading))
    return reading


def _one(path: Path, reading: Reading, columns: Mapping[str, str]) -> Iterator[LoggedTrajectory]:
    try:
        log = reading.format == TEXT_FORMAT or (not reading.format and _looks_like_log(path))
    except DAMAGED as error:
        raise ValueError(f"{path}: the file is damaged or cut off ({error or 'no more data'})") from error
    if log:
        reading.format = TEXT_FORMAT
        with open_text(path, reading) as file:
            yield from transcripts.read_reflexion(file, reading)
    else:
        yield from trajectories(_counted(records(path, reading), reading), reading, columns)


def _held(
    values: Sequence[Any], format: str, columns: Mapping[str, str], strict: bool, row_reward: str
) -> Reading:
    """Records in memory: objects as they stand in a file, or lists of messages; a list of such is opened."""
    reading = _reading("in memory", format, strict, row_reward)
    opened = [
        v
        for value in values
        for v in ([value] if isinstance(value, Mapping) or is_messages(value) else value)
    ]
    located = (Located(f"item {number}", value) for number, value in enumerate(opened, 1))
    reading.trajectories = list(trajectories(_counted(located, reading), reading, columns))
    if not reading.trajectories:
        raise NotTrajectories(_nothing(reading))
    return reading


def _reading(name: str, format: str, strict: bool, row_reward: str) -> Reading:
    if format and format not in FORMATS and format != TEXT_FORMAT:
        raise ValueError(f"--format {format}: unknown; the formats are {', '.join([*FORMATS, TEXT_FORMAT])}")
    if row_reward not in ROW_REWARDS:
        raise ValueError(f"--row-reward {row_reward}: expected one of {', '.join(ROW_REWARDS)}")
    return Reading(name, format, strict=strict, row_reward=row_reward)


def _add(reading: Reading, part: Reading) -> None:
    reading.format = reading.format or part.format
    reading.trajectories += part.trajectories
    reading.problems += part.problems
    reading.skipped += part.skipped
    reading.records += part.records
    reading.notes += [note for note in part.notes if note not in reading.notes]
    reading.doubts += part.doubts
    reading.folded.update(part.folded)
    reading.beside = reading.beside or part.beside
    reading.fields = reading.fields or part.fields


def _counted(found: Iterable[Located], reading: Reading) -> Iterator[Located]:
    for record in found:
        reading.records += 1
        if reading.records == 1 and isinstance(record.value, Mapping):
            reading.fields = tuple(str(name)[:40] for name in record.value)
        yield record


def _check(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")


def _looks_like_log(path: Path) -> bool:
    if not is_text(path):
        return False
    with open_text(path) as file:
        return transcripts.is_reflexion(file.read(1 << 16))


def _nothing(reading: Reading) -> str:
    damaged = "; ".join(f"{p.where}: {p.why}" for p in reading.problems[:3])
    known = FORMATS.get(reading.format)
    looked = f"which reads {known.looks_for}" if known else ""
    seen = f"; its records have the fields {', '.join(reading.fields[:20])}" if reading.fields else ""
    return (
        f"{reading.file}: no trajectories found"
        + (f" by the reader {reading.format}, {looked}" if known else "")
        + (f" ({damaged})" if damaged else "")
        + seen
        + f". Looked for: {', '.join(FORMATS)}, reflexion. Name the columns of a flat table with --map "
        "task=COLUMN --map trajectory=COLUMN --map step=COLUMN --map observation=COLUMN --map action=COLUMN "
        "--map reward=COLUMN, or force a reader with --format"
    )
