"""What a failure means to whoever called: one sentence on stderr and a distinct exit status, no traceback."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

from bipace.train.extras import extra_of

__all__ = ["BROKE_DOWN", "BUG", "INTERRUPTED", "MACHINE", "NO", "WRONG_INPUT", "explain", "fail"]

NO, WRONG_INPUT, BROKE_DOWN, MACHINE, BUG, INTERRUPTED, CLOSED = 1, 2, 3, 4, 70, 130, 141
"""1: the answer is no; 2: wrong input; 3: the run broke down; 4: disk, permission, network; 70: a bug.

130: Ctrl-C.
"""

_PACKAGES = {"sklearn": "scikit-learn", "tomli_w": "tomli-w", "Stemmer": "PyStemmer", "PIL": "pillow"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain(error: BaseException) -> tuple[str, int]:
    """One sentence, and the exit status, for what a command raised."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "", CLOSED  # whoever read our output has gone
    if isinstance(error, ModuleNotFoundError):
        return _missing(error), WRONG_INPUT
    if isinstance(error, RecursionError):
        return "the input is nested too deeply to be read", WRONG_INPUT
    if isinstance(error, MemoryError):
        return "the machine has not enough memory; take a smaller input, model or rollout.parallel", MACHINE
    if isinstance(error, UnicodeError):
        return f"the input is not text in UTF-8 ({error})", WRONG_INPUT
    if isinstance(error, ValueError):
        return _one_line(str(error)), WRONG_INPUT
    if isinstance(error, OSError):
        return _of_the_machine(error)
    if type(error).__name__ in ("NonFiniteError", "NothingPlayed", "RunStopped", "EnvironmentLost"):
        return _one_line(str(error)), BROKE_DOWN
    frames = traceback.extract_tb(error.__traceback__)
    where = f", in {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
    what = f"{type(error).__name__}: {_one_line(str(error)) or 'no message'}{where}"
    return f"{what}; set BIPACE_TRACEBACK=1 to see all of it", BUG


def fail(error: BaseException) -> int:
    """Print the sentence and return the status; with BIPACE_TRACEBACK set, the traceback too."""
    message, status = explain(error)
    if os.environ.get("BIPACE_TRACEBACK"):
        traceback.print_exception(error)
    if message:
        print(message if status == INTERRUPTED else f"error: {message}", file=sys.stderr)
    return status


def _of_the_machine(error: OSError) -> tuple[str, int]:
    where = f" {error.filename}" if error.filename else ""
    if error.errno in _FULL:
        return (
            f"no space left on the disk while writing{where or ' the results'}; free some space and run it "
            "again (a training run goes on with --resume from its last whole checkpoint)",
            MACHINE,
        )
    known = {
        errno.ENOENT: (f"there is no file or folder{where}", WRONG_INPUT),
        errno.EISDIR: (f"{error.filename} is a folder, and a file is wanted", WRONG_INPUT),
        errno.ENOTDIR: (f"a part of the path{where} is a file, and a folder is wanted", WRONG_INPUT),
        errno.EACCES: (f"no permission to use{where}", MACHINE),
        errno.EROFS: (f"{error.filename} lies on a file system that cannot be written to", MACHINE),
        errno.ENAMETOOLONG: (f"the name{where[:80]} is too long for the file system", WRONG_INPUT),
    }
    if error.errno in known and error.filename:
        return known[error.errno]
    return _one_line(str(error)), WRONG_INPUT if isinstance(error, FileNotFoundError) else MACHINE


def _missing(error: ModuleNotFoundError) -> str:
    """The extra that brings the package, where the error does not say so itself."""
    text = _one_line(str(error))
    if error.name is None or "pip install" in text:
        return text
    package = _PACKAGES.get(error.name.split(".")[0], error.name.split(".")[0].replace("_", "-"))
    extra = extra_of(package)
    if extra is None:
        return f"{text}; install the package that brings it"
    return f"this command needs {package}, which is not installed: pip install 'bipace[{extra}]'"


def _one_line(text: str) -> str:
    return " ".join(text.split())
