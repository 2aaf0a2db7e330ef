"""Rollouts of a tabular process as a table of steps, with the truth beside every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bipace.core.steps import Floats, Ints, StepBatch
from bipace.theory.mdp import TextMDP, chain, horizon_values

__all__ = ["Embedding", "Rollouts", "noisy_embedding", "sample"]

Embedding = Callable[[Ints, Ints, np.random.Generator], NDArray[np.float32]]
"""(state [N], index of the text shown [N], generator) -> features [N, D]."""


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Sampled steps and what is true of them.

    Attributes:
        batch: the table; `action` is the action's index, `observation` labels the texts shown
            (`batch.texts`).
        state: [N] the state behind each observation.
        value: [N] exact V of the state with the steps that remained.
        action_value: [N] exact Q of the state and the action with the steps that remained.
    """

    batch: StepBatch
    state: Ints
    value: Floats
    action_value: Floats

    @property
    def advantage(self) -> Floats:
        """[N] the true advantage Q - V: what an estimator is for."""
        return self.action_value - self.value


def sample(
    mdp: TextMDP,
    policy: Floats,
    *,
    groups: int,
    group_size: int,
    horizon: int,
    rng: np.random.Generator,
    embedding: Embedding | None = None,
) -> Rollouts:
    """Roll a policy out: `groups` prompt groups of `group_size` trajectories, each from one start state.

    Args:
        mdp: the process.
        policy: [S, A] action probabilities.
        groups: number of prompt groups.
        group_size: trajectories per group.
        horizon: most steps of a trajectory; a trajectory that has not ended by then is truncated.
        rng: source of every draw; the same generator state gives the same table.
        embedding: features of the steps, or None for a table without.

    Raises:
        ValueError: groups, group_size or horizon below 1; a policy that is none; no start outside terminal
            states.
    """
    for name, count in (("groups", groups), ("group_size", group_size), ("horizon", horizon)):
        if count < 1:
            raise ValueError(f"{name}: {count}, expected >= 1")
    if mdp.start[mdp.terminal].sum() > 0:
        raise ValueError("start: puts weight on a terminal state; an episode must have a first step")
    chain(mdp, policy)
    begin = rng.choice(mdp.n_states, size=groups, p=mdp.start).repeat(group_size)
    state, trajectory, t = _walk(mdp, policy, begin, horizon, rng)
    states, actions, following = state[:, 0], state[:, 1], state[:, 2]
    forms = np.array([len(forms) for forms in mdp.texts], np.int64)
    shown = rng.integers(forms[states])
    texts, observation = _label_texts(mdp, states, shown)
    ended = mdp.terminal[following]
    batch = StepBatch(
        task=trajectory // group_size,
        trajectory=trajectory,
        t=t,
        reward=mdp.reward[states, actions],
        terminated=ended,
        truncated=(t == horizon - 1) & ~ended,
        observation=observation,
        action=actions,
        features=None if embedding is None else embedding(states, shown, rng),
        texts=texts,
    )
    values, acting = horizon_values(mdp, policy, horizon)
    left = horizon - t
    return Rollouts(batch, states, values[left, states], acting[left, states, actions])


def noisy_embedding(
    n_states: int, dim: int, *, noise: float = 0.0, paraphrase: float = 0.0, n_texts: int = 1, seed: int = 0
) -> Embedding:
    """Random unit vectors of the states, moved by surface form and noise, as a learned encoder's would be.

    f = u_state + paraphrase * v_text + noise * g / sqrt(dim), with unit u and v fixed by `seed` and g
    standard normal per step. The v of the k-th text is shared by all states: the direction of a way of
    speaking.

    Args:
        n_states: S.
        dim: width D.
        noise: expected length of the per-step noise, against a state vector of length 1.
        paraphrase: length of the surface form's shift.
        n_texts: most texts of any state.
        seed: fixes u and v.
    """
    fixed = np.random.default_rng(seed)
    states, forms = (_unit(fixed.standard_normal((count, dim))) for count in (n_states, n_texts))

    def embed(state: Ints, shown: Ints, rng: np.random.Generator) -> NDArray[np.float32]:
        jitter = rng.standard_normal((len(state), dim)) / np.sqrt(dim)
        return (states[state] + paraphrase * forms[shown] + noise * jitter).astype(np.float32)

    return embed


def _walk(
    mdp: TextMDP, policy: Floats, state: Ints, horizon: int, rng: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """All trajectories in lock-step: [N, 3] (state, action, next state), trajectory [N], t [N]."""
    alive = np.arange(len(state))
    moves: list[Ints] = []
    trajectory: list[Ints] = []
    for _ in range(horizon):
        action = _draw(policy[state], rng)
        following = _draw(mdp.transition[state, action], rng)
        moves.append(np.stack([state, action, following], axis=1))
        trajectory.append(alive)
        going = ~mdp.terminal[following]
        state, alive = following[going], alive[going]
    t = np.repeat(np.arange(horizon), [len(rows) for rows in trajectory])
    return np.concatenate(moves), np.concatenate(trajectory), t


def _draw(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """One index per row of [N, K] probabilities."""
    edges = probabilities.cumsum(axis=1)
    # Scaled to the row's own total, so that a sum of 1 - 1e-16 can never give an index past the last entry.
    return (rng.random((len(edges), 1)) * edges[:, -1:] >= edges).sum(axis=1)


def _label_texts(mdp: TextMDP, state: Ints, shown: Ints) -> tuple[list[str], Ints]:
    """The distinct texts and each row's label; equal texts of different states share one (aliasing)."""
    texts = list(dict.fromkeys(text for forms in mdp.texts for text in forms))
    number = {text: k for k, text in enumerate(texts)}
    spoken = [number[mdp.texts[s][k]] for s, k in zip(state.tolist(), shown.tolist(), strict=True)]
    return texts, np.array(spoken, np.int64)


def _unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
