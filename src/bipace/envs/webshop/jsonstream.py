"""Reads a large JSON array or object entry by entry, in memory bounded by the largest entry.

The product file of the full WebShop is several gigabytes: `json.load` would need many times that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["stream_array", "stream_object"]

CHUNK = 1 << 20  # characters read at a time
_BLANK = " \t\n\r"
_DELIMITERS = frozenset(",:]}" + _BLANK)


def stream_array(path: Path) -> Iterator[Any]:
    """The elements of the JSON array in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not UTF-8, not JSON, not an array, or ends early.
    """
    with path.open(encoding="utf-8") as file:
        reader = _Reader(file)
        yield from _entries(reader, "[", "]", reader.value)


def stream_object(path: Path) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of the JSON object in a file, in file order. Raises like `stream_array`."""
    with path.open(encoding="utf-8") as file:
        reader = _Reader(file)
        yield from _entries(reader, "{", "}", lambda: _pair(reader))


def _entries(reader: _Reader, opening: str, closing: str, entry: Any) -> Iterator[Any]:
    reader.expect(opening)
    if reader.peek() == closing:
        reader.expect(closing)
    else:
        while True:
            yield entry()
            if reader.peek() != ",":
                break
            reader.expect(",")
        reader.expect(closing)
    if reader.peek():
        raise ValueError(f"text after the closing {closing!r}")


def _pair(reader: _Reader) -> tuple[str, Any]:
    key = reader.value()
    if not isinstance(key, str):
        raise ValueError(f"{key!r} where a key in double quotes should be")
    reader.expect(":")
    return key, reader.value()


class _Reader:
    """A window on a text file, decoded from its start."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._ended = False

    def peek(self) -> str:
        """The next character that is not blank, or "" at the end of the file."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def expect(self, mark: str) -> None:
        """Consume this character. Raises ValueError where another stands, or the file ends."""
        found = self.peek()
        if found != mark:
            raise ValueError(
                f"{found!r} where {mark!r} should be" if found else f"the file ends where {mark!r} should be"
            )
        self._at += 1

    def value(self) -> Any:
        """Consume one JSON value."""
        self.peek()
        wanted = CHUNK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                # Either broken or cut by the window's edge. Doubling what is read between attempts keeps the
                # cost of a long value linear in its length.
                if not self._more(wanted):
                    raise
                wanted *= 2
                continue
            # A number cut by the window's edge decodes too ("1." of 1.5 as 1): only a delimiter shows its
            # end.
            if self._text[end : end + 1] in _DELIMITERS or not self._more():
                self._at = end
                return value

    def _more(self, characters: int = 0) -> bool:
        if self._ended:
            return False
        chunk = self._file.read(max(characters, CHUNK))
        self._ended = not chunk
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return bool(chunk)
