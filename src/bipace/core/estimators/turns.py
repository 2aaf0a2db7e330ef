"""The turns of an episode are credited one by one."""

from __future__ import annotations

from typing import Literal

from bipace.core.advantages import Recipe, Term
from bipace.core.clustering import by_prompt_group
from bipace.core.terms import SCALES, Mode, assemble, require_known
from bipace.core.turns import TurnsToGo, by_turn, mean_with_absent, outcome

__all__ = ["mt_grpo"]

OUTCOMES = ("trajectory", "turn")


def mt_grpo(
    w: float = 1.0,
    gamma: float = 1.0,
    mode: Mode = "mean_std_norm",
    reward_at_end: Literal["trajectory", "turn"] = "trajectory",
) -> Recipe:
    """Outcome against the group's + w * rewards of the turns to come, each against its turn's.

    A(i, t) = (O_i - mu_O) / (sigma_O + 1e-6) + w sum_{l >= t} gamma^(l - t) (r_il - mu_l) / (sigma_l + 1e-6),
    O the last step's reward and mu_l, sigma_l over all trajectories of the group at turn l, in which those
    that have ended count as 0 and the sum runs on: the baseline is then the same whenever an episode stops
    (`bipace.core.turns`). A task that pays at the end alone has no turn rewards: there this is `grpo`, and
    reward_at_end="turn" makes it a step method. A group of one trajectory gives 0. Source: MT-GRPO, arXiv
    2505.11821, and its public code, which has two turns and adds 1e-4 to deviations; the general form and its
    baseline from verl's thread 7244.

    Args:
        w: weight of the turns.
        gamma: discount over turns.
        mode: division by the deviations, or none.
        reward_at_end: the last step's reward is the "trajectory"'s outcome, or one more "turn"'s reward.

    Examples:
        >>> import bipace
        >>> from bipace.core.sample import sample_batch
        >>> batch = sample_batch()
        >>> bipace.advantages(batch, bipace.recipe("mt_grpo")).values.round(3).tolist()
        [0.707, 0.707, -0.707, -0.707]
    """
    require_known("reward_at_end", reward_at_end, OUTCOMES)
    divided = require_known("mode", mode, SCALES) == "mean_std_norm"
    turns = Term(
        TurnsToGo(gamma, divided, reward_at_end), by_turn, v=mean_with_absent, weight=w, lone="compared"
    )
    if reward_at_end == "turn":
        return assemble("mt_grpo", turns, convention="paper")
    whole = Term(outcome, by_prompt_group, scale=SCALES[mode], unit="trajectory")
    return assemble("mt_grpo", whole, turns, convention="paper")
