"""The section `bipace` of verl's configuration: the keys of `bipace train` that verl has no place for.

A key means here what it means in the TOML of `bipace train`, so a section can be copied. What verl configures itself
(group size, learning rate, response length, clipping, KL loss) stays where verl has it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

from bipace.core.actions import ACTION_KEYS
from bipace.core.advantages import Recipe
from bipace.core.estimators import RECIPES, recipe

__all__ = ["ESTIMATORS", "EnvSettings", "FeatureSettings", "PromptSettings", "Settings", "read_settings"]

ESTIMATORS = {"bipace" if name == "bipace" else f"bipace_{name}": name for name in RECIPES}
"""Name in verl's registry -> recipe of the core; verl has a `grpo` and an `rloo` of its own."""


@dataclass(frozen=True)
class EnvSettings:
    """Where the agent acts.

    Attributes:
        suite: a shipped suite, module:attribute or path/to/file.py:attribute; importable on every node.
        max_steps: horizon in model calls; None is the suite's own.
        success_reward: the environment's reward 1.0 counts as this much.
    """

    suite: str = "textcraft"
    max_steps: int | None = None
    success_reward: float = 10.0


@dataclass(frozen=True)
class PromptSettings:
    """What the policy reads and how it answers (`bipace.rollout.prompts`)."""

    style: Literal["transcript", "window"] = "transcript"
    tagged: bool = False
    instructions: bool = False
    history_length: int = 2


@dataclass(frozen=True)
class FeatureSettings:
    """The hidden state: an index into hidden_states (negative allowed) or a fraction of the depth; the action key."""

    layer: int | float = 0.61
    action_key: str = "action_tag"


@dataclass(frozen=True)
class UpdateSettings:
    """What verl's update has no key for."""

    invalid_action_penalty: float = 0.1


@dataclass(frozen=True)
class Settings:
    """Everything the plug-in reads.

    Attributes:
        estimator: a recipe of the core, module:function or path/to/file.py:function.
        credit: options of the estimator, e.g. {"eps": 0.05}.
        env: where the agent acts.
        prompt: what it reads.
        features: which hidden state, which action key.
        update: the penalty of an invalid action.
    """

    estimator: str = "bipace"
    credit: dict[str, Any] = field(default_factory=dict[str, Any])
    env: EnvSettings = field(default_factory=EnvSettings)
    prompt: PromptSettings = field(default_factory=PromptSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)

    def recipe(self) -> Recipe:
        """The estimator with its options."""
        return recipe(self.estimator, **self.credit)

    @property
    def captures(self) -> bool:
        """True where the recipe compares hidden states, so that the engine must capture them."""
        return "features" in self.recipe().needs


def read_settings(section: Mapping[str, Any] | None, adv_estimator: str) -> Settings:
    """The settings of a run.

    Args:
        section: verl's `bipace` section as plain values; None or empty gives the defaults.
        adv_estimator: verl's algorithm.adv_estimator: a key of ESTIMATORS. It names the recipe, unless
            bipace.estimator names the user's own function.

    Raises:
        ValueError: another estimator; an unknown key (with the nearest known one); a value out of range.
    """
    if adv_estimator not in ESTIMATORS:
        raise ValueError(
            f"algorithm.adv_estimator: {adv_estimator!r} is no estimator of bipace; expected one of "
            + ", ".join(ESTIMATORS)
        )
    tree = dict(section or {})
    own = tree.get("estimator")
    if own is not None and ":" not in own:
        raise ValueError(
            f"bipace.estimator: {own!r}; name a shipped recipe through algorithm.adv_estimator "
            "(here: module:function or path/to/file.py:function)"
        )
    tree["estimator"] = own or ESTIMATORS[adv_estimator]
    settings: Settings = _build(Settings, tree, "bipace")
    if settings.prompt.style not in get_args(get_type_hints(PromptSettings)["style"]):
        raise ValueError(f"bipace.prompt.style: {settings.prompt.style!r}, expected transcript or window")
    if settings.features.action_key not in ACTION_KEYS:
        raise ValueError(
            f"bipace.features.action_key: {settings.features.action_key!r}, expected one of {', '.join(ACTION_KEYS)}"
        )
    if settings.env.max_steps is not None and settings.env.max_steps < 1:
        raise ValueError(f"bipace.env.max_steps: {settings.env.max_steps}, expected at least 1")
    if settings.env.success_reward <= 0:
        raise ValueError(f"bipace.env.success_reward: {settings.env.success_reward}, expected more than 0")
    settings.recipe()
    return settings


def _build(kind: Any, tree: Any, where: str) -> Any:
    if not isinstance(tree, Mapping):
        raise ValueError(f"{where}: {tree!r}, expected a section with keys")
    known = {f.name for f in fields(kind)}
    for key in tree:
        if key not in known:
            near = difflib.get_close_matches(str(key), sorted(known), n=1, cutoff=0.0)[0]
            raise ValueError(f"{where}.{key}: unknown key; did you mean {where}.{near}?")
    hints = get_type_hints(kind)
    values = {k: _build(hints[k], v, f"{where}.{k}") if is_dataclass(hints[k]) else v for k, v in tree.items()}
    return kind(**values)
