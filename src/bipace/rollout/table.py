"""From trajectories to the table of steps: the only place where rollout text becomes labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from bipace.core.actions import ACTION_KEYS, RefusedActions, executed_key
from bipace.core.features import FeaturesElsewhere
from bipace.core.rows import Rows, build_batch
from bipace.rollout.records import Step, Trajectory

__all__ = ["step_key", "step_rewards", "to_rows"]


def to_rows(
    trajectories: Sequence[Trajectory],
    *,
    features: NDArray[Any] | FeaturesElsewhere | None = None,
    action_key: str = "executed",
    refused_actions: RefusedActions = "many",
    reward_scale: float = 1.0,
    success_only: bool = False,
    invalid_action_penalty: float = 0.0,
) -> Rows:
    """Build the table: one row a step, trajectories in order, aborted ones dropped.

    The prompt group is the task id. The action key `executed` is the command that the environment executed;
    `action_tag` and `first_word` read the action that was sent to it (for a tagged response the text inside
    the tag); `first_n` and `tag_verb` read the response.

    Args:
        trajectories: the rollouts.
        features: [N, D], one vector a step in trajectory order, or None.
        action_key: a key of `bipace.core.actions.ACTION_KEYS`.
        refused_actions: under `executed`, whether refused actions are told apart by their text ("many") or
            are all one action ("one").
        reward_scale: reward unit of the estimator per unit of the environment.
        success_only: a solved trajectory's last step has reward 1, every other step 0, whatever the
            environment paid.
        invalid_action_penalty: cost of a response without the required form, on its own row.

    Returns:
        The table with the way back to raw rows (N = all steps of all trajectories).
    """
    flat = [
        (i, t, step) for i, trajectory in enumerate(trajectories) for t, step in enumerate(trajectory.steps)
    ]
    last = [t == len(trajectories[i].steps) - 1 for i, t, _ in flat]
    paid = [reward for trajectory in trajectories for reward in step_rewards(trajectory, success_only)]
    return build_batch(
        task=[trajectories[i].task for i, _, _ in flat],
        trajectory=[i for i, _, _ in flat],
        t=[t for _, t, _ in flat],
        reward=[reward_scale * reward for reward in paid],
        observation=[step.observation for _, _, step in flat],
        action=_keys(trajectories, action_key, refused_actions),
        terminated=[
            final and trajectories[i].terminated for (i, _, _), final in zip(flat, last, strict=True)
        ],
        truncated=[final and trajectories[i].truncated for (i, _, _), final in zip(flat, last, strict=True)],
        features=features,
        penalty=[invalid_action_penalty * (not step.parsed) for _, _, step in flat],
        aborted=[bool(trajectories[i].error) for i, _, _ in flat],
    )


def step_rewards(trajectory: Trajectory, success_only: bool) -> list[float]:
    """What each step is paid, in the environment's unit.

    success_only: 1 on the last step of a solved trajectory and 0 elsewhere, whatever the environment paid.
    """
    if not success_only:
        return [step.reward for step in trajectory.steps]
    last = len(trajectory.steps) - 1
    return [float(trajectory.won and t == last) for t in range(last + 1)]


def _keys(trajectories: Sequence[Trajectory], action_key: str, refused: RefusedActions) -> list[object]:
    if action_key not in ACTION_KEYS:
        raise ValueError(f"action_key: unknown {action_key!r}, expected one of {', '.join(ACTION_KEYS)}")
    keys: list[object] = []
    for trajectory in trajectories:
        spans = [s.tokens[a:b].tolist() for s in trajectory.sequences for a, b in s.spans]
        for step, tokens in zip(trajectory.steps, spans or [()] * len(trajectory.steps), strict=True):
            keys.append(step_key(action_key, step, tokens, refused))
    return keys


def step_key(
    action_key: str, step: Step, tokens: Sequence[int] = (), refused: RefusedActions = "many"
) -> object:
    """The action key of one recorded step; see `to_rows`. The tokens are read by `first_n` alone."""
    if action_key == "executed":
        return executed_key(step.action, step.executed, step.valid, refused)
    text = step.response if action_key in ("first_n", "tag_verb") else f"<action>{step.action}</action>"
    return ACTION_KEYS[action_key](text, tokens).key
