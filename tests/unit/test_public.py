"""The public boundary: what `bipace` exports is enough for a recipe of one's own, documented, and does not
shrink.
"""

import inspect

import numpy as np
import pytest

import bipace
from bipace.core.names import current_name, nearest, unknown, with_current_names

STABLE = """
ACTION_KEYS ActionKey Advantages Blend Bools Branch ByFeatures ByHistory BySimilarity Clustering
DroppedRowsWarning Floats Ints LoneGroupsWarning Outcome Peers RECIPES Recipe Return ReturnToGo Rows
StepBatch Term advantages build_batch by_observation by_prompt_group cluster_mean cluster_std
credit_diagnostics describe leave_one_out leave_trajectory_out needs never no_diff_action
no_same_action_peer no_scale other_actions_mean own_return recipe return_to_go same_action_mean
trajectory_return
"""

OWN = """
from bipace import ByFeatures, Recipe, ReturnToGo, Term, by_observation, by_prompt_group, cluster_std
from bipace import no_same_action_peer, same_action_mean, trajectory_return


def whole_returns():
    return Term(trajectory_return, by_prompt_group, unit="trajectory", scale=cluster_std)


def state_groups(w: float = 1.0):
    step = Term(ReturnToGo(0.95), by_observation, scale=cluster_std, weight=w)
    return Recipe("state_groups", (whole_returns(), step))


def action_values(eps: float = 0.05):
    step = Term(ReturnToGo(0.95), ByFeatures(eps), q=same_action_mean, fallback=no_same_action_peer)
    return Recipe("action_values", (whole_returns(), step))
"""


def rows(seed=0, size=40):
    random = np.random.default_rng(seed)
    trajectory = np.sort(random.integers(0, 8, size))
    return {
        "task": trajectory // 4, "trajectory": trajectory,
        "t": np.concatenate([np.arange(n) for n in np.bincount(trajectory, minlength=8)]),
        "reward": random.integers(0, 3, size).astype(float), "observation": random.integers(0, 3,
        size).astype(str),
        "action": random.integers(0, 3, size).astype(str), "features": random.normal(size=(size,
        3)).astype(np.float32),
    }  # fmt: skip


def test_no_stable_name_is_missing_and_each_says_what_it_is():
    assert set(bipace.__all__) >= set(STABLE.split())
    for name in bipace.__all__:
        value = getattr(bipace, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert inspect.getdoc(value), name


@pytest.mark.parametrize(("own", "shipped"), [("state_groups", "gigpo"), ("action_values", "bipace")])
def test_what_is_exported_is_enough_to_write_the_shipped_methods(own, shipped, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    batch = bipace.build_batch(**rows()).batch
    mine = bipace.advantages(batch, bipace.recipe(f"{tmp_path / 'own.py'}:{own}")).values
    assert np.array_equal(mine, bipace.advantages(batch, bipace.recipe(shipped)).values)
    assert np.abs(mine).max() > 0.1


def test_objects_print_short_in_a_notebook():
    made = bipace.build_batch(**rows())
    found = bipace.advantages(made.batch, bipace.recipe("hgpo"))
    shown = [made, made.batch, found, found.outcomes[0], found.outcomes[0].term]
    shown += [bipace.recipe(name) for name in bipace.RECIPES]
    assert all(len(repr(thing)) <= 200 and " at 0x" not in repr(thing) for thing in shown)
    assert repr(made.batch).startswith(f"<StepBatch: {len(made.batch)} steps, ")
    assert repr(found).startswith(f"<Advantages: {len(made.batch)} values from {found.values.min():.3g} to ")
    nothing = bipace.advantages(made.batch.take(np.arange(0)), bipace.recipe("gigpo"))
    assert repr(nothing) == "<Advantages: 0 values, 2 terms>"


def test_advantages_of_something_else_than_a_table_says_how_to_come_by_one():
    made = bipace.build_batch(**rows())
    with pytest.raises(TypeError, match=r"^batch: a Rows, expected a bipace.StepBatch; give .*, rows.batch$"):
        bipace.advantages(made, bipace.recipe("gigpo"))
    with pytest.raises(
        TypeError, match=r"^batch: a list, expected .*; bipace.build_batch\(...\).batch is one$"
    ):
        bipace.advantages([], bipace.recipe("gigpo"))
    with pytest.raises(
        TypeError, match=r"^recipe: a str, expected a bipace.Recipe; give bipace.recipe\('rloo'\)$"
    ):
        bipace.advantages(made.batch, "rloo")
    with pytest.raises(
        TypeError, match=r"^recipe: a function, expected a bipace.Recipe; give bipace.recipe\("
    ):
        bipace.advantages(made.batch, bipace.recipe)


def test_an_unknown_name_is_answered_with_the_nearest_and_all():
    assert (
        unknown("colour", "gren", ["red", "green"])
        == "colour: unknown 'gren'; did you mean 'green'? Known: red, green"
    )
    assert unknown("colour", "x", ["red", "green"]) == "colour: unknown 'x'. Known: red, green"
    assert (nearest("", ["a"]), nearest("", ["a"], least=0.0), nearest("a", [])) == (None, "a", None)


def test_former_names_are_understood_once_and_never_beside_the_new():
    with pytest.warns(
        FutureWarning, match="wave is now called parallel; the former name goes with the next release"
    ):
        assert with_current_names({"wave": 3, "seed": 1}, {"wave": "parallel"}) == {"parallel": 3, "seed": 1}
    with pytest.raises(
        ValueError, match="wave: is the former name of parallel, and both are given; keep parallel"
    ):
        with_current_names({"wave": 3, "parallel": 3}, {"wave": "parallel"})
    assert current_name("seed", {"wave": "parallel"}) == "seed"
