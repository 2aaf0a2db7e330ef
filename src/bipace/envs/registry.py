"""Suites by name: the shipped ones, a module's, or a file's."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from bipace.envs.base import Suite

__all__ = ["SUITES", "get_suite"]

SUITES = {
    "textcraft": "bipace.envs.textcraft:suite",
    "webshop": "bipace.envs.webshop:suite",
    "alfworld": "bipace.envs.alfworld:suite",
}


def get_suite(name: str) -> Suite:
    """The suite with this name.

    Args:
        name: a shipped suite (a key of `SUITES`), "package.module:attribute" or "path/to/file.py:attribute".
            The attribute is a Suite or a function of no arguments that returns one.

    Raises:
        ValueError: no such suite, module, file or attribute, or the attribute gives no Suite; the message says which.
    """
    location, colon, attribute = SUITES.get(name, name).rpartition(":")
    if not (location and colon and attribute):
        near = difflib.get_close_matches(name, SUITES, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown environment {name!r}; the nearest is {near!r} (shipped: {', '.join(SUITES)}; "
            "your own: 'module:attribute' or 'path.py:attribute')"
        )
    module = _file_module(name, Path(location)) if location.endswith(".py") else _named_module(name, location)
    if not hasattr(module, attribute):
        raise ValueError(f"environment {name!r}: {location} has no attribute {attribute!r}")
    found = getattr(module, attribute)
    made = found() if isinstance(found, type) or (not isinstance(found, Suite) and callable(found)) else found
    if not isinstance(made, Suite):
        raise ValueError(
            f"environment {name!r}: {attribute} gives a {type(made).__name__}, not a Suite (see bipace.envs.base)"
        )
    return made


def _named_module(name: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"environment {name!r}: there is no module {module!r}") from error


def _file_module(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"environment {name!r}: there is no file {str(path)!r}")
    resolved = path.resolve()
    identity = f"bipace_user_suite_{resolved.as_posix()}"
    spec = importlib.util.spec_from_file_location(identity, resolved)
    if spec is None or spec.loader is None:
        raise ValueError(f"environment {name!r}: {str(path)!r} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[identity] = module
    spec.loader.exec_module(module)
    return module
