"""One test for each class of bug that users of this field reported, and small inputs with the outcome each
must have.

Tests are named after the class; project and thread where it was reported stand in brackets. (runs) is
`test_field_bugs_in_runs.py`: what shows only in runs is held there in small and in tests/slow in full.

| class | what goes wrong | tests |
|---|---|---|
| 1 | a lone member keeps its raw return; groups keyed by trajectory | test_1_* |
| 2 | groups by position or stride | test_2_* |
| 3 | the last step's mask used for earlier steps | (runs) test_3_*; test_update.py |
| 4 | rows weigh in the trajectory baseline | test_4_* |
| 5 | padding copies and aborted rollouts enter the statistics | test_5_*; slow/test_faults.py |
| 6 | None and NaN rewards; rounding blown up | test_6_* |
| 7 | outcome variance of a shaped reward | test_7_* |
| 8 | observations that crash, collide, or are the step index; one text under two tasks | test_8_* |
| 9 | an empty response mask divides by zero | test_9_*; (runs) test_9_* |
| 10 | hidden states of other requests, moved by padding; index slips | test_10_*; (runs) test_10_* |
| 11 | resuming at a pass's end; another estimator under an old name | (runs) test_11_*; slow/test_resume.py |
| 12 | tasks by file-system order; tasks twice in validation | (runs) test_12_*; test_panels.py |
| 13 | tokens re-encoded; overlong prompts crash | (runs) test_13_*; test_collect.py, test_13_overlong_* |
"""

import warnings

import numpy as np
import pytest

from bipace.core import clustering
from bipace.core.actions import action_tag
from bipace.core.advantages import Branch, advantages
from bipace.core.calibrate import prediction_error
from bipace.core.diagnostics import batch_diagnostics, cluster_diagnostics
from bipace.core.estimators import RECIPES, recipe
from bipace.core.greedy import greedy_cosine
from bipace.core.labels import label
from bipace.core.returns import return_to_go
from bipace.core.rows import DroppedRowsWarning, LoneGroupsWarning, build_batch

STEP_RECIPES = ["gigpo", "hgpo", "bigpo", "diff_peer", "bipace", "pooled"]


def table(rewards, *, task=None, observation=None, action=None, lengths=None, **options):
    """One trajectory a reward, of the given lengths, paid on its last step."""
    lengths = lengths or [1] * len(rewards)
    steps = [(i, t) for i, n in enumerate(lengths) for t in range(n)]
    n = len(steps)
    return build_batch(
        task=[(task or [0] * len(rewards))[i] for i, _ in steps],
        trajectory=[i for i, _ in steps],
        t=[t for _, t in steps],
        reward=[(rewards[i] if t == lengths[i] - 1 else 0.0) for i, t in steps],
        observation=observation or ["start"] * n,
        action=action or ["a"] * n,
        features=np.eye(4, dtype=np.float32)[[t % 4 for _, t in steps]],
        **options,
    )


def values(rows, name, **options):
    return rows.scatter(advantages(rows.batch, recipe(name, **options)).values)


@pytest.mark.parametrize("name", RECIPES)
def test_1_a_lone_member_never_gets_its_raw_return(name):
    """(verl 7793)"""
    assert values(table([10.0]), name).tolist() == [0.0]
    assert batch_diagnostics(table([10.0]).batch)["lone_groups"] == 1


def test_1_prompt_groups_are_keyed_by_task_not_by_trajectory():
    """(rllm 605) Keyed by the trajectory's id nothing would ever be centred."""
    assert values(table([1.0, 0.0]), "dr_grpo").tolist() == [0.5, -0.5]


