"""When do two states behave alike, exactly and by degrees.

Three answers of growing softness, all exact for small tabular processes: bisimulation classes (a partition),
the pi-bisimulation metric (a pseudometric that bounds differences of V), and MICo (an upper bound of both
that can be learned from samples, at the price that a state may be at a positive distance from itself).
"""

from __future__ import annotations

import numpy as np

from bipace.core.steps import Floats, Ints
from bipace.theory.mdp import TextMDP
from theory.transport import wasserstein

__all__ = ["bisimulation_classes", "chain_classes", "chord", "mico", "pi_bisimulation"]


def bisimulation_classes(mdp: TextMDP, tolerance: float = 1e-9) -> Ints:
    """[S] labels of the coarsest bisimulation: equal rewards and equal odds of every class, action by action.

    Partition refinement from one block until nothing splits (Givan, Dean, Greig 2003). A state that stays
    where it is for nothing is a peer of the terminal states.

    Args:
        mdp: the process.
        tolerance: numbers this near count as equal.

    Returns:
        Labels numbered by first appearance. Q^pi and V^pi agree inside a class for every pi constant on
        classes.
    """
    return _refine(mdp.reward, mdp.transition, tolerance)


def chain_classes(transition: Floats, reward: Floats, tolerance: float = 1e-9) -> Ints:
    """[S] labels of the coarsest bisimulation of a Markov chain (pi-bisimulation); V agrees inside a class.

    Args:
        transition: [S, S] as `chain` returns it.
        reward: [S].
        tolerance: numbers this near count as equal.
    """
    return _refine(reward[:, None], transition[:, None, :], tolerance)


def pi_bisimulation(transition: Floats, reward: Floats, gamma: float, tolerance: float = 1e-9) -> Floats:
    """The fixed point of d(x, y) = |r_x - r_y| + gamma W1(d)(P_x, P_y); [S, S], symmetric, zero diagonal.

    |V(x) - V(y)| <= d(x, y); d = 0 exactly inside the classes of `chain_classes` (Castro 2020).

    Args:
        transition: [S, S] chain under the policy.
        reward: [S].
        gamma: discount below 1.
        tolerance: largest error left in any entry.

    Raises:
        ValueError: gamma outside [0, 1): no contraction; tolerance not above 0.
    """
    _require_contraction(gamma)
    if not tolerance > 0:
        raise ValueError(
            f"tolerance: {tolerance}, expected > 0: the iteration only approaches its fixed point"
        )
    gap: Floats = np.abs(reward[:, None] - reward[None, :])
    pairs = np.argwhere(np.triu(np.ones_like(gap), 1)).tolist()
    distance: Floats = np.zeros_like(gap)
    while True:
        moved = np.array(gap)
        for x, y in pairs:
            moved[x, y] += gamma * wasserstein(transition[x], transition[y], distance)
            moved[y, x] = moved[x, y]
        change = float(np.abs(moved - distance).max(initial=0.0))
        distance = moved
        if change * gamma <= tolerance * (1 - gamma):
            return distance


def mico(transition: Floats, reward: Floats, gamma: float) -> Floats:
    """U(x, y) = |r_x - r_y| + gamma E U(x', y'), x' and y' independent; [S, S] (Castro et al. 2021).

    Solved as (I - gamma P kron P) u = vec |r_i - r_j|. |V(x) - V(y)| <= d <= U. U(x, x) > 0 where the two
    independent copies of a stochastic state may part and earn differently: it is no metric.

    Raises:
        ValueError: gamma outside [0, 1).
    """
    _require_contraction(gamma)
    gap = np.abs(reward[:, None] - reward[None, :])
    joint = np.kron(transition, transition)
    solved = np.asarray(np.linalg.solve(np.eye(len(joint)) - gamma * joint, np.ravel(gap)), np.float64)
    return np.reshape(solved, gap.shape)


def chord(cosine_distance: Floats) -> Floats:
    """Euclidean distance of unit vectors, sqrt(2 (1 - cos)): a metric, which the cosine distance is not."""
    return np.sqrt(2 * np.maximum(cosine_distance, 0.0))


def _refine(reward: Floats, transition: Floats, tolerance: float) -> Ints:
    labels = np.zeros(len(reward), np.int64)
    while True:
        odds: Floats = transition @ np.eye(int(labels.max(initial=-1)) + 1)[labels]
        behaviour = np.concatenate([reward, np.reshape(odds, (len(reward), -1))], axis=1)
        refined = np.empty_like(labels)
        first: list[int] = []
        for state in range(len(labels)):
            # Only within a block: differences that each pass the tolerance may add up, and a split must not
            # heal.
            known = (
                k
                for k, other in enumerate(first)
                if labels[other] == labels[state]
                and np.abs(behaviour[other] - behaviour[state]).max(initial=0.0) <= tolerance
            )
            refined[state] = next(known, len(first))
            if refined[state] == len(first):
                first.append(state)
        if (refined == labels).all():
            return labels
        labels = refined


def _require_contraction(gamma: float) -> None:
    if not 0.0 <= gamma < 1.0:
        raise ValueError(f"gamma: {gamma}, expected a discount in [0, 1)")
