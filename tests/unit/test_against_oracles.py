"""Every recipe and switch gives, row for row, the numbers of a plain loop that shares none of its code."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle_parts
import oracles
from bipace.core import clustering, estimators, returns
from bipace.core.actions import action_tag, executed, executed_key, first_n, first_word, tag_verb
from bipace.core.advantages import advantages
from strategies import EPS, EXACT_GAMMAS, step_tables, to_batch

modes = st.sampled_from(["mean_norm", "mean_std_norm"])
convention = st.sampled_from(["paper", "verl_agent"])
level_modes = st.fixed_dictionaries({"mode": modes}) | st.fixed_dictionaries(
    {"trajectory_mode": st.none() | modes, "step_mode": st.none() | modes}
)
leave_out = {"leave_out": st.sampled_from(["nothing", "trajectory"])}
joint = {"w": st.sampled_from([0.0, 0.5, 1.0, 3.0]), "gamma": st.sampled_from([0.0, 0.5, 0.95, 1.0])}
state_side = {
    "eps": st.sampled_from([0.0, EPS / 2, EPS, 0.5, 1.0]),
    "centroid": st.sampled_from(["mean", "leader"]),
}
action_side = {
    "fallback": st.sampled_from(["no_diff_action", "no_same_action_peer", "never"]),
    "clusters": st.sampled_from(["features", "observation", "ngrams"]),
}
graph = {**state_side, "clusters": action_side["clusters"]}
SWITCHES = {
    "grpo": {"delta": st.sampled_from([1e-6, 1e-4, 1.0])},
    "dr_grpo": {},
    "rloo": {},
    "gigpo": {**joint, **leave_out, "similarity": st.sampled_from([None, 0.95, 0.5])},
    "hgpo": {
        "history": st.integers(0, 4),
        "alpha": st.sampled_from([0.0, 1.0, 2.0]),
        "weight_offset": st.sampled_from([0.0, 1.0]),
        "gamma": st.sampled_from(EXACT_GAMMAS),
        "mode": modes,
        "base_group": st.booleans(),
    },
    "salt": {"mode": modes, **graph},
    "mt_grpo": {
        "w": joint["w"],
        "gamma": st.sampled_from(EXACT_GAMMAS),
        "mode": modes,
        "reward_at_end": st.sampled_from(["trajectory", "turn"]),
    },
    "gagpo": {
        "gamma": st.sampled_from(EXACT_GAMMAS),
        "lam": st.sampled_from(EXACT_GAMMAS),
        "mode": modes,
        **graph,
    },
    "g2po": {"w": joint["w"], "gamma": st.sampled_from(EXACT_GAMMAS), "mode": modes, **graph},
    "graphgpo": {
        "w": joint["w"],
        "omega": st.sampled_from([0.1, 0.5]),
        "above": st.sampled_from([0.0, 0.0, 1.0]),
        "mode": modes,
        **graph,
    },
    "bigpo": {**joint, **state_side, **leave_out, "clusters": action_side["clusters"]},
    "diff_peer": {**joint, **state_side, **action_side},
    "bipace": {**joint, **state_side, **action_side, **leave_out},
    "pooled": {
        "k": st.sampled_from([0.0, 0.25, 2.0]),
        "k_action": st.sampled_from([0.0, 0.5]),
        "gamma": joint["gamma"],
        "mode": modes,
        **state_side,
        "clusters": action_side["clusters"],
    },
    "multiscale": {
        "radii": st.sampled_from([(0.5,), (0.5, EPS), (1.0, 0.5, EPS, 0.0)]),
        "k": st.sampled_from(["auto", "auto", 0.0, 0.5, 8.0]),
        "k_action": st.sampled_from([0.0, 0.5]),
        "w": joint["w"],
        "gamma": st.sampled_from(EXACT_GAMMAS),
        "trajectory": st.booleans(),
        "trajectory_mode": modes,
        "centroid": state_side["centroid"],
    },
}


def same_partition(labels, expected):
    pairs = set(zip(labels.tolist(), expected, strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_every_recipe_has_an_oracle():
    assert set(SWITCHES) == set(oracles.ESTIMATORS) == set(estimators.RECIPES)


@pytest.mark.parametrize("name", SWITCHES)
def test_an_oracle_takes_every_option_of_its_recipe(name):
    taken = set(inspect.signature(oracles.ESTIMATORS[name]).parameters) - {"rows"}
    assert taken == set(estimators.recipe_options(name))
    drawn = {*SWITCHES[name], "convention", "mode", "trajectory_mode", "step_mode", "whiten"}
    assert taken <= drawn | ({"eps", "centroid"} if name == "multiscale" else set())


def stretched_tables(count):
    """Tables whose features have three clear principal directions, so that whitening is no matter of
    rounding.
    """
    for seed in range(count):
        random = np.random.default_rng(seed)
        trajectory = np.sort(random.integers(0, 6, 24))
        t = np.concatenate([np.arange(n) for n in np.bincount(trajectory, minlength=6)])
        features = random.normal(size=(24, 4)) * (3.0, 1.0, 0.3, 0.1) + (2.0, 0.0, 0.0, 1.0)
        yield [
            {"task": i // 3, "trajectory": i, "t": int(t[n]), "reward": float(random.integers(0, 4)),
             "observation": "", "action": int(random.integers(0, 2)), "feature": features[n].tolist()}
            for n, i in enumerate(trajectory.tolist())
        ]  # fmt: skip


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("name", ["bigpo", "diff_peer", "bipace", "pooled"])
def test_whitening(name, directions):
    options = {"whiten": directions, "eps": 0.3, "clusters": "features"}
    several = 0
    for rows in stretched_tables(6):
        batch = to_batch(rows)
        expected = oracle_parts.by_features(oracle_parts.whitened(rows, directions), 0.3)
        assert same_partition(clustering.ByFeatures(0.3, "mean", directions)(batch), expected)
        several += 2 < len(set(expected)) < len(rows)
        values = advantages(batch, estimators.recipe(name, **options)).values
        np.testing.assert_allclose(values, oracles.ESTIMATORS[name](rows, **options), rtol=1e-9, atol=1e-9)
    assert several > 3  # there was something to compare


@pytest.mark.parametrize("name", SWITCHES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_recipes(name, data):
    rows = data.draw(step_tables(penalties=data.draw(st.booleans())))
    conventions = {"convention": convention} if "convention" in estimators.recipe_options(name) else {}
    options = data.draw(st.fixed_dictionaries({**SWITCHES[name], **conventions}))
    if name in ("gigpo", "bigpo", "diff_peer", "bipace"):
        options |= data.draw(level_modes)
    values = advantages(to_batch(rows), estimators.recipe(name, **options)).values
    np.testing.assert_allclose(values, oracles.ESTIMATORS[name](rows, **options), rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(step_tables(), st.sampled_from([0.0, 0.3, 0.8]), st.integers(1, 4))
def test_ngram_clusters(rows, eps, n):
    assert same_partition(clustering.by_ngrams(to_batch(rows), eps, n), oracle_parts.by_ngrams(rows, eps, n))


@settings(max_examples=60, deadline=None)
@given(step_tables(), st.sampled_from([0.0, EPS, 1.0]))
def test_clusters_by_chance_keep_the_sizes_of_every_prompt_group(rows, eps):
    batch = to_batch(rows)
    near = clustering.ByFeatures(eps)
    dealt = clustering.by_chance(batch, near)
    for task in set(batch.task.tolist()):
        inside = batch.task == task
        sizes = [
            sorted(np.unique(labels[inside], return_counts=True)[1].tolist())
            for labels in (near(batch), dealt)
        ]
        assert sizes[0] == sizes[1]
    assert not any(len(set(batch.task[dealt == label].tolist())) > 1 for label in set(dealt.tolist()))
    order = np.random.default_rng(0).permutation(len(batch))
    assert same_partition(clustering.by_chance(batch.take(order), near), dealt[order].tolist())


@settings(max_examples=60, deadline=None)
@given(step_tables(), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_returns(rows, gamma):
    batch = to_batch(rows)
    np.testing.assert_allclose(
        returns.trajectory_return(batch), oracle_parts.trajectory_return(rows), rtol=1e-12
    )
    np.testing.assert_allclose(
        returns.return_to_go(batch, gamma), oracle_parts.return_to_go(rows, gamma), rtol=1e-12
    )


@settings(max_examples=60, deadline=None)
@given(step_tables(), st.integers(1, 4), st.sampled_from([0.5, 0.95, 1.0]))
def test_text_clusterings(rows, k, ratio):
    batch = to_batch(rows)
    assert same_partition(clustering.by_prompt_group(batch), oracle_parts.by_prompt_group(rows))
    assert same_partition(clustering.by_observation(batch), oracle_parts.by_observation(rows))
    assert same_partition(clustering.by_history(batch, k), oracle_parts.by_history(rows, k))
    assert same_partition(clustering.by_similarity(batch, ratio), oracle_parts.by_similarity(rows, ratio))


@settings(max_examples=100, deadline=None)
@given(step_tables(max_steps=8), st.fixed_dictionaries(state_side), st.sampled_from(["gram", "plain"]))
def test_feature_clusters(rows, options, form):
    labels = clustering.by_features(to_batch(rows), **options, form=form)
    assert same_partition(labels, oracle_parts.by_features(rows, **options))


fragments = st.sampled_from(
    [
        "<action>",
        "</action>",
        "<ACTION>",
        " Go North ",
        "go",
        "\n",
        "<think>",
        "</think>",
        "<s_1>",
        "</S_1>",
        "a",
        " ",
    ]
)


@given(st.lists(fragments, max_size=8).map("".join))
def test_text_action_keys(response):
    assert action_tag(response).key == oracle_parts.action_tag(response)
    assert tag_verb(response).key == oracle_parts.tag_verb(response)
    assert first_word(response).key == oracle_parts.first_word(response)
    assert executed(response).key == oracle_parts.executed(response)


outcomes = st.tuples(
    st.sampled_from(["go", "GO ", "look", "", "refused"]), st.none() | st.just("go"), st.booleans()
)


@given(outcomes, outcomes, st.sampled_from(["many", "one"]))
def test_two_steps_share_the_executed_key_where_the_environment_did_the_same(a, b, refused):
    assert (executed_key(*a, refused) == executed_key(*b, refused)) == oracle_parts.same_execution(
        a, b, refused
    )


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 10))
def test_token_action_keys(tokens, n):
    assert first_n("", tokens, n).key == oracle_parts.first_n(tokens, n)
