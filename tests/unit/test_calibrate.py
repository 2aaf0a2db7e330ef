"""The label-free criterion and the radius it chooses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.core.advantages import advantages
from bipace.core.calibrate import GRID, ByCalibratedFeatures, calibrate, choose, hold, prediction_error
from bipace.core.clustering import by_features, by_observation, by_prompt_group
from bipace.core.diagnostics import credit_diagnostics
from bipace.core.estimators import recipe
from bipace.core.returns import return_to_go
from bipace.core.rows import build_batch
from strategies import step_tables, to_batch


def plain_error(rows, labels, values, k):
    """The criterion read off its definition, one row at a time."""
    errors = []
    for i, row in enumerate(rows):
        others = [j for j in range(len(rows)) if rows[j]["trajectory"] != row["trajectory"]]
        group = [values[j] for j in others if rows[j]["task"] == row["task"]]
        if group:
            peers = [values[j] for j in others if labels[j] == labels[i]]
            predicted = (sum(peers) + k * sum(group) / len(group)) / (len(peers) + k)
            errors.append((values[i] - predicted) ** 2)
    return sum(errors) / len(errors) if errors else 0.0


@settings(max_examples=60, deadline=None)
@given(step_tables(), st.sampled_from([0.25, 1.0, 3.0]))
def test_the_criterion_is_its_definition(rows, k):
    batch = to_batch(rows)
    values = return_to_go(batch, 0.5)
    for clustering in (by_observation, by_prompt_group, by_features):
        labels = clustering(batch)
        expected = plain_error(rows, labels.tolist(), values.tolist(), k)
        assert prediction_error(batch, labels, values, k) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(step_tables())
def test_the_chosen_labels_are_those_of_the_chosen_radius(rows):
    batch = to_batch(rows)
    found = calibrate(batch)
    np.testing.assert_array_equal(ByCalibratedFeatures()(batch), found.labels)
    expected = by_features(batch, eps=found.eps)
    pairs = set(zip(found.labels.tolist(), expected.tolist(), strict=True))
    assert len(pairs) == len(set(found.labels.tolist())) == len(set(expected.tolist()))
    assert min(error for _, _, error in found.curve) == {e: error for _, e, error in found.curve}[found.eps]


def two_states(noise=0.02):
    """Two states that earn 0 and 10, seen by 20 trajectories, with a little noise around two directions."""
    random = np.random.default_rng(0)
    kind = np.tile([0, 1], 20)
    features = np.eye(2, 8)[kind] + noise * random.standard_normal((40, 8))
    return build_batch(
        task=[0] * 40, trajectory=list(range(40)), t=[0] * 40, reward=(10.0 * kind).tolist(),
        observation=list(range(40)), action=["a"] * 40, features=features.astype(np.float32),
    ).batch  # fmt: skip


def test_states_that_differ_in_value_are_told_apart():
    found = calibrate(two_states())
    assert len(set(found.labels.tolist())) == 2
    assert found.eps not in (0.0, 2.0)


@pytest.mark.parametrize(("centroid", "expected"), [("leader", [0, 0, 1]), ("mean", [0, 0, 0])])
def test_the_centroid_rule_is_the_one_asked_for(centroid, expected):
    """The third vector is within 25 degrees of the mean of the first two, not of the first."""
    degrees = np.deg2rad([0, 20, 33])
    batch = build_batch(
        task=[0] * 3, trajectory=[0, 1, 2], t=[0] * 3, reward=[1.0, 0.0, 0.0], observation=[0, 1, 2],
        action=["a"] * 3,
        features=np.stack([np.cos(degrees), np.sin(degrees)], axis=1),
    ).batch  # fmt: skip
    grid = (1 - np.cos(np.deg2rad(25)),)
    assert calibrate(batch, grid=grid, centroid=centroid).labels.tolist() == expected
    made = recipe("bipace", eps="auto", centroid=centroid)
    held = hold(made, grid[0], 0)
    assert advantages(batch, held).outcomes[-1].peers.cluster.tolist() == expected
    assert made.terms[-1].clusters.centroid == centroid


def test_a_grid_of_one_point_is_that_point():
    found = calibrate(two_states(), grid=(0.3,))
    assert (found.eps, found.whiten, len(found.curve)) == (0.3, 0, 1)


def test_a_group_of_one_trajectory_predicts_nothing_and_breaks_nothing():
    batch = build_batch(
        task=[0, 0], trajectory=[0, 0], t=[0, 1], reward=[0.0, 1.0], observation=["a", "b"],
        action=["x", "x"],
        features=np.eye(2, dtype=np.float32),
    ).batch  # fmt: skip
    assert calibrate(batch).eps == GRID[0]


def test_the_choice_and_its_curve_are_logged():
    batch = two_states()
    made = recipe("bipace", eps="auto", whiten="auto")
    assert "features" in made.needs
    logged = credit_diagnostics(batch, advantages(batch, made))
    assert logged["credit/eps"] in GRID
    assert logged["credit/whiten"] in (0.0, 3.0)
    assert {f"credit/eps_error/{w}/{e:g}" for w in (0, 3) for e in GRID} <= set(logged)
    fixed = advantages(batch, recipe("bipace", eps=0.1))
    assert not any(name.startswith("credit/eps") for name in credit_diagnostics(batch, fixed))


@pytest.mark.parametrize(("name", "whiten"), [("bipace", 0), ("pooled", "auto")])
def test_a_held_choice_credits_as_the_choice_itself_and_is_not_made_again(name, whiten):
    batch = two_states()
    clusters = {"clusters": "features"}
    made = recipe(name, eps="auto", whiten=whiten, **clusters)
    chosen = choose(batch, made.terms)
    held = hold(made, chosen.eps, chosen.whiten)
    np.testing.assert_array_equal(advantages(batch, held).values, advantages(batch, made).values)
    assert choose(batch, held.terms) is None
    assert "features" in held.needs
    fixed = recipe(name, eps=0.05, **clusters)
    assert hold(fixed, chosen.eps, chosen.whiten) == fixed


@pytest.mark.parametrize("grid", [(), (-0.1,), (2.5,), (float("nan"),)])
def test_an_unusable_grid_is_refused(grid):
    with pytest.raises(ValueError, match="grid"):
        calibrate(two_states(), grid=grid)


def test_auto_without_features_says_what_to_do():
    batch = build_batch(task=[0], trajectory=[0], t=[0], reward=[1.0], observation=[0], action=[0]).batch
    with pytest.raises(ValueError, match="hidden states"):
        advantages(batch, recipe("bipace", eps="auto"))


def test_words_other_than_auto_are_refused():
    with pytest.raises(ValueError, match='"auto"'):
        recipe("bipace", eps="best")
    with pytest.raises(ValueError, match='eps="auto"'):
        recipe("bipace", whiten="auto")


def test_the_criterion_needs_a_prior():
    batch = two_states()
    with pytest.raises(ValueError, match="k: 0"):
        prediction_error(batch, by_observation(batch), batch.reward.copy(), k=0)
