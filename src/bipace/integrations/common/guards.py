"""Refusals that every engine needs: its version, and settings that would go wrong quietly.

Each names the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bipace.core.advantages import Recipe

__all__ = ["check_group_size", "check_version", "select"]

Version = tuple[int, int, int]


def check_version(engine: str, version: str, low: Version, below: Version) -> None:
    """Raise ImportError unless low <= version < below.

    The places an adapter plugs into move between versions.

    Args:
        engine: name of the engine, which is also the extra that pins it: `bipace[engine]`.
        version: what is installed.
        low: first version the adapter was tested with.
        below: first version it is not for.

    Examples:
        >>> from bipace.integrations.common.guards import check_version
        >>> check_version("engine", "2.1.0", (2, 0, 0), (3, 0, 0))
        >>> check_version("engine", "3.0.1", (2, 0, 0), (3, 0, 0))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ImportError: bipace's adapter is written for engine >=2.0.0,<3.0 and this is engine 3.0.1; ...
    """
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    found = tuple(int(part or 0) for part in match.groups()) if match else None
    if found is None or not low <= found < below:
        wanted = f">={'.'.join(map(str, low))},<{'.'.join(map(str, below[:2]))}"
        raise ImportError(
            f"bipace's adapter is written for {engine} {wanted} and this is {engine} {version}; install "
            f"bipace[{engine}], which pins it"
        )


def check_group_size(recipe: Recipe, size: int, key: str) -> None:
    """Raise ValueError where a group of one trajectory would leave a step-level recipe without peers.

    Args:
        recipe: the estimator.
        size: trajectories of a prompt group.
        key: the engine's own key for it.

    Examples:
        >>> import bipace
        >>> from bipace.integrations.common.guards import check_group_size
        >>> check_group_size(bipace.recipe("gigpo"), 8, "rollout.n")
        >>> check_group_size(bipace.recipe("gigpo"), 1, "rollout.n")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: rollout.n: 1 with the step-level recipe 'gigpo': ...
    """
    if size == 1 and recipe.compares_steps:
        raise ValueError(
            f"{key}: 1 with the step-level recipe {recipe.name!r}: in a group of one trajectory a step has "
            f"no peers and every advantage would be 0; use {key}=8"
        )


def select(tree: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """The value at a dotted path, or the default where a section is missing or null.

    Examples:
        >>> from bipace.integrations.common.guards import select
        >>> select({"rollout": {"n": 8}}, "rollout.n")
        8
    """
    value: Any = tree
    for part in path.split("."):
        if not isinstance(value, Mapping) or value.get(part) is None:
            return default
        value = value[part]
    return value
