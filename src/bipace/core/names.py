"""Names that users write.

What to say of an unknown one, and former ones that are understood for one release.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["current_name", "nearest", "require_known", "unknown", "with_current_names"]


def nearest(name: str, known: Iterable[str], *, least: float = 0.6) -> str | None:
    """The known name that is most like this one, or None where none is.

    Args:
        name: as somebody wrote it.
        known: the names there are.
        least: similarity (difflib's ratio) below which a name is no suggestion; 0 always gives one.
    """
    return next(iter(difflib.get_close_matches(str(name), list(known), n=1, cutoff=least)), None)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence about an unknown name: the nearest known one, and all of them.

    Args:
        what: of what kind, e.g. "recipe"; it begins the sentence.
        name: as somebody wrote it.
        known: the names there are.
    """
    names = list(known)
    near = nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else "."
    return f"{what}: unknown {name!r}{hint} Known: {', '.join(names)}"


def require_known(what: str, value: str, known: Iterable[str]) -> str:
    """The value.

    Raises:
        ValueError: it is not known; `unknown` says so.
    """
    names = list(known)
    if value not in names:
        raise ValueError(unknown(what, value, names))
    return value


def current_name(name: str, former: Mapping[str, str]) -> str:
    """A name as it is today, with a FutureWarning where it is a former one.

    Args:
        name: of a setting, an option, a metric.
        former: former name -> name of today, for one release.
    """
    if name not in former:
        return name
    message = f"{name} is now called {former[name]}; the former name goes with the next release"
    warnings.warn(message, FutureWarning, stacklevel=4)
    return former[name]


def with_current_names(values: Mapping[str, Any], former: Mapping[str, str]) -> dict[str, Any]:
    """The values under the names of today; a former name gives a FutureWarning.

    Args:
        values: by name.
        former: former name -> name of today, for one release.

    Raises:
        ValueError: a value is given under both its names.
    """
    for old, new in former.items():
        if old in values and new in values:
            raise ValueError(f"{old}: is the former name of {new}, and both are given; keep {new}")
    return {current_name(name, former): value for name, value in values.items()}
