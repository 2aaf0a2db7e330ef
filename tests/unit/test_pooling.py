"""Partial pooling: where it must agree with the other recipes, and what it says about steps without a
peer.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.core import segments
from bipace.core.advantages import advantages
from bipace.core.baselines import Peers
from bipace.core.estimators import recipe
from bipace.core.pooling import pooled_q, pooled_v, pseudo_members
from strategies import step_tables, to_batch

quick = settings(max_examples=50, deadline=None)


def term(rows, **options):
    return advantages(to_batch(rows), recipe("pooled", mode="mean_norm", **options)).outcomes[0]


@quick
@given(step_tables())
def test_without_pseudo_members_it_is_q_style(rows):
    options = {"mode": "mean_norm", "clusters": "observation", "fallback": "never"}
    q_style = advantages(to_batch(rows), recipe("bipace", **options)).outcomes[1]
    np.testing.assert_allclose(term(rows, k=0, k_action=0).value, q_style.value, atol=1e-9)


@quick
@given(step_tables(), st.sampled_from([0.25, 0.5, 4.0]), st.sampled_from([0.0, 0.5]))
def test_a_step_alone_keeps_a_shrunken_signal(rows, k, k_action):
    found = term(rows, k=k, k_action=k_action)
    alone = found.peers.n == 1
    prior = segments.mean(found.peers.returns, found.peers.group)
    expected = k * (found.peers.returns - prior) / ((1 + k) * (1 + k_action))
    np.testing.assert_allclose(found.value[alone], expected[alone], atol=1e-9)


@quick
@given(step_tables(), st.sampled_from([0.5, "auto"]))
def test_equal_returns_give_exactly_nothing(rows, k):
    flat = [{**row, "reward": 0.0} for row in rows]
    found = advantages(to_batch(flat), recipe("pooled", k=k, k_action=k))
    np.testing.assert_array_equal(found.values, 0.0)


@quick
@given(step_tables())
def test_more_pseudo_members_bring_the_value_nearer_to_the_groups_mean(rows):
    batch = to_batch(rows)
    peers = term(rows).peers
    prior = segments.mean(peers.returns, segments.compact(batch.task))
    near, far = (np.abs(pooled_v(peers, k) - prior) for k in (4.0, 0.25))
    assert (near <= far + 1e-9).all()


@quick
@given(step_tables(), st.sampled_from([0.5, 3.0]))
def test_linear_in_reward_without_division(rows, factor):
    scaled = [{**row, "reward": factor * row["reward"]} for row in rows]
    for k in (0.5, "auto"):
        np.testing.assert_allclose(
            term(scaled, k=k, k_action=k).value, factor * term(rows, k=k, k_action=k).value, atol=1e-9
        )


def test_the_estimated_pseudo_members_find_the_ratio_of_variances():
    random = np.random.default_rng(0)
    inner = np.repeat(np.arange(4000), random.integers(1, 6, 4000))
    outer = inner // 4  # few to an outer segment, so that counts off by one show
    values = random.normal(0, 2.0, 4000)[inner] + random.normal(0, 3.0, len(inner))
    assert pseudo_members(values, inner, outer) == pytest.approx(9.0 / 4.0, rel=0.1)


def test_nothing_to_estimate_from_counts_as_one_pseudo_member():
    everyone_alone = np.arange(5)
    assert pseudo_members(np.arange(5.0), everyone_alone, np.zeros(5, np.int64)) == 1.0
    assert pseudo_members(np.arange(5.0), np.zeros(5, np.int64), np.zeros(5, np.int64)) == 1.0
    assert pseudo_members(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)) == 1.0


@pytest.mark.parametrize("k", [-1.0, float("inf"), float("nan"), "many"])
def test_what_is_no_number_of_pseudo_members_is_refused(k):
    peers = Peers(np.ones(2), np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="k_action"):
        pooled_q(peers, k=0.5, k_action=k)


def test_trajectories_have_no_prompt_group_to_shrink_to():
    with pytest.raises(ValueError, match="prompt groups"):
        pooled_v(Peers(np.ones(2), np.zeros(2, np.int64), np.zeros(2, np.int64)))
