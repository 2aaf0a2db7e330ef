"""The arguments that `StepCreditTrainer` adds to GRPOTrainer's, typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from bipace.core.advantages import Recipe
from bipace.integrations.common.settings import CreditSettings, Section, read_settings

__all__ = ["StepSettings", "TrlSettings", "read_trl_settings"]

DELTA = 1e-4
"""What TRL adds to a group's deviation before it divides by it (grpo_trainer.py, TRL 1.16)."""


class StepSettings(Section):
    """Attributes of the environments, read after each call of their tools.

    None: the environment does not say.
    """

    reward: str | None = Field(default=None, description="attribute with the reward of the last call")
    done: str | None = Field(default=None, description="attribute that is true once the episode is over")
    state: str | None = Field(
        default=None, description="attribute with the state, in place of the text the model read"
    )
    executed: str | None = Field(
        default=None,
        description="attribute with the command that the last call executed, None where it was refused",
    )
    remainder: Literal["refuse", "last"] = Field(
        default="refuse",
        description="TRL's reward less the steps' rewards: refuse where it is not 0, or last turn",
    )
    stop: bool = Field(
        default=False, description="end a rollout that is done; TRL would ask the model once more"
    )


class TrlSettings(CreditSettings):
    """Everything the trainer reads beside TRL's own arguments."""

    steps: StepSettings = Field(default_factory=StepSettings)


def read_trl_settings(
    recipe: str | Recipe,
    credit: Mapping[str, Any] | None,
    features: Mapping[str, Any] | None,
    steps: Mapping[str, Any] | None,
) -> tuple[TrlSettings, Recipe]:
    """The settings and the recipe of a trainer.

    The recipe `grpo` divides by the deviation plus TRL's own 1e-4 unless `credit` says another `delta`, so
    that it is stock TRL to rounding; every other recipe has the options it has everywhere.

    Raises:
        ValueError: an unknown key, recipe or option; a value of another type or out of range; options beside
            a Recipe that is ready.
    """
    options = dict(credit or {})
    tree: dict[str, Any] = {"features": dict(features or {}), "steps": dict(steps or {})}
    if isinstance(recipe, Recipe):
        if options:
            raise ValueError(
                f"credit: {options!r} beside a Recipe that is ready; give the options to the function that "
                "makes it"
            )
        return read_settings(TrlSettings, tree), recipe
    if recipe == "grpo":
        options.setdefault("delta", DELTA)
    settings = read_settings(TrlSettings, {**tree, "estimator": recipe, "credit": options})
    if settings.steps.stop and settings.steps.done is None:
        raise ValueError(
            "steps.stop: true, but nobody says when an episode is over; set steps.done to an attribute"
        )
    return settings, settings.recipe()
