"""The pair of layer and radius: the criterion by its definition, what it picks, what it refuses."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bipace.core.advantages import advantages
from bipace.core.agreement import HeldOut, reference_advantage
from bipace.core.calibrate import hold, open_directions
from bipace.core.clustering import ByFeatures
from bipace.core.diagnostics import degenerate_clusters
from bipace.core.estimators import recipe
from bipace.core.returns import return_to_go
from bipace.core.rows import build_batch
from bipace.core.scan import RADII, scan
from bipace.policies.gradients import _signed_bins, layer_states, output_gradient_sketches
from bipace.policies.hf import Actor
from bipace.policies.scoring import score as score_tokens
from bipace.truth.score import score
from bipace.truth.worlds import world_truth
from strategies import step_tables, to_batch


def plain_reference(rows, returns):
    """R less the mean of the other trajectories' steps with the same observation, shrunk to their group's
    mean.
    """
    found = []
    for i, row in enumerate(rows):
        others = [
            j for j, o in enumerate(rows) if o["task"] == row["task"] and o["trajectory"] != row["trajectory"]
        ]
        near = [returns[j] for j in others if rows[j]["observation"] == row["observation"]]
        mean = sum(returns[j] for j in others) / len(others) if others else 0.0
        found.append(returns[i] - (sum(near) + mean) / (len(near) + 1) if others else 0.0)
    return found


@settings(max_examples=40, deadline=None)
@given(step_tables())
def test_the_reference_is_its_definition(rows):
    batch = to_batch(rows)
    expected = plain_reference(rows, return_to_go(batch, 0.95).tolist())
    np.testing.assert_allclose(reference_advantage(batch), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(step_tables())
def test_the_agreement_is_its_definition(rows):
    """Every trajectory is held out on its own, one prompt group at a time, and all pairs of steps are
    visited.
    """
    batch = to_batch(rows)
    gradients = np.random.default_rng(0).standard_normal((len(rows), 5)).astype(np.float32)
    made = recipe("bipace", eps=0.1)
    found = HeldOut(batch, gradients).judge(batch, made)
    reference = reference_advantage(batch)
    gained = square = 0.0
    for trajectory in np.unique(batch.trajectory):
        own = np.flatnonzero(batch.trajectory == trajectory)
        group = np.flatnonzero((batch.task == batch.task[own[0]]) & (batch.trajectory != trajectory))
        if len(group):
            d = advantages(batch.take(group), made).values @ gradients[group].astype(float)
            gained += d @ (reference[own] @ gradients[own].astype(float))
            square += d @ d
    groups = len(np.unique(batch.task))
    sizes = [len(np.unique(batch.trajectory[batch.task == task])) for task in np.unique(batch.task)]
    if (
        len(set(sizes)) == 1
    ):  # otherwise a smaller group is whole while a larger one's last members are held out
        assert found.gained.sum() == pytest.approx(gained, rel=1e-4, abs=1e-4)
        assert found.square.sum() == pytest.approx(square, rel=1e-4, abs=1e-4)
    assert len(found.without_each()) == groups


@pytest.mark.parametrize("name", ["grid", "paraphrased", "random"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_pair_it_takes_is_within_a_few_hundredths_of_the_best_cosine(name, seed):
    options = {"states": 8, "ending": 0.05} if name == "random" else {}
    truth = world_truth(name, options, groups=12, group_size=8, seed=seed)
    layers = {layer: truth.layers[layer] for layer in ("spread", "squeezed")}
    made = recipe("bipace", eps="calibrate")
    found = scan(truth.batch, layers, truth.gradient, made, grid=RADII[::2])

    def cosine(pair):
        table = replace(truth.batch, features=layers[pair.layer])
        values = advantages(table, hold(made, pair.eps, pair.whiten)).values
        return float(score(truth, values, bootstraps=0)["gradient_cosine"][0])

    assert cosine(found.chosen) >= max(map(cosine, found.pairs)) - 0.03
    assert found.chosen in found.pairs
    assert f"eps {found.chosen.eps:g}" in found.why()
    assert found.level >= 1


def table(reward, group_size=4):
    n = len(reward)
    return build_batch(
        task=[i // group_size for i in range(n)], trajectory=list(range(n)), t=[0] * n, reward=reward,
        observation=["s"] * n, action=[i % 2 for i in range(n)], features=np.eye(n, 8, dtype=np.float32),
    ).batch  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (partial(table, [0.0] * 8), "none of 8 trajectories earned any reward"),
        (partial(table, [10.0] * 8), "always wins"),
        (partial(table, [0.0, 1.0, 0.0, 1.0], group_size=1), "one trajectory"),
    ],
)
@pytest.mark.filterwarnings("ignore::bipace.core.rows.LoneGroupsWarning")
def test_rollouts_that_teach_nothing_are_refused(batch, says):
    made = batch()
    with pytest.raises(ValueError, match=says):
        scan(
            made, {"1": made.features}, np.ones((len(made), 3), np.float32), recipe("bipace", eps="calibrate")
        )


def test_a_fixed_radius_an_empty_grid_and_gradients_of_others_are_refused():
    batch = table([0.0, 1.0] * 4)
    gradients, layers = np.ones((8, 3), np.float32), {"1": batch.features}
    with pytest.raises(ValueError, match="radius is fixed"):
        scan(batch, layers, gradients, recipe("bipace", eps=0.1))
    with pytest.raises(ValueError, match="at least one layer"):
        scan(batch, layers, gradients, recipe("bipace", eps="calibrate"), grid=())
    with pytest.raises(ValueError, match="7 vectors for 8 steps"):
        scan(batch, layers, gradients[1:], recipe("bipace", eps="calibrate"))


def test_an_open_radius_is_held_inside_controls_too_and_never_guessed():
    batch = table([0.0, 1.0] * 4)
    for clusters in ("features", "chance"):
        made = recipe("bipace", eps="calibrate", whiten="auto", clusters=clusters)
        assert open_directions(made) == (0, 3)
        with pytest.raises(ValueError, match="bipace calibrate"):
            advantages(batch, made)
        held = hold(made, 0.2, 3)
        assert open_directions(held) is None
        inner = held.terms[-1].clusters
        assert getattr(inner, "clusters", inner) == ByFeatures(0.2, "mean", 3)


def test_clusters_that_compare_nothing_or_everything_are_named():
    usual = {"lone_step_share": 0.2, "singleton_rate": 0.3, "largest_share": 0.4}
    assert degenerate_clusters(usual) == ""
    assert "larger credit.eps" in degenerate_clusters({**usual, "lone_step_share": 0.95})
    assert "smaller credit.eps" in degenerate_clusters({**usual, "singleton_rate": 0.0, "largest_share": 0.9})


def test_the_sketch_is_the_output_layers_gradient(tiny_actor_folder):
    """Every response's part of the gradient, by a plain forward of transformers, projected by the same
    signs.
    """
    actor = Actor.load(tiny_actor_folder)
    random = np.random.default_rng(0)
    tokens = [random.integers(3, 90, 30), random.integers(3, 90, 22)]
    spans = [((5, 9), (14, 20)), ((10, 11),)]
    found = output_gradient_sketches(actor, tokens, spans, temperature=0.7, micro_tokens=8)
    head = actor.model.get_output_embeddings()
    expected = []
    with torch.no_grad():
        for ids, of in zip(tokens, spans, strict=True):
            out = actor.model(torch.from_numpy(ids)[None], output_hidden_states=True)
            probabilities = torch.softmax(out.logits[0].float() / 0.7, dim=-1)
            states = out.hidden_states[-1][0].float()
            for a, b in of:
                whole = torch.zeros_like(head.weight, dtype=torch.float32)
                for t in range(a, b):
                    surprise = -probabilities[t - 1].clone()
                    surprise[ids[t]] += 1
                    whole += torch.outer(surprise, states[t - 1]) / 0.7
                expected.append((_signed_bins(len(whole), actor.device).T @ whole).flatten().numpy())
    np.testing.assert_allclose(found, np.stack(expected), atol=2e-4, rtol=1e-3)


def test_layers_are_those_of_single_forwards(tiny_actor_folder):
    actor = Actor.load(tiny_actor_folder)
    tokens, spans = [np.arange(5, 25), np.arange(8, 30)], [((4, 6), (9, 12)), ((7, 9),)]
    found = layer_states(actor, tokens, spans, range(actor.n_layers + 1), micro_tokens=8)
    for layer, features in found.items():
        each = [
            score_tokens(actor, [t], [s], layer=int(layer)).features
            for t, s in zip(tokens, spans, strict=True)
        ]
        np.testing.assert_allclose(features, torch.cat(each).numpy(), atol=1e-5)
