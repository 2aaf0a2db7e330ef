"""For users of verl-agent: the call shape of its step-level advantage, answered by the core.

verl-agent computes advantages in one call of `compute_gigpo_outcome_advantage`. The change in a fork is that call:

    from bipace.integrations.verl_agent import compute_advantage
    advantages, returns = compute_advantage(..., responses=texts, hidden_states=states, estimator="bipace")

with the arguments verl-agent passes already (`token_level_rewards`, `step_rewards`, `response_mask`, `anchor_obs`,
`index`, `traj_index`), the decoded responses and the hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.core.actions import ACTION_KEYS
from bipace.core.advantages import Recipe, Term, advantages
from bipace.core.estimators import recipe
from bipace.core.returns import LessPenalty, ReturnToGo, return_to_go, trajectory_return
from bipace.core.rows import build_batch
from bipace.core.steps import Floats, StepBatch

__all__ = ["compute_advantage"]


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
    estimator: str = "bipace",
    **credit: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages in verl-agent's layout: one row per model call, one value on all response tokens of a row.

    verl-agent has discounted already: `step_rewards` are its step returns (`compute_step_discounted_returns`) and the
    token rewards of a row sum to its episode's score. Both are taken as they are, so `gamma` has no meaning here.

    Args:
        token_level_rewards: [N, L]; the row sum is the trajectory's return.
        step_rewards: [N] return-to-go of each step.
        response_mask: [N, L].
        anchor_obs: [N] observations; anything `bipace.core.labels.label` can compare.
        index: [N] prompt group (uid).
        traj_index: [N] trajectory (traj_uid). Rows of a trajectory need no order.
        responses: [N] decoded texts, or for action_key="first_n" token ids [N, L].
        hidden_states: [N, D] at the last prompt token; the feature recipes need them.
        action_key: a key of `bipace.core.actions.ACTION_KEYS`.
        padding: [N] True on rows copied to fill the batch: they get 0 and enter no statistic.
        estimator: a recipe's name, module:function or file.py:function.
        credit: options of the recipe (eps, w, mode, fallback, convention, ...).

    Returns:
        (advantages, returns), both [N, L], as verl-agent's own function returns them.

    Raises:
        ValueError: gamma given; responses that do not fit the action key; what the core refuses.
    """
    if "gamma" in credit:
        raise ValueError("gamma: step_rewards are discounted already; set the discount where verl-agent computes them")
    n = len(index)
    own = recipe(estimator, **credit)
    to_go = np.asarray(step_rewards, np.float64).reshape(n)
    score = token_level_rewards.double().sum(-1).cpu().numpy()
    features = (
        hidden_states.detach().float().cpu().numpy() if isinstance(hidden_states, torch.Tensor) else hidden_states
    )
    rows = build_batch(
        task=list(index),
        trajectory=list(traj_index),
        t=_steps(index, traj_index, padding),
        reward=to_go.tolist(),
        observation=list(anchor_obs),
        action=_actions(responses, action_key, response_mask),
        features=features,
        padding=padding,
    )
    given = _with_returns(own, to_go[rows.kept], score[rows.kept], rows.batch)
    values = rows.scatter(advantages(rows.batch, given).values)
    spread = torch.from_numpy(values).to(token_level_rewards)[:, None] * response_mask
    return spread, spread.clone()


def _steps(index: Any, traj_index: Any, padding: Sequence[bool] | None) -> list[int]:
    """A step index for each row: rows of a trajectory are numbered as they come (the given returns carry the time)."""
    seen: dict[tuple[Any, Any, bool], int] = {}
    steps: list[int] = []
    for i, key in enumerate(zip(index, traj_index, strict=True)):
        place = (*key, bool(padding is not None and padding[i]))
        steps.append(seen.get(place, 0))
        seen[place] = steps[-1] + 1
    return steps


def _actions(responses: Any, action_key: str, response_mask: torch.Tensor) -> list[object]:
    if action_key not in ACTION_KEYS:
        raise ValueError(f"action_key: unknown {action_key!r}, expected one of {', '.join(ACTION_KEYS)}")
    if isinstance(responses, torch.Tensor):
        if action_key != "first_n":
            raise ValueError(f"responses: token ids, but action_key={action_key!r} reads text; pass decoded responses")
        tokens = [row[mask.bool()].tolist() for row, mask in zip(responses, response_mask, strict=True)]
        return [ACTION_KEYS[action_key]("", row).key for row in tokens]
    if action_key == "first_n":
        raise ValueError("responses: text, but action_key='first_n' reads token ids; pass the response tensor")
    return [ACTION_KEYS[action_key](str(text), ()).key for text in responses]


def _with_returns(own: Recipe, to_go: Floats, score: Floats, batch: StepBatch) -> Recipe:
    """The recipe reading the given returns in place of its own."""
    # A term sees the table in visit order, not in the rows' own.
    order = batch.order()
    by_kind = {trajectory_return: score[order], return_to_go: to_go[order]}

    def read(kind: Any, _: StepBatch) -> Floats:
        return by_kind[kind]

    def given(term: Term) -> Term:
        kind = trajectory_return if _reads(term.returns, trajectory_return) else return_to_go
        return Term(
            partial(read, kind), term.clusters, term.q, term.v, term.scale, term.fallback, term.weight, term.unit,
            term.lone,
        )  # fmt: skip

    parts = tuple(
        given(p) if isinstance(p, Term) else type(p)(tuple(given(t) for t in p.terms), p.weights, p.weight)
        for p in own.parts
    )
    return Recipe(own.name, parts, own.penalty)


def _reads(returns: Any, kind: Any) -> bool:
    """True where a return is `kind`, plain or inside a partial."""
    inner = returns.returns if isinstance(returns, LessPenalty) else returns
    return inner is kind or (kind is return_to_go and isinstance(inner, ReturnToGo))