@pytest.mark.parametrize("name", RECIPES)
def test_2_groups_are_not_found_by_position_or_stride(name):
    """(AReaL 1419, prime-rl 600) A partial group and any row order leave every other row's number as it
    was.
    """
    whole = table([1.0, 0.0, 0.0, 1.0, 0.0], task=["p", "p", "p", "q", "q"], lengths=[2, 1, 3, 2, 1])
    order = np.random.default_rng(0).permutation(len(whole.batch))
    shuffled = whole.batch.take(order)
    expected = advantages(whole.batch, recipe(name)).values
    np.testing.assert_array_equal(advantages(shuffled, recipe(name)).values, expected[order])
    alone = table([1.0, 0.0], task=["q", "q"], lengths=[2, 1])
    fixed = {"k": 0.5} if name == "multiscale" else {}  # its pseudo-members are chosen on the whole batch
    np.testing.assert_allclose(values(whole, name, **fixed)[-3:], values(alone, name, **fixed), rtol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_4_long_episodes_do_not_weigh_more_in_the_trajectory_baseline(name):
    """(agent-lightning 489)"""
    short, long = table([1.0, 0.0], lengths=[1, 1]), table([1.0, 0.0], lengths=[1, 9])
    assert values(short, name)[:2].tolist() == values(long, name)[:2].tolist()


@pytest.mark.parametrize("name", RECIPES)
def test_5_padding_copies_leave_the_originals_bit_equal(name):
    """(verl 5969)"""
    steps = dict(
        task=[0] * 3, trajectory=[0, 1, 2], t=[0] * 3, reward=[1.0, 0.0, 0.3], observation=["s"] * 3,
        action=["a", "b", "a"], features=np.ones((3, 2), np.float32),
    )  # fmt: skip
    padded = {k: np.concatenate([v, v[:2]]) if k == "features" else [*v, *v[:2]] for k, v in steps.items()}
    with_copies = build_batch(**padded, padding=[False] * 3 + [True] * 2)
    assert values(with_copies, name)[:3].tolist() == values(build_batch(**steps), name).tolist()
    assert with_copies.dropped == {"padding": 2}


@pytest.mark.parametrize("name", RECIPES)
def test_5_aborted_rollouts_do_not_shift_the_baseline(name):
    """(miles 2800)"""
    aborted = table([1.0, 0.0, 0.0], aborted=[False, False, True])
    assert values(aborted, name).tolist() == [*values(table([1.0, 0.0]), name).tolist(), 0.0]


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("name", RECIPES)
def test_6_one_bad_reward_does_not_poison_its_siblings(name, bad):
    """(trl 5902)"""
    with pytest.warns(DroppedRowsWarning, match="reward"):
        rows = table([1.0, bad, 0.0, 0.0])
    found = values(rows, name)
    np.testing.assert_array_equal(found[[0, 2, 3]], values(table([1.0, 0.0, 0.0]), name))
    assert found[1] == 0.0
    with pytest.raises(ValueError, match="reward"):
        table([1.0, bad, 0.0], strict=True)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("reward", [0.1, 1.0, 0.35])
def test_6_rounding_of_equal_rewards_is_never_blown_up(name, reward):
    """(NeMo-RL 4158) Seven equal rewards: exactly 0."""
    assert set(values(table([reward] * 7), name).tolist()) == {0.0}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("rewards", [[0.35] * 7 + [0.0], [0.95 + 1e-8, 0.95 - 1e-8, 0.95]])
def test_6_a_normalised_term_is_bounded_by_the_root_of_its_members(name, rewards):
    terms = len(recipe(name).parts) * (2 if name in ("diff_peer", "rloo") else 1)
    assert np.abs(values(table(rewards), name)).max() <= terms * np.sqrt(len(rewards))


@pytest.mark.parametrize("name", RECIPES)
def test_7_an_all_fail_group_with_penalties_gives_only_the_penalty(name):
    """(verl-recipe 125) Outcome variance is not judged on a shaped reward."""
    found = values(table([0.0, 0.0, 0.0], penalty=[0.1, 0.0, 0.0]), name)
    np.testing.assert_allclose(found, [-0.1, 0.0, 0.0], atol=1e-12)
    assert batch_diagnostics(table([0.0, 0.0], penalty=[0.1, 0.0]).batch)["flat_groups"] == 1


def test_8_observations_of_any_type_have_a_label_and_never_collide():
    """(Agent-R1 94)"""
    things = [None, 1, 1.0, True, "1", {"a": 1}, {"a": 1.0}, np.ones(2), [1, 2], (1, 2), float("nan"), set()]
    labels, distinct = label([*things, *things])
    assert len(distinct) == len(things)
    assert labels[: len(things)].tolist() == labels[len(things) :].tolist()


def test_8_the_state_key_is_not_the_step_index():
    """(Mem-alpha 14) The same observation at two step indices is one cluster, two at one index are not."""
    rows = table([1.0, 0.0], lengths=[2, 2], observation=["x", "y", "y", "x"])
    labels = clustering.by_observation(rows.batch)
    assert labels[0] == labels[3] != labels[1]


@pytest.mark.parametrize("name", STEP_RECIPES)
def test_8_the_same_text_under_two_tasks_is_never_one_cluster(name):
    with pytest.warns(LoneGroupsWarning, match="all 2 prompt groups hold one trajectory"):
        apart = table([10.0, 0.0], task=["p", "q"])
    assert values(apart, name).tolist() == [0.0, 0.0]


def test_9_an_empty_table_and_an_empty_response_break_nothing():
    """(verl 7970) No step carries a mask here, and no step at all is an empty answer."""
    features = np.zeros((0, 4), np.float32)
    empty = build_batch(task=[], trajectory=[], t=[], reward=[], observation=[], action=[], features=features)
    for name in RECIPES:
        assert values(empty, name).shape == (0,)
    for options in ({"whiten": 3}, {"eps": "auto", "whiten": "auto"}):
        assert values(empty, "bipace", **options).shape == (0,)
    assert action_tag("").key == ""


def test_10_vectors_of_another_prompt_group_change_nothing():
    """(sglang 4997, agent-context-grpo) Unrelated groups before the group under test: no local/global
    slip.
    """
    own = table([1.0, 0.0, 0.5], lengths=[2, 2, 2])
    for before in (1, 3):
        many = table(
            [0.3] * before + [1.0, 0.0, 0.5], task=["z"] * before + [0] * 3, lengths=[3] * before + [2] * 3
        )
        for name in ("bigpo", "bipace", "gigpo"):
            np.testing.assert_array_equal(values(many, name)[-6:], values(own, name))


# ---- small inputs with the outcome each must have
# --------------------------------------------------------------------


def test_one_rollout_that_loops_is_flagged_and_predicts_nothing():
    rows = table([1.0, 0.0], lengths=[5, 1], observation=["loop"] * 5 + ["elsewhere"])
    found = advantages(rows.batch, recipe("gigpo"))
    clusters = cluster_diagnostics(rows.batch, found.outcomes[1])
    assert (clusters["cluster_size_max"], clusters["loop_clusters"]) == (5, 1)
    returns = return_to_go(rows.batch)
    split, lumped = clustering.by_observation(rows.batch), clustering.by_prompt_group(rows.batch)
    lone = np.arange(len(rows.batch))
    # Left to the other trajectories, the loop says no more than lone steps do.
    assert prediction_error(rows.batch, split, returns) == prediction_error(rows.batch, lone, returns)
    assert prediction_error(rows.batch, lumped, returns) == pytest.approx(
        prediction_error(rows.batch, lone, returns)
    )


def test_vectors_at_exactly_eps_join_and_zero_vectors_stand_alone():
    at_eps = np.array([[1.0, 0.0], [0.9, np.sqrt(1 - 0.81)]])
    for features in (at_eps, at_eps.astype(np.float16).astype(np.float32) * 1.0, at_eps.astype(np.float32)):
        assert greedy_cosine(features, 0.1 + 1e-3).tolist() == [0, 0]
    assert greedy_cosine(at_eps, 0.1).tolist() == [0, 0]
    assert greedy_cosine(np.zeros((2, 2)), 0.5).tolist() == [0, 1]
    assert greedy_cosine(np.ones((2, 2), np.float16), 0.0).tolist() == [0, 0]


def test_a_nan_vector_drops_its_trajectory_and_says_so():
    steps = dict(
        task=[0, 0], trajectory=[0, 1], t=[0, 0], reward=[1.0, 0.0], observation=["s"] * 2, action=["a"] * 2
    )
    with pytest.warns(DroppedRowsWarning, match="features"):
        rows = build_batch(**steps, features=np.array([[1.0, np.nan], [1.0, 0.0]]))
    assert rows.kept.tolist() == [1]
    with pytest.raises(ValueError, match="features"):
        build_batch(**steps, features=np.array([[1.0, np.nan], [1.0, 0.0]]), strict=True)


def test_every_response_has_a_key_and_a_missing_tag_is_told():
    assert action_tag("I go") == ("i go", False)
    assert action_tag("<action> A </action><action>b</action>") == ("a", True)
    assert action_tag("<ACTION>Put X In/On Y</ACTION>") == ("put x in/on y", True)
    assert action_tag("<action>move x to y</action>").key != action_tag("<action>put x in/on y</action>").key


def test_a_cluster_with_one_action_is_counted_and_the_switch_decides():
    rows = table([1.0, 0.0, 0.0])
    falls, never = (
        advantages(rows.batch, recipe("bipace", fallback=f)).outcomes[1] for f in ("no_diff_action", "never")
    )
    assert set(falls.branch.tolist()) == {Branch.FALLBACK}
    assert falls.value[0] > 0
    assert set(never.branch.tolist()) == {Branch.COMPARED}
    assert set(never.value.tolist()) == {0.0}


def test_a_reward_on_the_last_step_only_is_discounted_back():
    np.testing.assert_allclose(return_to_go(table([10.0], lengths=[3]).batch, 0.5), [2.5, 5.0, 10.0])


def test_no_warning_where_nothing_is_wrong():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table([1.0, 0.0])
