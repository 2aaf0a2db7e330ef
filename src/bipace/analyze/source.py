"""From bytes to records: compression, encodings, JSON lines, JSON documents, parquet, CSV, Inspect archives.

Streamed.

A record is any JSON value with the place it came from. Nothing here knows a trainer.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from bipace.analyze.records import Reading
from bipace.analyze.scan import MAX_RECORD, Document, Unreadable, parse

__all__ = ["Located", "is_text", "open_bytes", "open_text", "records", "suffixes"]

INNER = ("data", "trajectories", "results", "rollouts", "simulations", "samples")
_GZIP, _ZSTD, _PARQUET, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"PK\x03\x04"
DAMAGED = (OSError, EOFError, zlib.error, UnicodeError)


class Located(NamedTuple):
    """A record and its place in the file ("line 3", "item 7", "row 12")."""

    where: str
    value: Any


def suffixes(path: Path) -> list[str]:
    """The suffixes of a name in lower case, without those of a compression."""
    return [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zst")]


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, gzip and zstd unpacked on the fly (recognised by content, not by name).

    Raises:
        ValueError: a zstd file where the package zstandard is missing.
    """
    with path.open("rb") as file:
        magic = file.read(4)
    if magic.startswith(_GZIP):
        return io.BufferedReader(gzip.open(path))  # pyright: ignore[reportArgumentType]  (a GzipFile is raw enough)
    if magic == _ZSTD:
        try:
            import zstandard
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{path}: is zstd-compressed; pip install 'bipace[analyze]', or unpack it"
            ) from error
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(path.open("rb"), closefd=True))
    return path.open("rb")


def open_text(path: Path, reading: Reading | None = None) -> IO[str]:
    """Open as text: UTF-8, UTF-16 by its mark, else Windows-1252 with a note."""
    with open_bytes(path) as file:
        head = file.read(1 << 20)
    marked = head[:2] in (b"\xff\xfe", b"\xfe\xff")
    encoding = "utf-16" if marked else "utf-8-sig" if _decodes(head) else "cp1252"
    if encoding == "cp1252" and reading is not None:
        reading.notes.append("the text is not UTF-8; it was read as Windows-1252")
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, errors="replace", newline="\n")


def is_text(path: Path) -> bool:
    """False for a file that holds NUL bytes where text is expected."""
    with open_bytes(path) as file:
        head = file.read(1 << 16)
    return head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" not in head


def records(path: Path, reading: Reading) -> Iterator[Located]:
    """Every record of a JSON, JSON-lines, parquet, CSV or Inspect `.eval` file.

    A JSON list gives its items; a JSON object that holds one list under a usual name (INNER) gives that
    list's items; any other object is one record. Text that is no JSON gives nothing. What cannot be read is
    counted with its place.
    """
    with path.open("rb") as file:
        magic = file.read(4)
    try:
        if magic == _PARQUET:
            yield from _parquet(path, reading)
        elif magic == _ZIP:
            yield from _archive(path, reading)
        elif suffixes(path)[-1:] in ([".csv"], [".tsv"]):
            yield from _csv(path, reading)
        else:
            yield from _json(path, reading)
    except DAMAGED as error:
        reading.damaged(
            f"after record {reading.records}", f"the file is damaged or cut off ({error or 'no more data'})"
        )


