"""Bisimulation, its metric and MICo: against brute force, against each other, and the traps of cosine
distance.
"""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from bipace.core.greedy import greedy_cosine
from bipace.theory.mdp import TextMDP, chain, horizon_values, state_values, uniform_policy
from bipace.theory.textworlds import grid, paraphrased, random_mdp
from theory.bisimulation import bisimulation_classes, chain_classes, chord, mico, pi_bisimulation
from theory.transport import wasserstein

SEEDS = range(5)


def doubled(mdp, seed):
    """The process with every state in two copies; where a move leads to, the copies share its odds at
    random.
    """
    rng = np.random.default_rng(seed)
    states, actions = mdp.n_states, mdp.n_actions
    share = rng.random((2 * states, actions, states))
    base = np.tile(mdp.transition, (2, 1, 1))
    return TextMDP(
        transition=np.concatenate([base * share, base * (1 - share)], axis=2),
        reward=np.tile(mdp.reward, (2, 1)),
        start=np.tile(mdp.start, 2) / 2,
        terminal=np.tile(mdp.terminal, 2),
        texts=mdp.texts * 2,
        actions=mdp.actions,
        gamma=mdp.gamma,
    )


def partitions(n):
    """Every partition of n states, as labels by first appearance."""
    if n == 0:
        yield ()
        return
    for head in partitions(n - 1):
        for label in range(max(head, default=-1) + 2):
            yield (*head, label)


def is_bisimulation(mdp, labels):
    blocks = [[s for s in range(len(labels)) if labels[s] == k] for k in set(labels)]
    for x, y in itertools.combinations(range(len(labels)), 2):
        if labels[x] != labels[y]:
            continue
        for a in range(mdp.n_actions):
            if abs(mdp.reward[x, a] - mdp.reward[y, a]) > 1e-9:
                return False
            for block in blocks:
                if abs(sum(mdp.transition[x, a, s] - mdp.transition[y, a, s] for s in block)) > 1e-9:
                    return False
    return True


def lumpy(seed, states=6):
    """A small process with few distinct rewards and deterministic moves, so that some states do coincide."""
    rng = np.random.default_rng(seed)
    return TextMDP(
        transition=np.eye(states)[rng.integers(states, size=(states, 2))],
        reward=rng.integers(2, size=(states, 1)).repeat(2, axis=1),
        start=np.full(states, 1 / states),
        terminal=np.zeros(states, bool),
        texts=(("?",),) * states,
        actions=("a", "b"),
        gamma=0.7,
    )


@pytest.mark.parametrize("seed", range(8))
def test_refinement_finds_the_coarsest_partition(seed):
    mdp = lumpy(seed)
    coarsest = min((p for p in partitions(6) if is_bisimulation(mdp, p)), key=lambda p: max(p))
    assert bisimulation_classes(mdp).tolist() == list(coarsest)


def test_brute_force_meets_both_merged_and_split_states():
    sizes = [int(bisimulation_classes(lumpy(seed)).max()) + 1 for seed in range(8)]
    assert {1, 6} < set(sizes)


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_of_a_state_are_bisimilar_and_worth_the_same(seed):
    mdp = doubled(random_mdp(states=4, seed=seed), seed)
    classes = bisimulation_classes(mdp)
    assert classes.tolist() == [0, 1, 2, 3, 4] * 2
    policy = np.tile(np.random.default_rng(seed).dirichlet(np.ones(3), size=5), (2, 1))
    values = state_values(mdp, policy)
    np.testing.assert_allclose(values[:5], values[5:], atol=1e-10)
    by_clock = horizon_values(mdp, policy, 9)[1]
    np.testing.assert_allclose(by_clock[:, :5], by_clock[:, 5:], atol=1e-10)
    np.testing.assert_array_equal(chain_classes(*chain(mdp, policy)), classes)


def test_phrasing_is_no_behaviour():
    np.testing.assert_array_equal(bisimulation_classes(grid()), bisimulation_classes(paraphrased()))


@pytest.mark.parametrize("seed", range(20))
def test_transport_is_exact(seed):
    rng = np.random.default_rng(seed)
    n = 6
    p, q = rng.dirichlet(np.full(n, 0.5), size=2)
    if seed % 2:
        p, q = np.round(p * 4) + 1.0, np.round(q * 4) + 1.0
        p, q = p / p.sum(), q / q.sum()
    cost = rng.integers(0, 4, size=(n, n)) + (rng.random((n, n)) if seed % 3 else 0.0)
    marginals = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    exact = linprog(cost.ravel(), A_eq=marginals, b_eq=np.concatenate([p, q]), bounds=(0, None))
    assert wasserstein(p, q, cost) == pytest.approx(exact.fun, abs=1e-7)


