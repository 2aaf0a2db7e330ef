"""What would go wrong quietly in TRL is refused here, in plain words, before the first step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bipace.core.advantages import Recipe
from bipace.core.baselines import no_scale
from bipace.integrations.common.guards import check_group_size
from bipace.integrations.trl.listening import ATTRIBUTES
from bipace.integrations.trl.settings import StepSettings
from bipace.integrations.trl.turns import Rollout

__all__ = ["check_arguments", "check_first_batch", "check_sources"]


def check_arguments(args: Any, recipe: Recipe) -> None:
    """Raise ValueError where an argument of GRPOConfig needs one value a completion.

    Args:
        args: TRL's GRPOConfig.
        recipe: the estimator.
    """
    check_group_size(recipe, args.num_generations, "num_generations")
    way_out = {
        "use_liger_kernel": (True, "Liger's fused losses take one value a completion; leave it out"),
        "loss_type": (
            "vespo",
            "VESPO weighs whole completions by the sign of one value; use 'dapo' or 'grpo'",
        ),
        "importance_sampling_level": (
            "sequence",
            "one ratio a completion cannot be clipped turn by turn; use 'token'",
        ),
        "multi_objective_aggregation": (
            "normalize_then_sum",
            "a trajectory has no one reward then; use 'sum_then_normalize'",
        ),
        "scale_rewards": ("batch", "the recipe says what advantages are divided by; leave it out"),
    }
    for name, (value, reason) in way_out.items():
        if getattr(args, name, None) == value:
            raise ValueError(f"{name}: {value!r} with values by turn: {reason}")
    if args.off_policy_mask_threshold is not None:
        raise ValueError(
            f"off_policy_mask_threshold: {args.off_policy_mask_threshold} drops whole completions by the "
            "sign of one value; leave it out"
        )
    divides = any(term.scale is not no_scale for term in recipe.terms if term.unit == "trajectory")
    if args.scale_rewards == "none" and divides:
        raise ValueError(
            f"scale_rewards: 'none', but the recipe {recipe.name!r} divides whole returns by a deviation; "
            "leave it out, or take a recipe that does not divide (recipe='dr_grpo', or "
            "credit={'trajectory_mode': 'mean_norm'})"
        )


def check_sources(trainer: Any, settings: StepSettings) -> None:
    """Raise ValueError where settings name what the trainer's way of playing episodes does not have."""
    if trainer._is_vlm:
        raise ValueError(
            "processing_class: a processor of images; values by turn are for text, give a tokenizer"
        )
    named = [key for key in ATTRIBUTES if getattr(settings, key) is not None]
    if named and trainer.environment_factories is None:
        raise ValueError(
            f"steps.{named[0]}: {getattr(settings, named[0])!r}, but there is no environment_factory to read "
            "it from; a rollout_func returns step_rewards and states itself"
        )


def check_first_batch(rollouts: Sequence[Rollout], recipe: Recipe, by_observation: bool) -> None:
    """Raise ValueError where the first batch shows that the recipe will have nothing to compare.

    Args:
        rollouts: of all processes.
        recipe: the estimator.
        by_observation: True where it compares turns by what was read.
    """
    sizes = Counter(rollout.group for rollout in rollouts)
    if len(rollouts) > 1 and max(sizes.values()) == 1:
        raise ValueError(
            f"prompts: {len(rollouts)} rollouts and no two of one prompt, so {recipe.name!r} has nothing "
            "to compare; "
            "reset must give the same task for the same row of the data set (seed it with a column of the "
            "row)"
        )
    later = [turn.observation for rollout in rollouts for turn in rollout.turns[1:]]
    if by_observation and later and all(seen in ("", "None", None) for seen in later):
        raise ValueError(
            f"environment_factory: no tool gave any text, so {recipe.name!r} cannot tell states apart; "
            "return what the agent sees, set steps.state to an attribute that holds the state, or take "
            "recipe='bipace' (hidden states)"
        )