def _decodes(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and len(head) == 1 << 20
    return True


def _json(path: Path, reading: Reading) -> Iterator[Located]:
    first, second, long = _first_lines(path)
    if not first.startswith(("{", "[")):
        return
    if not long and _is_json_lines(first, second):
        yield from _json_lines(path, reading)
    else:
        yield from _document(path, reading)


def _first_lines(path: Path) -> tuple[str, str, bool]:
    """The first two lines that hold something; True where the first is too long for a line of JSON lines."""
    found: list[str] = []
    with open_text(path) as file:
        while len(found) < 2 and (line := file.readline(MAX_RECORD)):
            if len(line) == MAX_RECORD:
                return line[:1], "", True
            if line.strip():
                found.append(line.strip())
    first, second = [*found, "", ""][:2]
    return first, second, False


def _is_json_lines(first: str, second: str) -> bool:
    """A file of one line is a document: its list, or its object's inner list, holds the records."""
    if not second:
        return False
    if first.startswith("["):
        return second.startswith("[") and _parses(first)
    return second.startswith("{") or _parses(first)


def _parses(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _json_lines(path: Path, reading: Reading) -> Iterator[Located]:
    number = 0
    with open_text(path, reading) as file:
        while line := file.readline(MAX_RECORD):
            number += 1
            if len(line) == MAX_RECORD and not line.endswith("\n"):
                while (rest := file.readline(1 << 20)) and not rest.endswith("\n"):
                    pass
                reading.damaged(
                    f"line {number}", f"longer than {MAX_RECORD:,} characters: no record is that long"
                )
            elif line.strip():
                try:
                    value = parse(line)
                except Unreadable as error:
                    reading.damaged(f"line {number}", str(error))
                else:
                    yield Located(f"line {number}", value)


def _document(path: Path, reading: Reading) -> Iterator[Located]:
    """The records of a JSON document; a list of messages is one record, a conversation."""
    number = 0
    with open_text(path, reading) as file:
        document = Document(file, INNER)
        reading.beside = document.fields
        chat: list[Any] = []
        try:
            for number, value in enumerate(document.records(), 1):
                if isinstance(value, dict) and "role" in value and len(chat) == number - 1:
                    chat.append(value)
                else:
                    yield Located(f"item {number}", value)
            if chat:
                yield Located("item 1", chat)
        except Unreadable as error:
            reading.damaged(f"after item {number}", str(error))


def _parquet(path: Path, reading: Reading) -> Iterator[Located]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: is a parquet file; pip install 'bipace[analyze]'") from error
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield Located(f"row {number}", row)
    except (pyarrow.ArrowException, OSError) as error:
        reading.damaged(
            f"after row {number}", f"the parquet file is damaged ({str(error).splitlines()[0][:200]})"
        )


def _csv(path: Path, reading: Reading) -> Iterator[Located]:
    """Rows of a table with a head line; a cell is text, an empty one None."""
    csv.field_size_limit(min(MAX_RECORD, sys.maxsize))
    with open_text(path, reading) as file:
        head = file.readline(MAX_RECORD)
        delimiter = "\t" if "\t" in head else ";" if ";" in head and "," not in head else ","
        file.seek(0)
        rows = csv.DictReader(file, delimiter=delimiter, restkey="", restval=None)
        try:
            for row in rows:
                yield Located(f"line {rows.line_num}", {k: v or None for k, v in row.items() if k})
        except csv.Error as error:
            reading.damaged(f"line {rows.line_num}", f"the table is damaged ({error})")


def _archive(path: Path, reading: Reading) -> Iterator[Located]:
    """An Inspect `.eval` file: a zip of `header.json` and `samples/ID_epoch_N.json`."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for head in ("header.json", "_journal/start.json"):
                if head in names and not reading.beside:
                    reading.beside = _member(archive, head)
            yield from _samples(archive, sorted(n for n in names if n.startswith("samples/")), reading)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        reading.damaged(f"after record {reading.records}", f"the archive is damaged or cut off ({error})")


def _samples(archive: zipfile.ZipFile, names: Iterable[str], reading: Reading) -> Iterator[Located]:
    for name in names:
        try:
            yield Located(name, _member(archive, name))
        except (Unreadable, zipfile.BadZipFile, *DAMAGED) as error:
            reading.damaged(name, str(error))


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    size = archive.getinfo(name).file_size
    if size > MAX_RECORD:
        raise Unreadable(f"{size:,} bytes: no record is that long")
    return parse(archive.read(name).decode("utf-8", "replace"))
