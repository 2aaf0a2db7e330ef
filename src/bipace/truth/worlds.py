"""The exact truth: rollouts of a tabular text process, whose values are known to the last digit.

No torch needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core.features import on_host
from bipace.core.steps import Ints
from bipace.theory.mdp import TextMDP, optimal_policy, uniform_policy
from bipace.theory.sampling import noisy_embedding, sample
from bipace.theory.textworlds import world
from bipace.truth.table import Truth

__all__ = ["world_truth"]

_WIDTH, _NOISE, _PHRASING, _SQUEEZE = 64, 0.15, 0.3, 3.0


# long: a third of it says what the arguments are
def world_truth(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    groups: int = 16,
    group_size: int = 8,
    horizon: int = 12,
    skill: float = 0.4,
    seed: int = 0,
) -> Truth:
    """Roll a half-skilled policy out in a world of `bipace.theory.textworlds` and note what is true.

    The policy plays the best action with probability `skill` and otherwise a uniform one. Three feature
    geometries stand in for hidden states: "state" (one-hot: a perfect encoder), "spread" (random directions
    of the states, moved by noise and by the phrasing) and "squeezed" (the same, plus a long direction that
    all states share, which brings every cosine near 1, as raw hidden states of language models do). The
    gradient vectors are those of a tabular softmax policy, exactly: (one-hot action - pi) in the coordinates
    of the state.

    Args:
        name: a key of WORLDS.
        options: keyword arguments of that world.
        groups: prompt groups.
        group_size: G, at least 2.
        horizon: most steps of an episode.
        skill: in [0, 1].
        seed: fixes every draw.

    Raises:
        ValueError: an unknown world; G below 2; skill outside [0, 1]; what `sample` refuses.
    """
    if group_size < 2:
        raise ValueError(
            f"group_size: {group_size}, expected at least 2: with fewer there is nothing to compare"
        )
    if not 0.0 <= skill <= 1.0:
        raise ValueError(f"skill: {skill}, expected a probability in [0, 1]")
    mdp = world(name, **(options or {}))
    policy = skill * optimal_policy(mdp) + (1 - skill) * uniform_policy(mdp)
    rolled = sample(
        mdp, policy, groups=groups, group_size=group_size, horizon=horizon, rng=np.random.default_rng(seed),
        embedding=_geometries(mdp),
    )  # fmt: skip
    batch, n = rolled.batch, len(rolled.batch)
    assert batch.features is not None
    layers: dict[str, NDArray[np.float32]] = dict(
        zip(("state", "spread", "squeezed"), _split(on_host(batch.features), mdp.n_states), strict=True)
    )
    taken = np.eye(mdp.n_actions)[batch.action] - policy[rolled.state]
    gradient = np.zeros((n, mdp.n_states, mdp.n_actions), np.float32)
    gradient[np.arange(n), rolled.state] = taken
    identity = {"world": name, "options": dict(options or {}), "groups": groups, "group_size": group_size}
    identity |= {"horizon": horizon, "skill": skill, "seed": seed, "gamma": mdp.gamma}
    return Truth(
        batch,
        rolled.value,
        rolled.advantage,
        np.zeros((0, n)),
        np.zeros(n),
        gradient.reshape(n, -1),
        layers,
        identity,
    )


def _geometries(mdp: TextMDP) -> Any:
    spread = noisy_embedding(
        mdp.n_states,
        _WIDTH,
        noise=_NOISE,
        paraphrase=_PHRASING,
        n_texts=max(len(forms) for forms in mdp.texts),
    )
    shared = np.zeros(_WIDTH, np.float32)
    shared[0] = _SQUEEZE

    def embed(state: Ints, shown: Ints, rng: np.random.Generator) -> NDArray[np.float32]:
        one_hot = np.eye(mdp.n_states, dtype=np.float32)[state]
        features = spread(state, shown, rng)
        return np.concatenate([one_hot, features, features + shared], axis=1)

    return embed


def _split(features: NDArray[np.float32], n_states: int) -> list[NDArray[np.float32]]:
    return np.split(features, [n_states, n_states + _WIDTH], axis=1)
