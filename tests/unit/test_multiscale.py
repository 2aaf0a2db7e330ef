"""Nested clusters: what they are at their ends, what they refuse, and what chooses the pseudo-members."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from bipace.core import segments
from bipace.core.advantages import advantages
from bipace.core.baselines import cluster_mean, own_return
from bipace.core.clustering import ByFeatures, by_prompt_group
from bipace.core.estimators import multiscale, recipe
from bipace.core.multiscale import PSEUDO_MEMBERS, NestedV, nested_features
from bipace.core.rows import build_batch
from strategies import EPS, step_tables, to_batch

quick = settings(max_examples=60, deadline=None)


def step_term(batch, **options):
    return advantages(batch, recipe("multiscale", trajectory=False, **options)).outcomes[-1]


def in_groups_of_several(batch):
    pair = segments.first_rows(segments.pair(batch.task, batch.trajectory))
    several = {task for task in batch.task.tolist() if (batch.task[pair] == task).sum() > 1}
    return np.isin(batch.task, sorted(several))


@quick
@given(step_tables())
def test_every_level_lies_in_the_one_before_and_the_first_is_the_plain_clustering(rows):
    batch = to_batch(rows)
    levels = nested_features(batch, (1.0, EPS, 0.0))
    np.testing.assert_array_equal(segments.compact(levels[:, 0]), ByFeatures(1.0)(batch))
    for level in (1, 2):
        inner, outer = levels[:, level], levels[:, level - 1]
        assert all(len(set(outer[inner == label].tolist())) == 1 for label in set(inner.tolist()))
    assert all(
        len(set(batch.task[levels[:, 0] == label].tolist())) == 1 for label in set(levels[:, 0].tolist())
    )


@quick
@given(step_tables())
def test_one_level_without_pseudo_members_is_q_style(rows):
    """BiPACE's Q - V, where a group has another trajectory."""
    batch = to_batch(rows)
    said = step_term(batch, radii=(EPS,), k=0.0, k_action=0.0)
    plain = advantages(batch, recipe("bipace", eps=EPS, fallback="never")).outcomes[-1]
    here = in_groups_of_several(batch)
    np.testing.assert_allclose(said.value[here], plain.value[here], atol=1e-9)
    assert said.value[~here].tolist() == [0.0] * int((~here).sum())


@quick
@given(step_tables())
def test_all_actions_apart_and_no_shrinkage_is_gigpos_difference(rows):
    batch = to_batch([{**row, "action": number} for number, row in enumerate(rows)])
    said = step_term(batch, radii=(EPS,), k=0.0, k_action=0.0)
    plain = advantages(batch, recipe("bigpo", eps=EPS, mode="mean_norm")).outcomes[-1]
    here = in_groups_of_several(batch)
    np.testing.assert_allclose(said.value[here], plain.value[here], atol=1e-9)


@quick
@given(step_tables())
def test_many_pseudo_members_leave_the_groups_mean(rows):
    """v -> the mean return-to-go of the prompt group's steps, GRPO's comparison step by step."""
    said = step_term(to_batch(rows), radii=(1.0, EPS), k=1e12)
    expected = cluster_mean(said.peers.__class__(said.peers.returns, said.peers.group, said.peers.action))
    np.testing.assert_allclose(said.v, expected, atol=1e-6)


@quick
@given(step_tables())
def test_constant_rewards_on_equal_lengths_give_nothing(rows):
    first = [{**row, "t": 0, "reward": 1.0} for row in rows if row["t"] == 0]
    np.testing.assert_allclose(step_term(to_batch(first)).value, 0.0, atol=1e-12)


def states_that_tell(noise, groups=40, members=8, seed=0):
    """Two states of one trajectory step, far apart, worth 0 and 4 in each prompt group."""
    random = np.random.default_rng(seed)
    state = random.integers(0, 2, groups * members)
    return build_batch(
        task=np.repeat(np.arange(groups), members).tolist(), trajectory=list(range(len(state))),
        t=[0] * len(state),
        reward=(4.0 * state + noise * random.standard_normal(len(state))).tolist(),
        observation=["s"] * len(state),
        action=["a"] * len(state), features=np.eye(2, dtype=np.float32)[state],
    ).batch  # fmt: skip


def test_pseudo_members_are_few_where_clusters_tell_and_many_where_they_do_not():
    made = multiscale(radii=(0.1,), trajectory=False)
    tell = advantages(states_that_tell(0.5), made).outcomes[-1].peers
    assert NestedV().chain(tell) == (PSEUDO_MEMBERS[0],)
    silent = states_that_tell(1.0)
    shuffled = np.random.default_rng(1).permutation(silent.features)
    blind = replace(silent, features=shuffled)
    assert NestedV().chain(advantages(blind, made).outcomes[-1].peers)[0] >= 8.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radii": (0.1, 0.1)}, "radii"),
        ({"radii": (0.1, 0.2)}, "radii"),
        ({"radii": ()}, "radii"),
        ({"radii": (3.0,)}, "radii"),
        ({"k": -1.0}, "k: -1.0"),
        ({"k": "moments"}, "k: "),
        ({"k": (1.0, 1.0)}, r"k: \(1.0, 1.0\), expected one number for each of 4 levels"),
        ({"k_action": -0.5}, "k_action"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        advantages(states_that_tell(1.0, groups=2), recipe("multiscale", **options))


def test_plain_labels_are_one_level_and_trajectory_terms_ignore_levels():
    batch = states_that_tell(1.0, groups=2)
    term = recipe("multiscale", trajectory=False).terms[0]
    flat = term.__class__(term.returns, by_prompt_group, q=own_return, v=NestedV(0.0))
    said = advantages(batch, recipe("multiscale").__class__("flat", (flat,))).outcomes[0]
    np.testing.assert_allclose(said.v, said.peers.mean)


@pytest.mark.parametrize("centroid", ["mean", "leader"])
def test_a_huge_group_is_clustered_vector_by_vector_with_the_same_labels(centroid, monkeypatch):
    random = np.random.default_rng(3)
    batch = states_that_tell(1.0, groups=3, members=30)
    features = (batch.features + 0.2 * random.standard_normal(batch.features.shape)).astype(np.float32)
    batch = replace(batch, features=features)
    at_once = nested_features(batch, (0.2, 0.05, 0.01), centroid)
    monkeypatch.setattr("bipace.core.multiscale.GRAM_ROWS", 10)
    np.testing.assert_array_equal(nested_features(batch, (0.2, 0.05, 0.01), centroid), at_once)
