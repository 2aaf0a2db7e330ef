"""From bytes to records: compression, encodings, JSON lines, JSON documents, parquet; streamed.

A record is any JSON value with the place it came from. Nothing here knows a trainer.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from bipace.analyze.records import Reading

__all__ = ["Located", "is_text", "open_bytes", "open_text", "records"]

# Above this a JSON list is streamed item by item instead of being parsed whole.
WHOLE_DOCUMENT_BYTES = 48 << 20
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"


class Located(NamedTuple):
    """A record and its place in the file ("line 3", "item 7", "row 12")."""

    where: str
    value: Any


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
            raise ValueError(f"{path}: is zstd-compressed; pip install zstandard, or unpack it") from error
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
    """Every record of a JSON, JSON-lines or parquet file.

    A JSON list gives its items; a JSON object that holds one list under a usual name (data, trajectories, results,
    rollouts) gives that list's items; any other object is one record. Text that is no JSON gives nothing.
    """
    with path.open("rb") as file:
        if file.read(4) == _PARQUET:
            yield from _parquet(path)
            return
    first, second = _first_lines(path)
    if not first.startswith(("{", "[")):
        return
    if _is_json_lines(first, second):
        yield from _json_lines(path, reading)
    else:
        yield from _document(path, reading, first.startswith("["))


def _decodes(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and len(head) == 1 << 20
    return True


def _first_lines(path: Path) -> tuple[str, str]:
    found: list[str] = []
    with open_text(path) as file:
        for line in file:
            if line.strip():
                found.append(line.strip())
                if len(found) == 2:
                    break
    return (*found, "", "")[:2]  # pyright: ignore[reportReturnType]  (always two)


def _is_json_lines(first: str, second: str) -> bool:
    whole = _parses(first)
    if first.startswith("["):
        return whole and second.startswith("[")
    return whole or second.startswith("{")


def _parses(line: str) -> bool:
    try:
        json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True


def _json_lines(path: Path, reading: Reading) -> Iterator[Located]:
    lines = 0
    with open_text(path, reading) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            lines += 1
            try:
                value = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                reading.damaged(f"line {number}", f"not JSON ({error})")
                continue
            if lines == 1 and isinstance(value, dict) and _inner_list(value) is not None:
                yield from _items(_inner_list(value) or ())
            else:
                yield Located(f"line {number}", value)


def _document(path: Path, reading: Reading, is_list: bool) -> Iterator[Located]:
    with open_text(path, reading) as file:
        text = file.read(WHOLE_DOCUMENT_BYTES + 1)
    if len(text) <= WHOLE_DOCUMENT_BYTES:
        try:
            value = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            if not is_list:
                reading.damaged(f"line {getattr(error, 'lineno', 1)}", f"not JSON ({error})")
                return
        else:
            yield from _unwrapped(value)
            return
    yield from _streamed(path, reading, "item" if is_list else "")


def _streamed(path: Path, reading: Reading, prefix: str) -> Iterator[Located]:
    import ijson

    number = 0
    with open_bytes(path) as file:
        try:
            for number, value in enumerate(ijson.items(file, prefix, use_float=True), 1):
                if prefix:
                    yield Located(f"item {number}", value)
                else:
                    yield from _unwrapped(value)
        except ijson.JSONError as error:
            reading.damaged(f"after item {number}", f"the document is damaged or cut off ({str(error).splitlines()[0]})")


def _unwrapped(value: Any) -> Iterator[Located]:
    if isinstance(value, list):
        messages = value and all(isinstance(m, dict) and "role" in m for m in value)
        yield from [Located("item 1", value)] if messages else _items(value)
    elif isinstance(value, dict) and (inner := _inner_list(value)) is not None:
        yield from _items(inner)
    else:
        yield Located("item 1", value)


def _inner_list(value: dict[str, Any]) -> list[Any] | None:
    for name in ("data", "trajectories", "results", "rollouts", "simulations"):
        if isinstance(value.get(name), list):
            return value[name]
    return None


def _items(values: Iterable[Any]) -> Iterator[Located]:
    return (Located(f"item {number}", value) for number, value in enumerate(values, 1))


def _parquet(path: Path) -> Iterator[Located]:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: is a parquet file; pip install pyarrow") from error
    number = 0
    for batch in parquet.ParquetFile(path).iter_batches(batch_size=1024):
        for row in batch.to_pylist():
            number += 1
            yield Located(f"row {number}", row)
