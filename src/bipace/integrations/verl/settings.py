"""The section `bipace` of verl's configuration.

What `bipace.integrations.common.settings` reads, named by verl's key.

What verl configures itself (group size, learning rate, response length, clipping, KL loss) stays where verl
has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bipace.core.estimators import RECIPES
from bipace.integrations.common.settings import Settings
from bipace.integrations.common.settings import read_settings as read

__all__ = ["ESTIMATORS", "read_settings"]

ESTIMATORS = {"bipace" if name == "bipace" else f"bipace_{name}": name for name in RECIPES}
"""Name in verl's registry -> recipe of the core; verl has a `grpo` and an `rloo` of its own."""


def read_settings(section: Mapping[str, Any] | None, adv_estimator: str) -> Settings:
    """The settings of a run.

    Args:
        section: verl's `bipace` section as plain values; None or empty gives the defaults.
        adv_estimator: verl's algorithm.adv_estimator: a key of ESTIMATORS. It names the recipe, unless
            bipace.estimator names the user's own function.

    Raises:
        ValueError: another estimator; what `bipace.integrations.common.settings.read_settings` refuses.
    """
    if adv_estimator not in ESTIMATORS:
        raise ValueError(
            f"algorithm.adv_estimator: {adv_estimator!r} is no estimator of bipace; expected one of "
            + ", ".join(ESTIMATORS)
        )
    if section is not None and not isinstance(section, Mapping):
        raise ValueError(f"bipace: {section!r}, expected a section with keys")
    tree = dict(section or {})
    own = tree.get("estimator")
    if isinstance(own, str) and ":" not in own:
        raise ValueError(
            f"bipace.estimator: {own!r}; name a shipped recipe through algorithm.adv_estimator (here: "
            "module:function or path/to/file.py:function)"
        )
    if own is None:
        tree["estimator"] = ESTIMATORS[adv_estimator]
    return read(Settings, tree, "bipace")