def test_transport_by_hand():
    line = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    assert wasserstein(np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), line) == 2.0
    assert wasserstein(np.array([0.5, 0.5, 0]), np.array([0, 0.5, 0.5]), line) == 1.0
    assert wasserstein(np.array([0.2, 0.3, 0.5]), np.array([0.2, 0.3, 0.5]), line) == 0.0


@pytest.mark.parametrize("seed", SEEDS)
def test_both_distances_bound_the_difference_of_values(seed):
    mdp = random_mdp(states=4, seed=seed, gamma=0.8)
    policy = np.random.default_rng(seed).dirichlet(np.ones(3), size=5)
    transition, reward = chain(mdp, policy)
    values = state_values(mdp, policy)
    gaps = np.abs(values[:, None] - values[None, :])
    metric, upper = pi_bisimulation(transition, reward, mdp.gamma), mico(transition, reward, mdp.gamma)
    assert (gaps <= metric + 1e-8).all()
    assert (metric <= upper + 1e-8).all()
    assert metric[np.triu_indices(5, 1)].max() > gaps.max()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_metric_is_a_fixed_point_and_a_pseudometric(seed):
    mdp = random_mdp(states=4, seed=seed, gamma=0.8)
    transition, reward = chain(mdp, uniform_policy(mdp))
    d = pi_bisimulation(transition, reward, mdp.gamma)
    for x, y in itertools.product(range(5), repeat=2):
        again = abs(reward[x] - reward[y]) + mdp.gamma * wasserstein(transition[x], transition[y], d)
        assert d[x, y] == pytest.approx(again, abs=1e-8)
    np.testing.assert_array_equal(d, d.T)
    np.testing.assert_array_equal(d.diagonal(), 0.0)
    assert (d[:, None, :] <= d[:, :, None] + d.T[None, :, :] + 1e-8).all()


def test_the_metric_vanishes_exactly_inside_the_classes():
    mdp = doubled(random_mdp(states=3, seed=2, gamma=0.8), 2)
    transition, reward = chain(mdp, uniform_policy(mdp))
    classes = chain_classes(transition, reward)
    d = pi_bisimulation(transition, reward, mdp.gamma)
    np.testing.assert_array_equal(d < 1e-8, classes[:, None] == classes[None, :])


def test_mico_puts_a_stochastic_state_at_a_distance_from_itself():
    mdp = random_mdp(states=4, seed=0, gamma=0.8)
    transition, reward = chain(mdp, uniform_policy(mdp))
    upper = mico(transition, reward, mdp.gamma)
    assert (upper.diagonal()[:4] > 1e-3).all()
    np.testing.assert_allclose(
        upper,
        np.abs(np.subtract.outer(reward, reward)) + mdp.gamma * transition @ upper @ transition.T,
        atol=1e-10,
    )


def test_mico_of_deterministic_moves_is_the_metric():
    mdp = random_mdp(states=5, actions=1, seed=1, branching=1, ending=0.0, gamma=0.8)
    transition, reward = chain(mdp, uniform_policy(mdp))
    upper = mico(transition, reward, mdp.gamma)
    np.testing.assert_allclose(upper.diagonal(), 0.0, atol=1e-12)
    np.testing.assert_allclose(upper, pi_bisimulation(transition, reward, mdp.gamma), atol=1e-7)


@pytest.mark.parametrize("distance", [pi_bisimulation, mico])
def test_no_contraction_no_distance(distance):
    with pytest.raises(ValueError, match=r"gamma: 1\.0"):
        distance(np.eye(2), np.zeros(2), 1.0)
    with pytest.raises(ValueError, match="tolerance: 0"):
        pi_bisimulation(np.eye(2), np.zeros(2), 0.5, tolerance=0)


def angles(*degrees):
    radians = np.deg2rad(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def cosine_distances(vectors):
    return 1 - vectors @ vectors.T


def test_the_cosine_distance_is_no_metric_and_the_chord_is():
    d = cosine_distances(angles(0, 20, 40))
    assert d[0, 2] > d[0, 1] + d[1, 2]
    vectors = np.random.default_rng(0).standard_normal((40, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    c = chord(cosine_distances(vectors))
    np.testing.assert_allclose(c, np.linalg.norm(vectors[:, None] - vectors[None, :], axis=2), atol=1e-7)
    assert (c[:, None, :] <= c[:, :, None] + c.T[None, :, :] + 1e-7).all()


@pytest.mark.parametrize("eps", [0.05, 0.1, 0.3])
def test_two_members_of_a_leader_cluster_may_be_four_radii_apart(eps):
    angle = np.rad2deg(np.arccos(1 - eps))
    vectors = angles(0, angle, -angle)
    assert greedy_cosine(vectors, eps, centroid="leader").tolist() == [0, 0, 0]
    d = cosine_distances(vectors)
    assert d[1, 2] == pytest.approx(4 * eps - 2 * eps**2)
    assert d[1, 2] > 2 * eps
    assert chord(d)[1, 2] <= 2 * np.sqrt(2 * eps)
