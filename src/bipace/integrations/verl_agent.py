"""For users of verl-agent: the call shape of its step-level advantage, answered by the core.

verl-agent computes advantages in one call of `compute_gigpo_outcome_advantage`. The change in a fork is that
call:

    from bipace.integrations.verl_agent import compute_advantage
    advantages, returns = compute_advantage(..., responses=texts, hidden_states=states, estimator="bipace")

with the arguments verl-agent passes already (`token_level_rewards`, `step_rewards`, `response_mask`,
`anchor_obs`, `index`, `traj_index`), the decoded responses and the hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.core.actions import ACTION_KEYS
from bipace.core.advantages import Recipe, advantages
from bipace.core.estimators import recipe
from bipace.core.steps import StepBatch
from bipace.integrations.common.rows import EngineStep, to_table
from bipace.integrations.common.spread import floating

__all__ = ["compute_advantage"]


# long: verl-agent's own signature, and half of it says what the arguments are
def compute_advantage(
    *,
    token_level_rewards: torch.Tensor,
    step_rewards: torch.Tensor | NDArray[Any],
    response_mask: torch.Tensor,
    anchor_obs: Sequence[Any] | NDArray[Any],
    index: Sequence[Any] | NDArray[Any],
    traj_index: Sequence[Any] | NDArray[Any],
    responses: Sequence[str] | torch.Tensor,
    hidden_states: torch.Tensor | NDArray[Any] | None = None,
    action_key: str = "action_tag",
    padding: Sequence[bool] | None = None,
    step_index: Sequence[int] | NDArray[Any] | None = None,
    rewards: Sequence[float] | NDArray[Any] | None = None,
    estimator: str = "bipace",
    **credit: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages in verl-agent's layout: one row per model call, one value on all response tokens of a row.

    verl-agent has discounted already: `step_rewards` are its step returns (`compute_step_discounted_returns`)
    and the token rewards of a row sum to its episode's score. Both are taken as they are, so `gamma` has no
    meaning here: they are what the core's `return_to_go` and `trajectory_return` say, also where `eps="auto"`
    calibrates.

    A trajectory with a score or return that is not finite gets 0 and its siblings keep their statistics; a
    warning says how many rows that were.

    Args:
        token_level_rewards: [N, L]; the row sum is the trajectory's return.
        step_rewards: [N] return-to-go of each step.
        response_mask: [N, L].
        anchor_obs: [N] observations; anything `bipace.core.labels.label` can compare.
        index: [N] prompt group (uid).
        traj_index: [N] trajectory (traj_uid).
        responses: [N] decoded texts, or for action_key="first_n" token ids [N, L].
        hidden_states: [N, D] at the last prompt token; the feature recipes need them.
        action_key: a key of `bipace.core.actions.ACTION_KEYS`.
        padding: [N] True on rows copied to fill the batch: they get 0 and enter no statistic.
        step_index: [N] index of each step in its trajectory, from 0. With it rows may come in any order, and
            a row copied by `adjust_batch` is found. Without it the rows of a trajectory must lie side by side
            in the order they were played, as the rollout leaves them before `balance_batch`.
        rewards: [N] what the environment paid at each step (verl-agent's `rewards`), for a recipe with a
            return of its own.
        estimator: a recipe's name, module:function or file.py:function.
        credit: options of the recipe (eps, w, mode, fallback, convention, ...).

    Returns:
        (advantages, returns), both [N, L], as verl-agent's own function returns them; float32 where the token
        rewards are whole numbers.

    Raises:
        ValueError: gamma given; rows whose order is unknown; responses that do not fit the action key; a
            recipe that reads step rewards, and none given; what the core refuses.
    """
    if "gamma" in credit:
        raise ValueError(
            "gamma: step_rewards are discounted already; set the discount where verl-agent computes them"
        )
    n = len(index)
    filler = [False] * n if padding is None else [bool(p) for p in padding]
    order = (
        _in_playing_order(index, traj_index, filler)
        if step_index is None
        else np.asarray(step_index).tolist()
    )
    columns = {
        "group": list(index),
        "trajectory": list(traj_index),
        "t": order,
        "observation": list(anchor_obs),
        "action": _actions(responses, action_key, response_mask),
        "reward": [0.0] * n if rewards is None else np.asarray(rewards, np.float64).reshape(-1).tolist(),
        "padding": filler,
    }
    for name, column in columns.items():
        if len(column) != n:
            raise ValueError(f"{name}: {len(column)} entries, expected {n}, one per row as in index")
    steps = [
        EngineStep(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]
    table, _ = to_table(
        steps,
        features=_host(hidden_states),
        to_go=np.asarray(_host(step_rewards)).reshape(-1),
        whole=token_level_rewards.double().sum(-1).cpu().numpy(),
    )
    own = recipe(estimator, **credit)
    if rewards is None and _reads_rewards(own, table.batch):
        raise ValueError(
            f"rewards: None, but a return of {estimator!r} reads the step rewards, and verl-agent hands "
            "over returns; "
            'pass rewards=data.non_tensor_batch["rewards"]'
        )
    values = table.scatter(advantages(table.batch, own).values)
    spread = floating(values, token_level_rewards)[:, None] * response_mask
    return spread, spread.clone()


def _host(values: Any) -> Any:
    """A tensor as an array: bfloat16, which numpy has not, in float32."""
    if not isinstance(values, torch.Tensor):
        return values
    held = values.detach().cpu()
    return (held if held.dtype in (torch.float32, torch.float64) else held.float()).numpy()


def _in_playing_order(index: Any, traj_index: Any, padding: Sequence[bool]) -> list[int]:
    """A step index for each row by place, where rows can still be in the order they were played."""
    seen: dict[tuple[Any, Any], int] = {}
    last: tuple[Any, Any] | None = None
    steps: list[int] = []
    for key, fills in zip(zip(index, traj_index, strict=True), padding, strict=True):
        if fills:
            steps.append(0)
            continue
        if key in seen and key != last:
            raise ValueError(
                f"step_index: None, but the rows of trajectory {key[1]!r} do not lie side by side: they were "
                "re-ordered (balance_batch) or copied to fill the batch (adjust_batch), and their steps "
                "are unknown; "
                "pass step_index, written where the rollout collects its rows"
            )
        last = key
        steps.append(seen.get(key, 0))
        seen[key] = steps[-1] + 1
    return steps


def _actions(responses: Any, action_key: str, response_mask: torch.Tensor) -> list[object]:
    if action_key not in ACTION_KEYS:
        raise ValueError(f"action_key: unknown {action_key!r}, expected one of {', '.join(ACTION_KEYS)}")
    if isinstance(responses, torch.Tensor):
        if action_key != "first_n":
            raise ValueError(
                f"responses: token ids, but action_key={action_key!r} reads text; pass decoded responses"
            )
        tokens = [row[mask.bool()].tolist() for row, mask in zip(responses, response_mask, strict=True)]
        return [ACTION_KEYS[action_key]("", row).key for row in tokens]
    if action_key == "first_n":
        raise ValueError(
            "responses: text, but action_key='first_n' reads token ids; pass the response tensor"
        )
    return [ACTION_KEYS[action_key](str(text), ()).key for text in responses]


def _reads_rewards(own: Recipe, batch: StepBatch) -> bool:
    """True where a return of the recipe changes with the step rewards (the two of the core do not)."""
    other = replace(batch, reward=batch.reward + 1.0)
    return any(not np.array_equal(term.returns(batch), term.returns(other)) for term in own.terms)
