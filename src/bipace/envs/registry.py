"""Suites by name: the shipped ones, a module's, or a file's."""

from __future__ import annotations

import inspect
from typing import Any

from bipace.core.names import unknown
from bipace.core.plugins import load_attribute
from bipace.envs.base import Suite

__all__ = ["SUITES", "get_suite"]

SUITES = {
    "textcraft": "bipace.envs.textcraft:suite",
    "webshop": "bipace.envs.webshop:suite",
    "webshop-synthetic": "bipace.envs.webshop:synthetic_suite",
    "alfworld": "bipace.envs.alfworld:suite",
}


def get_suite(name: str) -> Suite:
    """The suite with this name.

    Args:
        name: a shipped suite (a key of `SUITES`), "package.module:attribute" or "path/to/file.py:attribute".
            The attribute is a Suite or a function of no arguments that returns one.

    Raises:
        ValueError: no such suite, module, file or attribute, or the attribute gives no Suite; the message
            says which.

    Examples:
        >>> from bipace.envs.registry import get_suite
        >>> get_suite("alfworld").name
        'alfworld'
    """
    where = SUITES.get(name, name)
    if ":" not in where:
        own = "or one of your own: 'module:attribute' or 'path.py:attribute'"
        raise ValueError(f"{unknown('environment', name, SUITES)}; {own}")
    attribute = load_attribute(where, f"environment {name!r}")
    made = attribute if isinstance(attribute, Suite) else _made(name, attribute)
    if not isinstance(made, Suite):
        raise ValueError(
            f"environment {name!r}: {where.rpartition(':')[2]} gives a {type(made).__name__}, not a Suite "
            "(see bipace.envs.base)"
        )
    return made


def _made(name: str, attribute: Any) -> Any:
    if not callable(attribute):
        return attribute
    try:
        inspect.signature(attribute).bind()
    except TypeError as error:
        raise ValueError(
            f"environment {name!r}: it must be callable without arguments, but {error}"
        ) from error
    except ValueError:  # a built-in that does not tell its arguments
        pass
    return attribute()
