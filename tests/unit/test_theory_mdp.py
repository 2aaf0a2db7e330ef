"""Exact values agree with their definitions, with each other, and with what sampling shows."""

import numpy as np
import pytest

from bipace.theory.mdp import (
    TextMDP,
    action_values,
    advantage,
    chain,
    horizon_values,
    optimal_policy,
    state_values,
    uniform_policy,
)
from bipace.theory.sampling import noisy_embedding, sample
from bipace.theory.textworlds import WORLDS, aliased, corridor, grid, paraphrased, random_mdp, world
from theory.embeddings import class_embedding, identity_embedding


def random_policy(mdp, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.n_actions), size=mdp.n_states)


def tiny(**changes):
    fields = dict(
        transition=[[[0.0, 1.0]], [[0.0, 1.0]]], reward=[[2.0], [5.0]], start=[1.0, 0.0],
        terminal=[False, True],
        texts=(("here",), ("over",)), actions=("wait",), gamma=0.5,
    )  # fmt: skip
    return TextMDP(**{**fields, **changes})


@pytest.mark.parametrize("name", WORLDS)
def test_values_solve_their_own_equations(name):
    mdp = world(name)
    policy = random_policy(mdp)
    transition, reward = chain(mdp, policy)
    values = state_values(mdp, policy)
    np.testing.assert_allclose(values, reward + mdp.gamma * transition @ values, atol=1e-10)
    np.testing.assert_allclose((policy * action_values(mdp, values)).sum(axis=1), values, atol=1e-10)
    np.testing.assert_allclose((policy * advantage(mdp, policy)).sum(axis=1), 0.0, atol=1e-10)
    assert (values[mdp.terminal] == 0).all()


def test_a_long_horizon_is_no_horizon():
    mdp = random_mdp(seed=3)
    policy = random_policy(mdp)
    values, acting = horizon_values(mdp, policy, 400)
    np.testing.assert_allclose(values[-1], state_values(mdp, policy), atol=1e-8)
    np.testing.assert_allclose(acting[-1], action_values(mdp, state_values(mdp, policy)), atol=1e-8)
    assert (values[0] == 0).all()


def test_values_by_hand():
    mdp = corridor(3, gamma=0.5)
    best = optimal_policy(mdp)
    np.testing.assert_allclose(state_values(mdp, best), [2.5, 5.0, 10.0, 0.0])
    assert [mdp.actions[a] for a in best.argmax(axis=1)[:3]] == ["go east", "go east", "take lamp"]
    values, _ = horizon_values(mdp, best, 2)
    np.testing.assert_allclose(values[2], [0.0, 5.0, 10.0, 0.0])


def test_undiscounted_values_exist_where_the_policy_ends():
    mdp = random_mdp(seed=1, gamma=1.0)
    policy = random_policy(mdp)
    np.testing.assert_allclose(state_values(mdp, policy), horizon_values(mdp, policy, 1000)[0][-1], atol=1e-8)
    endless = grid(gamma=1.0)
    with pytest.raises(ValueError, match="may never end"):
        state_values(endless, np.eye(endless.n_actions)[np.zeros(endless.n_states, int)])


def test_sampled_returns_average_to_the_exact_values():
    mdp = random_mdp(states=4, seed=5, gamma=0.9)
    policy, horizon = random_policy(mdp, 1), 6
    rollouts = sample(mdp, policy, groups=20000, group_size=1, horizon=horizon, rng=np.random.default_rng(0))
    batch = rollouts.batch
    returns = np.zeros(20000)
    np.add.at(returns, batch.trajectory, batch.reward * mdp.gamma**batch.t)
    first = batch.t == 0
    expected = horizon_values(mdp, policy, horizon)
    for state in range(4):
        mine = returns[batch.trajectory[first & (rollouts.state == state)]]
        assert abs(mine.mean() - expected[0][horizon, state]) < 4 * mine.std() / np.sqrt(len(mine))
        for action in range(mdp.n_actions):
            rows = first & (rollouts.state == state) & (batch.action == action)
            mine = returns[batch.trajectory[rows]]
            assert abs(mine.mean() - expected[1][horizon, state, action]) < 4 * mine.std() / np.sqrt(
                len(mine)
            )


def test_a_sample_carries_its_truth():
    mdp = grid(slip=0.2)
    policy = random_policy(mdp)
    rollouts = sample(mdp, policy, groups=5, group_size=4, horizon=7, rng=np.random.default_rng(0))
    values, acting = horizon_values(mdp, policy, 7)
    for row in range(len(rollouts.batch)):
        left, state = 7 - rollouts.batch.t[row], rollouts.state[row]
        assert rollouts.value[row] == values[left, state]
        assert rollouts.action_value[row] == acting[left, state, rollouts.batch.action[row]]
    np.testing.assert_array_equal(rollouts.advantage, rollouts.action_value - rollouts.value)


def test_a_group_shares_its_start_and_ends_where_the_process_does():
    mdp = grid(2, 2)
    rollouts = sample(
        mdp, uniform_policy(mdp), groups=30, group_size=3, horizon=9, rng=np.random.default_rng(2)
    )
    batch = rollouts.batch
    for task in range(30):
        assert len(set(rollouts.state[(batch.task == task) & (batch.t == 0)])) == 1
        assert len(set(batch.trajectory[batch.task == task])) == 3
    for trajectory in range(90):
        rows = np.flatnonzero(batch.trajectory == trajectory)
        last = rows[batch.t[rows].argmax()]
        assert batch.terminated[last] != batch.truncated[last]
        assert batch.reward[rows].sum() == (10.0 if batch.terminated[last] else 0.0)
        assert batch.terminated[rows].sum() + batch.truncated[rows].sum() == 1
    assert 0 < batch.terminated.sum() < 90


