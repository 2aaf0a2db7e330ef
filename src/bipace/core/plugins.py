"""A user's own recipe or environment.

An object found by `module:attribute` or `path/to/file.py:attribute`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["load_attribute"]


def load_attribute(where: str, subject: str) -> Any:
    """The object that `where` names. Its file or module is run.

    The user's own code, because the user named it.

    A file is run once per process; a second attribute of the same file comes from the same module.

    Args:
        where: "package.module:attribute" or "path/to/file.py:attribute".
        subject: what it is for, at the head of every message: "environment 'x'" or "recipe 'x'".

    Raises:
        ValueError: no such module, file or attribute; the message says which.
    """
    place, colon, attribute = where.rpartition(":")
    if not (place and colon and attribute):
        raise ValueError(f"{subject}: expected module:attribute or path/to/file.py:attribute")
    module = _file_module(subject, Path(place)) if place.endswith(".py") else _named_module(subject, place)
    if not hasattr(module, attribute):
        raise ValueError(f"{subject}: {place} has no attribute {attribute!r}")
    return getattr(module, attribute)


def _named_module(subject: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module that is there but misses one of its own imports is another mistake, with its own message.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"{subject}: there is no module {module!r}; give module:attribute or file.py:attribute"
        ) from error


def _file_module(subject: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{subject}: there is no file {str(path)!r}; give path/to/file.py:attribute")
    resolved = path.resolve()
    identity = f"bipace_user_{resolved.as_posix()}"
    known = sys.modules.get(identity)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(identity, resolved)
    if spec is None or spec.loader is None:
        raise ValueError(f"{subject}: {str(path)!r} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[identity] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[identity]
        raise
    return module
