"""What would go wrong quietly in verl is refused here, in plain words, before a job starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bipace.integrations.common import guards
from bipace.integrations.common.guards import select
from bipace.integrations.common.settings import Settings
from bipace.integrations.verl.settings import read_settings

__all__ = ["STRATEGIES", "TRAINER", "check_config", "check_version"]

TRAINER = "bipace"
STRATEGIES = ("fsdp", "fsdp2")


def check_version(version: str) -> None:
    """Raise ImportError unless this is verl 0.9.1 or a later 0.9.

    The plug points moved in 0.9 and will again.
    """
    guards.check_version("verl", version, (0, 9, 1), (0, 10, 0))


def check_config(config: Mapping[str, Any]) -> Settings:
    """The settings of a run, if verl's configuration can carry them.

    Args:
        config: verl's whole configuration as plain values.

    Raises:
        ValueError: naming the key, its value and the way out.
    """
    settings = read_settings(config.get("bipace"), select(config, "algorithm.adv_estimator"))
    mode = select(config, "trainer.v1.trainer_mode")
    if mode != TRAINER or not select(config, "trainer.use_v1", True):
        raise ValueError(
            f"trainer.v1.trainer_mode: {mode!r} with "
            f"trainer.use_v1={select(config, 'trainer.use_v1', True)}; set trainer.v1.trainer_mode={TRAINER} "
            "and trainer.use_v1=true"
        )
    if select(config, "reward.reward_model.enable", False):
        raise ValueError(
            "reward.reward_model.enable: true, but a step's reward is the environment's and a reward model's "
            "score would be ignored; set it to false"
        )
    if settings.captures:
        _check_capture(config)
    n = select(config, "actor_rollout_ref.rollout.n", 1)
    guards.check_group_size(settings.recipe(), n, "actor_rollout_ref.rollout.n")
    return settings


def _check_capture(config: Mapping[str, Any]) -> None:
    if select(config, "algorithm.rollout_correction.bypass_mode", False):
        raise ValueError(
            "algorithm.rollout_correction.bypass_mode: true skips the forward that computes old "
            "log-probabilities, and with it the hidden states; set it to false, or use a recipe without "
            "features (algorithm.adv_estimator=bipace_gigpo)"
        )
    strategy = select(config, "actor_rollout_ref.actor.strategy")
    if strategy not in STRATEGIES:
        raise ValueError(
            f"actor_rollout_ref.actor.strategy: {strategy!r}; hidden states are captured under "
            f"{' and '.join(STRATEGIES)} only. Choose one, or a recipe without features "
            "(algorithm.adv_estimator=bipace_gigpo)"
        )
