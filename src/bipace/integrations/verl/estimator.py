# pyright: reportMissingImports=false
# verl lives in an environment of its own (it wants another transformers), where `make test-engines` runs
# this.
"""Every recipe of the core as an advantage estimator of verl.

verl calls an estimator with token rewards, a mask and the prompt group only: no trajectory, no step, no
observation, no hidden state. So the trainer hands those over in a context variable, row for row, and reads
the outcome back from it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from verl.trainer.ppo.core_algos import register_adv_est

from bipace.core.steps import Floats
from bipace.integrations.common.estimator import Credit, Estimator
from bipace.integrations.common.spread import floating
from bipace.integrations.verl.rows import engine_steps
from bipace.integrations.verl.settings import ESTIMATORS

__all__ = ["HANDED_OVER", "Handover", "estimate"]


@dataclass
class Handover:
    """What verl's call leaves out, in the row order of the batch; and what came of it.

    Attributes:
        keys: [N] row names.
        records: [N] what the agent loop wrote on each row.
        padding: [N] True on rows verl added.
        features: [N, D], or None.
        token_rewards: [N] sum of each row's token rewards before a KL penalty.
        estimator: the recipe, with the radius it holds between steps.
        iteration: steps before this one.
        credit: filled in by `estimate`.
    """

    keys: list[str]
    records: list[dict[str, Any]]
    padding: list[bool]
    features: NDArray[Any] | None
    token_rewards: Floats
    estimator: Estimator
    iteration: int = 0
    credit: Credit | None = None


HANDED_OVER: ContextVar[Handover] = ContextVar("bipace_rows")


def estimate(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, *, name: str, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages [N, L] and, for verl's log, the same as returns.

    Each step's value on all its response tokens.

    A KL penalty in the reward (algorithm.use_kl_in_reward) is summed over a row's tokens and added to that
    step's reward: it enters both the trajectory return and the return-to-go.

    Raises:
        RuntimeError: called by another trainer, which handed nothing over.
    """
    handed = HANDED_OVER.get(None)
    if handed is None:
        raise RuntimeError(
            f"algorithm.adv_estimator={name} needs bipace's trainer, which knows the steps; set "
            "trainer.v1.trainer_mode=bipace (and leave trainer.use_v1=true)"
        )
    penalties = token_level_rewards.double().sum(-1).cpu().numpy() - handed.token_rewards
    handed.credit = handed.estimator(
        engine_steps(handed.keys, handed.records, handed.padding),
        features=handed.features,
        added=penalties,
        iteration=handed.iteration,
    )
    values = floating(handed.credit.values, token_level_rewards)[:, None] * response_mask
    return values, values.clone()


for _name in ESTIMATORS:
    register_adv_est(_name)(partial(estimate, name=_name))
