"""What the method's theory promises of its estimators, checked on processes whose truth is known."""

from dataclasses import fields

import numpy as np
import pytest

from bipace.core.advantages import advantages
from bipace.core.clustering import by_features, by_observation
from bipace.core.estimators import bigpo, bipace, gigpo, recipe
from bipace.core.greedy import greedy_cosine
from bipace.core.returns import return_to_go
from bipace.core.segments import mean
from bipace.core.steps import StepBatch
from bipace.theory.mdp import horizon_values, uniform_policy
from bipace.theory.sampling import noisy_embedding, sample
from bipace.theory.textworlds import aliased, grid, paraphrased, random_mdp
from theory.bisimulation import bisimulation_classes, chord
from theory.embeddings import class_embedding, identity_embedding

POLICY = np.array([0.5, 0.3, 0.2])
Q = np.array([1.0, -2.0, 4.0])
V = float(POLICY @ Q)
N = 6
CLUSTERS = 20_000


@pytest.fixture(scope="module")
def bandit():
    """Many clusters of N independent draws of one state: R = Q(a) + noise.

    One prompt group is one cluster.
    """
    rng = np.random.default_rng(0)
    rows = CLUSTERS * N
    action = rng.choice(3, size=rows, p=POLICY)
    return StepBatch(
        task=np.arange(rows) // N,
        trajectory=np.arange(rows),
        t=np.zeros(rows, int),
        reward=Q[action] + rng.standard_normal(rows),
        terminated=np.ones(rows, bool),
        truncated=np.zeros(rows, bool),
        observation=np.zeros(rows, int),
        action=action,
    )


def columns(batch, rows=slice(None)):
    """The table's columns, whole or for some rows, to build another table from."""
    names = [field.name for field in fields(StepBatch) if field.name not in ("penalty", "texts")]
    found = {name: getattr(batch, name) for name in names}
    return {name: None if column is None else column[rows] for name, column in found.items()}


def step_values(batch, name, **options):
    """The step term alone, undivided."""
    return advantages(batch, recipe(name, mode="mean_norm", **options)).outcomes[-1].value


