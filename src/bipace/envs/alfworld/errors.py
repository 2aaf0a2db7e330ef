"""The one error of this package."""

from __future__ import annotations

__all__ = ["GameFileError"]


class GameFileError(ValueError):
    """A game file that is malformed or outside what the engine supports.

    The message names the file, and the predicate, action or rule that is at fault.
    """