def test_the_same_seed_gives_the_same_table():
    mdp = paraphrased(slip=0.3)
    embedding = noisy_embedding(mdp.n_states, 8, noise=0.1, paraphrase=0.3, n_texts=4)
    first, again, other = (
        sample(
            mdp, uniform_policy(mdp), groups=4, group_size=4, horizon=6, rng=np.random.default_rng(seed),
            embedding=embedding,
        ).batch
        for seed in (7, 7, 8)
    )  # fmt: skip
    for name in ("task", "trajectory", "t", "reward", "observation", "action", "features"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert len(first) != len(other) or (first.observation != other.observation).any()


def test_texts_are_unique_or_paraphrased_or_aliased():
    def shown(mdp):
        rollouts = sample(
            mdp, uniform_policy(mdp), groups=60, group_size=4, horizon=8, rng=np.random.default_rng(0)
        )
        return set(zip(rollouts.state.tolist(), rollouts.batch.observation.tolist(), strict=True))

    assert len(shown(grid())) == 9
    split = shown(paraphrased(forms=4))
    assert len(split) == len({text for _, text in split}) == 36
    merged = shown(aliased(looks=3))
    assert len(merged) == 9
    assert len({text for _, text in merged}) == 3


def test_embeddings_separate_what_they_should():
    mdp = paraphrased()
    rng = np.random.default_rng(0)

    def features(embedding):
        return sample(
            mdp, uniform_policy(mdp), groups=30, group_size=4, horizon=8, rng=np.random.default_rng(0),
            embedding=embedding,
        )  # fmt: skip

    identity = features(identity_embedding(mdp.n_states))
    np.testing.assert_array_equal(identity.batch.features.argmax(axis=1), identity.state)
    classes = np.arange(mdp.n_states) // 2
    np.testing.assert_array_equal(
        class_embedding(classes)(identity.state, identity.state, rng).sum(axis=1), 1.0
    )
    clean = features(noisy_embedding(mdp.n_states, 16, n_texts=4))
    assert len(np.unique(clean.batch.features, axis=0)) == len(set(clean.state))
    shifted = features(noisy_embedding(mdp.n_states, 16, paraphrase=0.2, n_texts=4))
    assert len(np.unique(shifted.batch.features, axis=0)) == 36
    noisy = features(noisy_embedding(mdp.n_states, 4096, noise=0.5, n_texts=4)).batch.features
    np.testing.assert_allclose(np.linalg.norm(noisy - clean_base(mdp, noisy, clean), axis=1), 0.5, atol=0.05)


def clean_base(mdp, noisy, clean):
    return noisy_embedding(mdp.n_states, noisy.shape[1], n_texts=4)(
        clean.state, np.zeros_like(clean.state), np.random.default_rng(0)
    )


def test_a_slip_moves_in_every_direction_alike():
    mdp = grid(3, 3, slip=0.4)
    centre = 4
    np.testing.assert_allclose(mdp.transition[centre, 3, [1, 7, 3, 5]], [0.1, 0.1, 0.1, 0.7])
    np.testing.assert_allclose(mdp.transition.sum(axis=2), 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition": [[[0.0, 0.9]], [[0.0, 1.0]]]}, r"transition: row \(0, 0\) is no distribution"),
        ({"transition": [[0.0, 1.0]]}, r"transition: shape \(1, 2\), expected \(2, 1, 2\)"),
        ({"reward": [[np.nan], [0.0]]}, r"reward: a non-finite entry at \(0, 0\)"),
        ({"start": [0.5, 0.0]}, "start: row"),
        ({"texts": (("here",), ())}, "texts: "),
        ({"gamma": 1.5}, "gamma: 1.5"),
    ],
)
def test_bad_processes_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: world("maze"), "world: unknown 'maze'; known: grid"),
        (lambda: grid(1, 1), "at least two rooms"),
        (lambda: grid(slip=1.5), "slip: 1.5"),
        (lambda: paraphrased(forms=9), "forms: 9"),
        (lambda: aliased(looks=0), "looks: 0"),
        (lambda: random_mdp(branching=9), "branching: 9"),
        (lambda: random_mdp(states=0), "states, actions: 0"),
        (lambda: horizon_values(tiny(), [[1.0], [1.0]], -1), "horizon: -1"),
        (lambda: chain(tiny(), [[1.0]]), "policy: shape"),
        (lambda: chain(tiny(), [[0.5], [1.0]]), "policy: row"),
        (lambda: draw(groups=0), "groups: 0"),
        (lambda: draw(mdp=tiny(start=[0.5, 0.5])), "terminal state"),
    ],
)
def test_bad_requests_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def draw(mdp=None, groups=1):
    mdp = mdp or tiny()
    return sample(
        mdp, uniform_policy(mdp), groups=groups, group_size=1, horizon=1, rng=np.random.default_rng(0)
    )


def test_a_terminal_state_pays_nothing_whatever_its_rows_say():
    assert state_values(tiny(), uniform_policy(tiny())).tolist() == [2.0, 0.0]
    assert draw().batch.reward.tolist() == [2.0]
    assert draw().batch.terminated.tolist() == [True]