def assert_expectation(values, expected):
    """The mean is within four standard errors of what is expected, and the error is small enough to tell."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert error < 0.03
    assert abs(values.mean() - expected) < 4 * error


def test_q_style_expects_the_true_advantage_shrunk_by_one_over_n(bandit):
    q_style = step_values(bandit, "bipace", clusters="observation", fallback="never")
    plain = step_values(bandit, "gigpo")
    for action in range(3):
        mine = bandit.action == action
        assert_expectation(q_style[mine], (1 - 1 / N) * (Q[action] - V))
        assert_expectation(plain[mine], (1 - 1 / N) * (Q[action] - V))
        assert q_style[mine].var() < plain[mine].var()


def test_at_its_defaults_bipace_expects_the_true_advantage_up_to_one_over_n(bandit):
    """Leave-one-out where nobody else took the action stretches those rows by n/(n-1):

    E[A | a] = (Q(a) - V) (1 - 1/n + (1 - pi(a))^(n-2) / n), between (1 - 1/n) (Q(a) - V) and Q(a) - V.
    """
    values = advantages(bandit, recipe("bipace", clusters="observation")).outcomes[-1].value
    for action in range(3):
        mine = bandit.action == action
        factor = 1 - 1 / N + (1 - POLICY[action]) ** (N - 2) / N
        assert 1 - 1 / N < factor < 1
        assert_expectation(values[mine], factor * (Q[action] - V))


def test_leave_one_out_expects_the_true_advantage(bandit):
    # With every row as its own action nobody has a peer of the same action, so every row falls back.
    apart = StepBatch(**{**columns(bandit), "action": np.arange(len(bandit))})
    values = step_values(apart, "bipace", clusters="observation", fallback="no_same_action_peer")
    for action in range(3):
        assert_expectation(values[bandit.action == action], Q[action] - V)


def test_diff_peer_overshoots_by_the_odds_of_another_action(bandit):
    values = step_values(bandit, "diff_peer", clusters="observation", fallback="never")
    for action in range(3):
        mine = bandit.action == action
        compared = mine & (mean(mine.astype(float), by_observation(bandit)) < 1)
        assert_expectation(values[compared], (Q[action] - V) / (1 - POLICY[action]))


def test_one_hot_features_at_radius_zero_are_gigpo():
    mdp = grid(slip=0.2)
    batch = rollouts(mdp, identity_embedding(mdp.n_states)).batch
    same_text = advantages(batch, gigpo()).values
    np.testing.assert_array_equal(advantages(batch, bigpo(eps=0.0)).values, same_text)
    assert np.abs(same_text).max() > 0


def rollouts(mdp, embedding=None, *, groups=20, group_size=8, horizon=10, seed=0):
    return sample(
        mdp, uniform_policy(mdp), groups=groups, group_size=group_size, horizon=horizon,
        rng=np.random.default_rng(seed), embedding=embedding,
    )  # fmt: skip


def test_exact_features_restore_what_paraphrases_split():
    mdp = paraphrased(forms=4)
    drawn = rollouts(mdp, class_embedding(bisimulation_classes(mdp)))
    text, state = by_observation(drawn.batch), by_features(drawn.batch, eps=0.0)

    def singletons(labels):
        return float((np.bincount(labels) == 1).mean())

    assert singletons(text) > 2 * singletons(state)
    by_text = advantages(drawn.batch, bipace(clusters="observation", mode="mean_norm")).values
    by_class = advantages(drawn.batch, bipace(eps=0.0, mode="mean_norm")).values
    truth = drawn.advantage
    assert np.corrcoef(by_class, truth)[0, 1] > np.corrcoef(by_text, truth)[0, 1]


def test_aliased_text_merges_states_of_different_value():
    mdp = aliased(looks=2)
    drawn = rollouts(mdp, identity_embedding(mdp.n_states))
    spread = {
        name: float(np.sqrt(mean((drawn.value - mean(drawn.value, labels)) ** 2, labels).mean()))
        for name, labels in (
            ("text", by_observation(drawn.batch)),
            ("state", by_features(drawn.batch, eps=0.0)),
        )
    }
    assert spread["text"] > 1.2 * spread["state"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("eps", [0.02, 0.1, 0.4])
def test_the_baselines_bias_is_bounded_by_two_l_eps_under_the_chord(seed, eps):
    """|V(s) - V(s')| <= L chord, members within r of their leader: the cluster's mean V is within 2 L r of
    V(s).
    """
    mdp = random_mdp(states=12, seed=seed)
    embedding = noisy_embedding(mdp.n_states, 3, seed=seed)
    drawn = rollouts(mdp, embedding, horizon=1, groups=30)
    values, features = drawn.value, drawn.batch.features.astype(np.float64)
    value_gap = np.abs(np.subtract.outer(values, values))
    apart = chord(1 - np.clip(features @ features.T, -1, 1))
    lipschitz = float((value_gap[apart > 1e-3] / apart[apart > 1e-3]).max())
    # One prompt group holds all, so that clusters hold several states.
    joint = StepBatch(**{**columns(drawn.batch), "task": np.zeros(len(values), int)})
    labels = by_features(joint, eps=eps, centroid="leader")
    bias = np.abs(mean(values, labels) - values)
    radius = float(chord(np.array(eps + 1e-6)))
    assert (bias <= 2 * lipschitz * radius + 1e-9).all()
    diameter = np.array([apart[np.ix_(labels == k, labels == k)].max() for k in labels])
    assert (bias <= lipschitz * diameter + 1e-6).all()


def hops(eps, size=0.75, count=5):
    """Unit vectors in clumps that march along the circle, each clump five times the one before; and their
    clump.

    Neighbouring clumps are `size` radii (as angles) apart, so a running mean follows the march and a leader
    does not.
    """
    clump = np.repeat(np.arange(count), 5 ** np.arange(count))
    angle = clump * size * np.arccos(1 - eps)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), clump


@pytest.mark.parametrize("eps", [0.02, 0.1])
def test_a_wandering_mean_breaks_the_bound_that_leaders_keep(eps):
    """Under leaders the bound needs no metric, for the leader is itself a state; a running mean is none, and
    moves.
    """
    features, clump = hops(eps)
    apart = 1 - np.clip(features @ features.T, -1, 1)
    step = apart[clump == 0][:, clump == 1].max()
    values = clump * step  # |V(s) - V(s')| <= 1 * cosine distance, with equality between neighbours
    assert (np.abs(np.subtract.outer(values, values)) <= apart + 1e-12).all()
    bias = {}
    for centroid in ("leader", "mean"):
        labels = greedy_cosine(features, eps, centroid)
        bias[centroid] = np.abs(mean(values, labels) - values).max()
    assert bias["leader"] <= 2 * eps
    assert bias["mean"] > 2 * eps


def test_a_cluster_of_bisimilar_states_with_one_clock_estimates_the_advantage():
    """Two steps of one horizon position and class share Q exactly, so q_style needs only the 1 - 1/n."""
    mdp = random_mdp(states=3, actions=2, seed=4)
    n, horizon = 8, 4
    drawn = rollouts(
        mdp, class_embedding(bisimulation_classes(mdp)), groups=4000, group_size=n, horizon=horizon
    )
    first = drawn.batch.t == 0
    # The first step of a group is one state with one clock; later visits of it have another and are left out.
    to_go = return_to_go(drawn.batch, mdp.gamma)[first]
    batch = StepBatch(**{**columns(drawn.batch, first), "reward": to_go})
    values = step_values(batch, "bipace", eps=0.0, fallback="never", gamma=1.0)
    exact = horizon_values(mdp, uniform_policy(mdp), horizon)
    for state in range(3):
        for action in range(2):
            mine = (drawn.state[first] == state) & (batch.action == action)
            expected = (1 - 1 / n) * (exact[1][horizon, state, action] - exact[0][horizon, state])
            error = values[mine].std() / np.sqrt(mine.sum() / n)  # rows of a cluster are not independent
            assert abs(values[mine].mean() - expected) < 4 * error
