"""Which extra brings which package, by the installed package's own metadata, and what is missing."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version

__all__ = ["extra_of", "extras", "installed", "require"]

# Where several extras bring a package, the first of these is named: the smallest that makes the command run.
_SMALLEST_FIRST = (
    "cli",
    "textcraft",
    "webshop",
    "report",
    "analyze",
    "train",
    "lora",
    "models",
    "tensorboard",
    "wandb",
    "trackio",
    "trl",
    "vllm",
    "verl",
)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^]]*)\])?([^;]*);.*extra == ['\"]([\w-]+)['\"]")


def extras() -> dict[str, set[str]]:
    """Extra -> the packages it brings, those of the extras it includes too.

    Empty where bipace is not installed.
    """
    try:
        lines = requires("bipace") or []
    except PackageNotFoundError:
        return {}
    direct: dict[str, set[str]] = {}
    included: dict[str, set[str]] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is None or ("python_version" in line and sys.version_info >= (3, 11)):
            continue
        name, inner, _, extra = match.groups()
        direct.setdefault(extra, set())
        if name == "bipace":
            included.setdefault(extra, set()).update(part.strip() for part in (inner or "").split(","))
        else:
            direct[extra].add(name.lower())
    return {extra: _all_of(extra, direct, included) for extra in direct}


def installed(package: str) -> str | None:
    """The package's version, or None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extra_of(package: str) -> str | None:
    """The smallest extra that brings a package, or None where none does."""
    known = extras()
    return next((extra for extra in _SMALLEST_FIRST if package.lower() in known.get(extra, ())), None)


def require(command: str, extra: str) -> None:
    """Refuse a command whose packages are not all there, before it does any work.

    Args:
        command: how the user calls it, for the message: "bipace train".
        extra: the extra that brings what the command needs.

    Raises:
        ModuleNotFoundError: some are missing; the sentence names them and the extra.
    """
    missing = sorted(name for name in extras().get(extra, ()) if installed(name) is None)
    if missing:
        names = f"{', '.join(missing[:-1])} and {missing[-1]}" if len(missing) > 1 else missing[0]
        are = "are" if len(missing) > 1 else "is"
        raise ModuleNotFoundError(
            f"{command} needs {names}, which {are} not installed: pip install 'bipace[{extra}]'"
        )


def _all_of(extra: str, direct: dict[str, set[str]], included: dict[str, set[str]]) -> set[str]:
    found = set(direct.get(extra, ()))
    for inner in included.get(extra, ()):
        found |= _all_of(inner, direct, included)
    return found
