"""What a user may set of any adapter: the keys of `bipace train` that an engine has no place for.

They are those of `bipace.config`, so a section can be copied. What an engine configures itself (group size,
learning rate, response length, clipping) stays where the engine has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from bipace.config import ConfigError, CreditSettings, Section, Settings, read
from bipace.core.calibrate import open_directions

__all__ = ["CreditSettings", "Section", "Settings", "read_settings"]

Made = TypeVar("Made", bound=CreditSettings)


def read_settings(kind: type[Made], section: Mapping[str, Any] | None, where: str = "") -> Made:
    """The settings in a section of an engine's own configuration.

    Args:
        kind: `CreditSettings`, `Settings` or an adapter's own extension of them.
        section: plain values; None or empty gives the defaults.
        where: what stands before a key in messages, e.g. "bipace".

    Raises:
        ConfigError: a ValueError; see `bipace.config.read`. Also `credit.eps="calibrate"`, which only `bipace
            train` can choose.

    Examples:
        >>> from bipace.integrations.common.settings import CreditSettings, read_settings
        >>> read_settings(CreditSettings, {"credit": {"w": 2.0}}, "bipace").credit
        {'w': 2.0}
    """
    made = read(kind, section, where)
    if open_directions(made.recipe()) is not None:
        key = f"{where}.credit.eps".strip(".")
        raise ConfigError(
            f"{key}: 'calibrate' is chosen from the first rollouts of bipace train; here give a number "
            '(`bipace calibrate ACTOR` prints the pair of layer and eps to take), or "auto"'
        )
    return made
