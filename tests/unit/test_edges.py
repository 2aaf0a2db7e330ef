"""Edges of the estimators' switches that drawn tables hardly ever meet, one by one."""

import numpy as np
import pytest

from bipace.core.advantages import Blend, Recipe, Term, advantages
from bipace.core.baselines import Peers
from bipace.core.calibrate import calibrate, choose
from bipace.core.clustering import by_features, by_observation, by_prompt_group, by_similarity
from bipace.core.estimators import recipe
from bipace.core.greedy import greedy_cosine
from bipace.core.pooling import pooled_q, pooled_v, pseudo_members
from bipace.core.returns import return_to_go
from bipace.core.rows import build_batch

FORMS = ("gram", "plain")


def table(observation, *, features=None, reward=None, action=None):
    """Trajectories of one step in one prompt group."""
    n = len(observation)
    return build_batch(
        task=[0] * n, trajectory=list(range(n)), t=[0] * n, reward=reward or [0.0] * n,
        observation=observation,
        action=action or ["a"] * n, features=None if features is None else np.asarray(features, np.float32),
    ).batch  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("centroid", ["mean", "leader"])
def test_the_oldest_of_two_clusters_that_are_equally_near_wins(form, centroid):
    """Equally near up to the tolerance: the second is nearer by 4e-7."""
    assert greedy_cosine(np.array([[1, 0], [0, 1], [1, 1 + 5e-7]]), 0.3, centroid, form).tolist() == [0, 1, 0]
    assert greedy_cosine(np.array([[1, 0], [0, 1], [1, 1 + 1e-5]]), 0.3, centroid, form).tolist() == [0, 1, 1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("whiten", [0, 2])
def test_the_length_of_vectors_means_nothing_be_it_tiny_or_huge(form, whiten):
    vectors = np.random.default_rng(0).standard_normal((40, 4)) + 0.5
    expected = by_features(table(range(40), features=vectors), eps=0.2, whiten=whiten, form=form)
    assert 1 < len(set(expected.tolist())) < 40
    for scale in (1e-30, 1e-12, 1e-3, 1e12, 1e25, 1e37):
        labels = by_features(table(range(40), features=scale * vectors), eps=0.2, whiten=whiten, form=form)
        np.testing.assert_array_equal(labels, expected)


def test_texts_exactly_as_similar_as_asked_are_peers():
    batch = table(["abcde", "abcdx"])  # difflib: 2 * 4 / 10
    assert by_similarity(batch, 0.8).tolist() == [0, 0]
    assert by_similarity(batch, 0.8 + 1e-9).tolist() == [0, 1]


def test_a_radius_is_chosen_for_the_recipes_own_discount():
    """At gamma 0 a step's return is its own reward, at 1 what is left of the episode's."""
    kind = np.tile([[0, 1], [1, 0]], (20, 1))
    rewards = np.where(kind == 0, 10.0, -10.0)  # of every episode the same sum
    rows = build_batch(
        task=[0] * 80, trajectory=np.repeat(np.arange(40), 2).tolist(), t=[0, 1] * 40,
        reward=rewards.ravel().tolist(),
        observation=list(range(80)), action=["a"] * 80,
        features=(np.eye(2, 8)[kind.ravel()] + 0.01 * np.random.default_rng(0).standard_normal((80, 8))),
    )  # fmt: skip
    curves = {gamma: calibrate(rows.batch, gamma).curve for gamma in (0.0, 0.95, 1.0)}
    assert len(set(curves.values())) == 3
    for gamma, curve in curves.items():
        for name in ("bigpo", "diff_peer", "bipace", "pooled"):
            options = {"clusters": "features"} if name == "pooled" else {}
            found = choose(rows.batch, recipe(name, eps="auto", gamma=gamma, **options).terms)
            assert found is not None
            assert found.curve == curve


def test_a_blend_may_weigh_against_other_terms():
    batch = table(["s", "s", "s"], reward=[1.0, 0.0, 0.5])
    term = Term(return_to_go, by_observation)
    whole = Recipe("one", (Term(return_to_go, by_prompt_group), Blend((term, term), (1.0, 3.0), weight=0.5)))
    np.testing.assert_allclose(advantages(batch, whole).values, [0.75, -0.75, 0.0], atol=1e-12)
    with pytest.raises(ValueError, match="weights: 1 for 2 terms"):
        Blend((term, term), (1.0,))


def test_automatic_pseudo_members_are_those_of_clusters_in_groups_and_of_actions_in_clusters():
    random = np.random.default_rng(3)
    group = np.repeat(np.arange(6), 30)
    cluster = group * 4 + random.integers(4, size=180)
    action = random.integers(3, size=180)
    returns = (
        random.normal(0, 1, 6)[group] + random.normal(0, 2, 24)[cluster] + random.normal(0, 1.5, 180) + action
    )
    peers = Peers(returns, cluster, action, group)
    k = pseudo_members(returns, cluster, group)
    k_action = pseudo_members(returns, peers.cluster_action, cluster)
    assert len({k, k_action, pseudo_members(returns, peers.cluster_action, group)}) == 3
    np.testing.assert_array_equal(pooled_v(peers, "auto"), pooled_v(peers, k))
    np.testing.assert_array_equal(pooled_q(peers, "auto", "auto"), pooled_q(peers, k, k_action))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0, 1, 0, 1], 16.0), ([5, 5, 5, 5], 1.0), ([0, 0, 9, 9], 1 / 16), ([0, 0.1, 9, 9.1], 1 / 16)],
    ids=["no spread between", "no spread at all", "none within", "hardly any within"],
)
def test_estimated_pseudo_members_stay_in_their_bounds(values, expected):
    inner, outer = np.array([0, 0, 1, 1]), np.zeros(4, np.int64)
    assert pseudo_members(np.array(values, np.float64), inner, outer) == expected
