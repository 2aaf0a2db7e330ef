"""What a user may set of any adapter: the keys of `bipace train` that an engine has no place for, typed.

A key means here what it means in the TOML of `bipace train`, so a section can be copied. What an engine configures
itself (group size, learning rate, response length, clipping) stays where the engine has it. A value of another type is
refused and never converted: "no" is not false, "last" is no layer.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from bipace.core.actions import ACTION_KEYS
from bipace.core.advantages import Recipe
from bipace.core.calibrate import open_directions
from bipace.core.estimators import recipe

__all__ = [
    "CreditSettings",
    "EnvSettings",
    "FeatureSettings",
    "PromptSettings",
    "Settings",
    "UpdateSettings",
    "read_settings",
]

Made = TypeVar("Made", bound="CreditSettings")


class _Section(BaseModel):
    """Unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class EnvSettings(_Section):
    """Where the agent acts."""

    suite: str = Field(
        default="textcraft", description="a shipped suite, module:attribute or file.py:attribute, on every node"
    )
    max_steps: int | None = Field(default=None, ge=1, description="horizon in model calls; null: the suite's own")
    success_reward: float = Field(default=10.0, gt=0, description="the environment's reward 1.0 counts as this much")
    reward: Literal["score", "success"] = Field(
        default="score", description="score: what the environment pays; success: 1 for a solved task alone"
    )


class PromptSettings(_Section):
    """What the policy reads and how it answers (`bipace.rollout.prompts`)."""

    style: Literal["transcript", "window"] = Field(default="transcript", description="one growing chat, or one message")
    tagged: bool = Field(default=False, description="answers use <think> and <action> tags")
    instructions: bool = Field(default=False, description="put the suite's rules at the head of the prompt")
    history_length: int = Field(default=2, ge=0, description="past (observation, action) pairs in window style")
    lowercase: bool = Field(default=False, description="lower-case an action before the environment sees it")
    strict: bool = Field(default=False, description="the form of a response includes its thought (verl-agent's)")


class FeatureSettings(_Section):
    """The state features of the feature recipes: a hidden state at the last prompt token."""

    layer: int | float = Field(
        default=0.61, description="index into hidden_states (negative allowed) or fraction of the depth"
    )
    calibrate_every: int = Field(
        default=1, ge=0, description='steps between choices of credit.eps="auto"; 0: once, in the first'
    )
    action_key: str = Field(
        default="executed", description="when two actions count as equal: " + ", ".join(ACTION_KEYS)
    )
    refused_actions: Literal["many", "one"] = Field(
        default="many", description="under executed: refused actions are told apart by their text, or are all one"
    )

    @field_validator("layer")
    @classmethod
    def _a_layer(cls, value: int | float) -> int | float:
        if isinstance(value, float) and not 0 < value < 1:
            raise ValueError("a whole number, or a fraction between 0 and 1")
        return value

    @field_validator("action_key")
    @classmethod
    def _known_key(cls, value: str) -> str:
        if value not in ACTION_KEYS:
            raise ValueError(f"one of {', '.join(ACTION_KEYS)}")
        return value


class UpdateSettings(_Section):
    """What an engine's update has no key for."""

    invalid_action_penalty: float = Field(
        default=0.1, ge=0, description="off the advantage of a response without valid form"
    )


class CreditSettings(_Section):
    """What every adapter reads: the recipe, its options, the features it compares, the penalty."""

    estimator: str = Field(default="bipace", description="a recipe, module:function or path/to/file.py:function")
    credit: dict[str, Any] = Field(default_factory=dict, description="options of the estimator, e.g. {eps: 0.05}")
    features: FeatureSettings = Field(default_factory=FeatureSettings)
    update: UpdateSettings = Field(default_factory=UpdateSettings)

    def recipe(self) -> Recipe:
        """The estimator with its options."""
        return recipe(self.estimator, **self.credit)

    @property
    def captures(self) -> bool:
        """True where the recipe compares hidden states, so that the engine must capture them."""
        return "features" in self.recipe().needs


class Settings(CreditSettings):
    """Those of an adapter that also plays the episodes: the environment and the prompt beside them."""

    env: EnvSettings = Field(default_factory=EnvSettings)
    prompt: PromptSettings = Field(default_factory=PromptSettings)


def read_settings(kind: type[Made], section: Mapping[str, Any] | None, where: str = "") -> Made:
    """The settings in a section of an engine's own configuration.

    Args:
        kind: `CreditSettings`, `Settings` or an adapter's own extension of them.
        section: plain values; None or empty gives the defaults.
        where: what stands before a key in messages, e.g. "bipace".

    Raises:
        ValueError: an unknown key (with the nearest known one); a value of another type or out of range; what the
            recipe refuses. The message names key and value.
    """
    tree = {} if section is None else section
    _refuse_unknown(kind, tree, where)
    try:
        made = kind.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        # A union's error also names the member that refused; the key ends where the tree does.
        path = [str(part) for part in first["loc"] if not isinstance(part, int)]
        key = ".".join([where, *_within(kind, path)]).strip(".")
        raise ValueError(f"{key}: {first['input']!r}, expected {_expected(first)}") from error
    if open_directions(made.recipe()) is not None:
        key = f"{where}.credit.eps".strip(".")
        raise ValueError(
            f"{key}: 'calibrate' is chosen from the first rollouts of bipace train; here give a number "
            '(`bipace calibrate ACTOR` prints the pair of layer and eps to take), or "auto"'
        )
    return made


_WORDS = {
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a section with keys",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "value_error": "{error}",
}


def _expected(error: Any) -> str:
    """What an error of pydantic expected, in words without its jargon."""
    return str(_WORDS.get(error["type"], error["msg"])).format(**error.get("ctx", {}))


def _within(kind: Any, path: Sequence[str]) -> list[str]:
    """The leading parts of an error's path that are keys."""
    if not path or not _is_section(kind) or path[0] not in kind.model_fields:
        return []
    return [path[0], *_within(kind.model_fields[path[0]].annotation, path[1:])]


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _refuse_unknown(kind: type[BaseModel], tree: Any, where: str) -> None:
    if not isinstance(tree, Mapping):
        raise ValueError(f"{where or 'settings'}: {tree!r}, expected a section with keys")
    known = kind.model_fields
    for key, value in tree.items():
        place = f"{where}.{key}" if where else str(key)
        if key not in known:
            near = difflib.get_close_matches(str(key), sorted(known), n=1, cutoff=0.0)[0]
            raise ValueError(f"{place}: unknown key; did you mean {place.removesuffix(str(key))}{near}?")
        annotation: Any = known[key].annotation
        if _is_section(annotation):
            _refuse_unknown(annotation, value, place)
