"""Tabular decision processes whose states speak: exact values for every policy, to hold estimators against.

A `TextMDP` is a finite MDP in which a state shows one of its texts. Several texts for one state are
paraphrases (an exact text match splits the state); one text for several states is aliasing (it merges them).
All values are exact: linear solves for the discounted process, backward induction for a horizon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core.steps import Bools, Floats, Ints

__all__ = [
    "TextMDP",
    "action_values",
    "advantage",
    "chain",
    "horizon_values",
    "optimal_policy",
    "state_values",
    "uniform_policy",
]

_ROUNDING = 1e-9  # how far a row of probabilities may be from summing to 1


@dataclass(frozen=True, eq=False)
class TextMDP:
    """A finite Markov decision process with text observations, read-only.

    Attributes:
        transition: [S, A, S] probability of the next state.
        reward: [S, A] reward of acting; deterministic, in the environment's unit.
        start: [S] probability of the first state.
        terminal: [S] bool; entering such a state ends the episode. Its transition and reward rows are
            replaced by staying there for nothing, so that every solve may treat it as an ordinary state of
            value 0.
        texts: per state, the texts it may show, at least one.
        actions: names of the A actions.
        gamma: discount in [0, 1].

    Raises:
        ValueError: naming the field, the offending entry and what was expected.

    Examples:
        >>> from bipace.theory.textworlds import corridor
        >>> corridor(3).gamma
        0.95
    """

    transition: Floats
    reward: Floats
    start: Floats
    terminal: Bools
    texts: tuple[tuple[str, ...], ...]
    actions: tuple[str, ...]
    gamma: float = 0.95

    def __post_init__(self) -> None:
        terminal = np.array(self.terminal, np.bool_)
        states, actions = len(terminal), len(self.actions)
        transition = _shaped("transition", self.transition, (states, actions, states))
        reward = _shaped("reward", self.reward, (states, actions))
        transition[terminal], reward[terminal] = np.eye(states)[terminal][:, None, :], 0.0
        start = _shaped("start", self.start, (states,))
        for name, rows in (("transition", transition), ("start", start)):
            _require_distributions(name, rows)
        if len(self.texts) != states or not all(self.texts):
            raise ValueError(
                f"texts: {len(self.texts)} entries for {states} states; give each at least one text"
            )
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma: {self.gamma}, expected a discount in [0, 1]")
        for name, value in (
            ("transition", transition),
            ("reward", reward),
            ("start", start),
            ("terminal", terminal),
        ):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.terminal)

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.actions)


def uniform_policy(mdp: TextMDP) -> Floats:
    """[S, A] every action equally likely.

    Examples:
        >>> from bipace.theory.mdp import uniform_policy
        >>> from bipace.theory.textworlds import corridor
        >>> uniform_policy(corridor(3)).shape
        (4, 5)
    """
    return np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)


def chain(mdp: TextMDP, policy: Floats) -> tuple[Floats, Floats]:
    """The Markov chain under a policy: transitions P [S, S] and rewards r [S].

    Args:
        mdp: the process.
        policy: [S, A] action probabilities.

    Raises:
        ValueError: a policy of another shape, or rows that are no distributions.

    Examples:
        >>> from bipace.theory.mdp import chain, uniform_policy
        >>> from bipace.theory.textworlds import corridor
        >>> mdp = corridor(3)
        >>> moves, rewards = chain(mdp, uniform_policy(mdp))
        >>> moves.shape, rewards.shape
        ((4, 4), (4,))
    """
    policy = _shaped("policy", policy, (mdp.n_states, mdp.n_actions))
    _require_distributions("policy", policy)
    return np.einsum("sa,sat->st", policy, mdp.transition), (policy * mdp.reward).sum(axis=1)


def state_values(mdp: TextMDP, policy: Floats) -> Floats:
    """V = (I - gamma P)^-1 r over an unbounded horizon; [S], 0 in terminal states.

    Raises:
        ValueError: gamma = 1 and a policy that may never end, so that V does not exist.

    Examples:
        >>> from bipace.theory.mdp import state_values, uniform_policy
        >>> from bipace.theory.textworlds import corridor
        >>> mdp = corridor(3)
        >>> state_values(mdp, uniform_policy(mdp)).round(2).tolist()
        [3.58, 4.52, 6.65, 0.0]
    """
    transition, reward = chain(mdp, policy)
    alive = ~mdp.terminal
    values = np.zeros(mdp.n_states)
    inner = mdp.gamma * transition[np.ix_(alive, alive)]
    if alive.any() and np.abs(np.linalg.eigvals(inner)).max() >= 1 - _ROUNDING:
        raise ValueError("gamma: 1.0 with a policy that may never end; use gamma < 1 or horizon_values")
    values[alive] = np.linalg.solve(np.eye(len(inner)) - inner, reward[alive])
    return values


def action_values(mdp: TextMDP, values: Floats) -> Floats:
    """Q = R + gamma P V; [S, A], 0 in terminal states.

    Args:
        mdp: the process.
        values: [S] V of the states that may follow.

    Examples:
        >>> from bipace.theory.mdp import action_values, state_values, uniform_policy
        >>> from bipace.theory.textworlds import corridor
        >>> mdp = corridor(3)
        >>> action_values(mdp, state_values(mdp, uniform_policy(mdp))).shape
        (4, 5)
    """
    return mdp.reward + mdp.gamma * mdp.transition @ values


def advantage(mdp: TextMDP, policy: Floats) -> Floats:
    """A = Q - V over an unbounded horizon; [S, A].

    Under the policy's own actions it averages to 0 in every state.

    Examples:
        >>> from bipace.theory.mdp import advantage, uniform_policy
        >>> from bipace.theory.textworlds import corridor
        >>> mdp = corridor(3)
        >>> advantage(mdp, uniform_policy(mdp))[2].round(2).tolist()
        [-0.33, -0.33, -2.36, -0.33, 3.35]
    """
    values = state_values(mdp, policy)
    return action_values(mdp, values) - values[:, None]


def horizon_values(mdp: TextMDP, policy: Floats, horizon: int) -> tuple[Floats, Floats]:
    """Exact values by the number of steps that remain, for a policy that does not look at the clock.

    Returns:
        V: [horizon + 1, S]; V[h] with h steps left, V[0] = 0.
        Q: [horizon + 1, S, A]; Q[h] = R + gamma P V[h - 1], Q[0] = 0.

    Raises:
        ValueError: horizon < 0; a policy that is none (see `chain`).

    Examples:
        >>> from bipace.theory.mdp import horizon_values, uniform_policy
        >>> from bipace.theory.textworlds import corridor
        >>> mdp = corridor(3)
        >>> values, of_actions = horizon_values(mdp, uniform_policy(mdp), horizon=4)
        >>> values.shape, of_actions.shape
        ((5, 4), (5, 4, 5))
    """
    if horizon < 0:
        raise ValueError(f"horizon: {horizon}, expected >= 0 steps")
    chain(mdp, policy)
    values = np.zeros((horizon + 1, mdp.n_states))
    acting = np.zeros((horizon + 1, mdp.n_states, mdp.n_actions))
    for left in range(1, horizon + 1):
        acting[left] = action_values(mdp, values[left - 1])
        values[left] = (policy * acting[left]).sum(axis=1)
    return values, acting


def optimal_policy(mdp: TextMDP, horizon: int = 1000) -> Floats:
    """[S, A] one-hot policy, greedy after value iteration; ties go to the lowest action.

    Args:
        mdp: the process.
        horizon: sweeps; exact for episodes of that length, and within gamma^horizon of the unbounded optimum.

    Examples:
        >>> from bipace.theory.mdp import optimal_policy
        >>> from bipace.theory.textworlds import corridor
        >>> optimal_policy(corridor(3)).shape
        (4, 5)
    """
    values = np.zeros(mdp.n_states)
    for _ in range(horizon):
        values = action_values(mdp, values).max(axis=1)
    best: Ints = action_values(mdp, values).argmax(axis=1)
    return np.eye(mdp.n_actions)[best]


def _shaped(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    array = np.array(value, np.float64)
    if array.shape != shape:
        raise ValueError(f"{name}: shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: a non-finite entry at {_first(~np.isfinite(array))}")
    return array


def _require_distributions(name: str, rows: Floats) -> None:
    wrong = (rows < 0).any(axis=-1) | (np.abs(rows.sum(axis=-1) - 1) > _ROUNDING)
    if wrong.any():
        raise ValueError(
            f"{name}: row {_first(np.atleast_1d(wrong))} is no distribution: >= 0 and summing to 1"
        )


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
