"""JSON text -> values, one record at a time, in bounded memory: depth, length of a record, damaged ends.

A document is never parsed whole: a list gives its items, an object that holds one list under a usual name
gives that list's items together with the fields before it. Nesting is measured on the text, before anything
is built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

__all__ = ["MAX_DEPTH", "MAX_RECORD", "Document", "Unreadable", "parse"]

MAX_DEPTH = 100
# Characters of one record. Parsed values take some five times this.
MAX_RECORD = 96_000_000
_CHUNK = 1 << 20
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_OPEN, _CLOSE = np.isin(np.arange(256), list(b"[{")), np.isin(np.arange(256), list(b"]}"))
_CHANGE = _OPEN.astype(np.int8) - _CLOSE.astype(np.int8)


class Unreadable(ValueError):
    """Text that is no JSON record: damaged, cut off, nested too deeply or too long.

    The message says which.
    """


def parse(text: str) -> Any:
    """The value of one record.

    Raises:
        Unreadable: no JSON, deeper than MAX_DEPTH, or a number of more digits than Python reads.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Unreadable(f"not JSON ({error})") from error
    except RecursionError as error:
        raise Unreadable(_TOO_DEEP) from error
    _refuse_depth(text)
    return value


_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep, which no trajectory is"


def _refuse_depth(text: str) -> None:
    # Brackets inside of strings count at first, which costs little; only a suspect is looked at exactly.
    if _depth(text) > MAX_DEPTH and _depth(_STRING.sub("", text)) > MAX_DEPTH:
        raise Unreadable(_TOO_DEEP)


def _depth(text: str) -> int:
    deepest = now = 0
    for start in range(0, len(text), _CHUNK):
        piece = np.frombuffer(text[start : start + _CHUNK].encode("utf-8", "replace"), np.uint8)
        if len(piece):
            levels = now + np.cumsum(_CHANGE[piece], dtype=np.int64)
            deepest, now = max(deepest, int(levels.max())), int(levels[-1])
    return deepest


class Document:
    """A cursor over the text of one JSON document.

    Args:
        file: open text.
        inner: names under which an object may hold the list of records.
    """

    def __init__(self, file: IO[str], inner: tuple[str, ...]) -> None:
        self._file, self._inner = file, inner
        self._text, self._at, self._ended = "", 0, False
        self.fields: dict[str, Any] = {}
        self._decode = json.JSONDecoder().raw_decode

    def records(self) -> Iterator[Any]:
        """The items of the list, or of the object's inner list, or the one value that the document is.

        `fields` holds, from the first item on, what an object says before its inner list.

        Raises:
            Unreadable: what the text has instead of the next record.
        """
        if self._peek() == "[":
            yield from self._items()
        elif self._peek() == "{":
            yield from self._object()
        else:
            yield self._value()
        if self._peek():
            raise Unreadable("text after the end of the document")

    def _object(self) -> Iterator[Any]:
        self._take("{")
        fields, split = self.fields, False
        while self._peek() != "}":
            key = self._value()
            if not isinstance(key, str):
                raise Unreadable("an object whose key is no text")
            self._take(":")
            if key in self._inner and self._peek() == "[" and not split:
                held = self._items()
                first = next(held, None)
                # A list of numbers or texts under such a name is a field like any other.
                split = isinstance(first, (dict, list))
                if split:
                    yield first
                    yield from held
                else:
                    fields[key] = [*([] if first is None else [first]), *held]
            else:
                fields[key] = self._value()
            self._comma("}")
        self._take("}")
        if not split:
            yield fields

    def _items(self) -> Iterator[Any]:
        self._take("[")
        while self._peek() != "]":
            yield self._value()
            self._comma("]")
        self._take("]")

    def _comma(self, end: str) -> None:
        if self._peek() != end:
            self._take(",")
            if self._peek() == end:
                raise Unreadable(f"a comma before {end!r}")

    def _take(self, expected: str) -> None:
        found = self._peek()
        if found != expected:
            raise Unreadable(
                f"expected {expected!r}, found {found!r}" if found else "the text ends too early"
            )
        self._at += 1

    def _peek(self) -> str:
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended or not self._more(_CHUNK):
                return ""

    def _more(self, size: int) -> bool:
        piece = self._file.read(size)
        self._text, self._at = self._text[self._at :] + piece, 0
        self._ended = len(piece) < size
        return bool(piece)

    def _value(self) -> Any:
        """Decode the value at the cursor, reading on (twice as much each time) until it is whole."""
        if not self._peek():
            raise Unreadable("the text ends too early")
        while True:
            rest = len(self._text) - self._at
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError as error:
                raise Unreadable(_TOO_DEEP) from error
            except ValueError as error:
                if self._ended:
                    raise Unreadable(f"not JSON, or cut off ({_short(error)})") from error
            else:
                # A number may go on behind the end of the buffer.
                if end < len(self._text) or self._ended:
                    _refuse_depth(self._text[self._at : end])
                    self._at = end
                    return value
            if rest > MAX_RECORD:
                raise Unreadable(f"a record of more than {MAX_RECORD:,} characters")
            self._more(max(rest, _CHUNK))


def _short(error: Exception) -> str:
    return str(error).split(": line")[0]
