"""Transitions and turns: hand-counted values, ends that are none, loops, and what no method may depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.core.advantages import Branch, advantages
from bipace.core.diagnostics import batch_diagnostics
from bipace.core.estimators import recipe
from bipace.core.graph import distances, next_rows, succeeded
from bipace.core.rows import build_batch
from strategies import EPS, step_tables, to_batch

NAMES = ["salt", "mt_grpo", "gagpo", "g2po", "graphgpo"]
BY_STATE = ["salt", "gagpo", "g2po", "graphgpo"]
quick = settings(max_examples=40, deadline=None)


def episodes(*paths, task=None, actions=None, rewards=None, cut=(), **more):
    """One trajectory a path of observations; the reward of its last step is 10, or as given."""
    steps = [(i, t, o) for i, path in enumerate(paths) for t, o in enumerate(path)]
    last = [t == len(paths[i]) - 1 for i, t, _ in steps]
    paid = rewards or [10.0] * len(paths)
    return build_batch(
        task=[(task or [0] * len(paths))[i] for i, _, _ in steps],
        trajectory=[i for i, _, _ in steps],
        t=[t for _, t, _ in steps],
        reward=[paid[i] * end for (i, _, _), end in zip(steps, last, strict=True)],
        observation=[o for _, _, o in steps],
        action=actions or ["a"] * len(steps),
        terminated=[end and i not in cut for (i, _, _), end in zip(steps, last, strict=True)],
        truncated=[end and i in cut for (i, _, _), end in zip(steps, last, strict=True)],
        **more,
    ).batch


def step_part(batch, name, **options):
    found = advantages(batch, recipe(name, **options))
    return sum(o.value for o in found.outcomes if o.term.unit == "step")


def test_next_rows_and_success_by_hand():
    batch = episodes("ab", "a", "abc", rewards=[10.0, 0.0, 10.0], cut=(2,))
    assert next_rows(batch).tolist() == [1, -1, -1, 4, 5, -1]
    assert succeeded(batch).tolist() == [True, True, False, False, False, False]
    assert not succeeded(batch, above=10.0).any()


def test_distances_by_hand():
    """0 -> 1 -> 3 and 0 -> 2 -> 2 (a loop); 4 is alone; 3 is the goal."""
    source, target = np.array([0, 1, 0, 2]), np.array([1, 3, 2, 2])
    assert distances(source, target, np.array([3]), 5).tolist() == [2, 1, -1, 0, -1]
    assert distances(source[:0], target[:0], np.array([3]), 5).tolist() == [-1, -1, -1, 0, -1]


def test_salt_by_hand():
    """Both take a to b by the same action; what they do there differs. Success 10 and 0.

    Advantages +-1/sqrt 2.
    """
    batch = episodes("ab", "ab", rewards=[10.0, 0.0], actions=["x", "x", "x", "y"])
    half = 5.0 / (np.sqrt(50.0) + 1e-6)
    np.testing.assert_allclose(advantages(batch, recipe("salt")).values, [0.0, half, 0.0, -half], atol=1e-12)


def test_turns_by_hand():
    """One ends at once with 4, one goes on to 2: at turn 1 the mean over both is 1, at turn 0 it is 3."""
    batch = episodes("a", "ab", rewards=[4.0, 2.0])
    found = advantages(batch, recipe("mt_grpo", reward_at_end="turn", mode="mean_norm")).values
    np.testing.assert_allclose(found, [1.0, -1.0, 1.0])


def test_the_turns_baseline_does_not_depend_on_when_an_episode_stops():
    """Rewards on the way are 1 a turn.

    With the sum over turns played alone a longer episode would get a bonus.
    """
    batch = build_batch(
        task=[0] * 4, trajectory=[0, 1, 1, 1], t=[0, 0, 1, 2], reward=[1.0, 1.0, 1.0, 0.0],
        observation=["s"] * 4,
        action=["a"] * 4,
    ).batch  # fmt: skip
    said = advantages(batch, recipe("mt_grpo", reward_at_end="turn", mode="mean_norm")).outcomes[0]
    assert said.v[0] == said.v[1] == 1.5
    assert said.v[2:].tolist() == [0.5, 0.0]


@quick
@given(step_tables(), st.sampled_from(["mean_norm", "mean_std_norm"]))
def test_without_turn_rewards_mt_grpo_is_grpo(rows, mode):
    lasts = {
        row["trajectory"]: max(r["t"] for r in rows if r["trajectory"] == row["trajectory"]) for row in rows
    }
    paid = [{**row, "reward": row["reward"] * (row["t"] == lasts[row["trajectory"]])} for row in rows]
    plain = recipe("grpo" if mode == "mean_std_norm" else "dr_grpo")
    found = advantages(to_batch(paid), recipe("mt_grpo", mode=mode)).values
    np.testing.assert_allclose(found, advantages(to_batch(paid), plain).values, atol=1e-9)


def test_td_with_lambda_1_is_return_less_value():
    batch = episodes("abc", "abd", "ab", rewards=[10.0, 0.0, 4.0])
    said = advantages(batch, recipe("gagpo", lam=1.0, gamma=1.0, mode="mean_norm")).outcomes[0]
    value = {"a": 14 / 3, "b": 14 / 3, "c": 10.0, "d": 0.0}
    returns = [10, 10, 10, 0, 0, 0, 4, 4]
    expected = [r - value[s] for r, s in zip(returns, "abcabdab", strict=True)]
    np.testing.assert_allclose(said.q, expected, atol=1e-12)


def test_graphgpo_by_hand():
    """a -> b -> goal is two steps, a -> c -> b -> goal three.

    From a, b is worth 10 omega and c is worth 10 omega^2.
    """
    batch = episodes("ab", "acb")
    found = step_part(batch, "graphgpo", omega=0.5, mode="mean_norm")
    np.testing.assert_allclose(found, [1.25, 0.0, -1.25, 0.0, 0.0])


def test_a_detour_of_a_failed_episode_is_worth_what_others_made_of_it():
    """The second fails but comes to b, from which the first succeeded; the third leaves for a dead end."""
    batch = episodes("ab", "ab", "ax", rewards=[10.0, 0.0, 0.0], actions=["x", "x", "x", "y", "z", "z"])
    found = step_part(batch, "graphgpo", mode="mean_norm")
    assert found[0] == found[2] > 0 > found[4]
    assert found[1] > 0 > found[3]


def test_g2po_by_hand():
    """gamma 1: V(a) = 5, V(b) = 10, V(c) = 0. From a: reached 10 and 0; gains 5, 0, -5, 0 have the mean 0."""
    batch = episodes("ab", "ac", rewards=[10.0, 0.0])
    found = step_part(batch, "g2po", gamma=1.0, mode="mean_norm")
    np.testing.assert_allclose(found, [5.0 + 5.0, 0.0, -5.0 - 5.0, 0.0])


@pytest.mark.parametrize("mode", ["mean_norm", "mean_std_norm"])
def test_no_success_anywhere_gives_no_signal_and_is_counted(mode):
    batch = episodes("ab", "abab", "ac", rewards=[0.0, 0.0, 0.0])
    for name in NAMES:
        assert not advantages(batch, recipe(name, mode=mode)).values.any(), name
    assert batch_diagnostics(batch)["failed_groups"] == 1
    negative = episodes("ab", "ac", rewards=[-1.0, -2.0])
    assert not step_part(negative, "graphgpo", mode=mode).any()


def test_a_cut_episode_makes_no_terminal():
    """Both end in b by one action; a horizon cut the second.

    It is no success, and its end is compared with nothing.
    """
    batch = episodes("ab", "ab", cut=(1,))
    said = advantages(batch, recipe("graphgpo")).outcomes[-1]
    assert said.branch[3] == Branch.LONE
    assert said.value[3] == 0
    both = advantages(episodes("ab", "ab"), recipe("graphgpo")).outcomes[-1]
    assert both.branch[3] == Branch.COMPARED
    edges = advantages(batch, recipe("salt")).outcomes[0].peers.cluster
    assert edges[1] != edges[3]
    assert edges[0] == edges[2]


def test_loops_lengthen_no_distance():
    straight, looped = episodes("ab", "ac", rewards=[10, 0]), episodes("aaab", "ac", rewards=[10, 0])
    a, b = (advantages(x, recipe("graphgpo")).outcomes[-1].peers.returns for x in (straight, looped))
    assert a[0] == b[2] == 1.0
    assert a[1] == b[3] == 10.0
    assert b[0] == b[1] == pytest.approx(0.1)  # a loop leads to a, two steps from the goal


@quick
@given(step_tables(penalties=True), st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_row_order_does_not_matter_bit_for_bit(rows, name, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    batch = to_batch(rows)
    expected = advantages(batch, recipe(name)).values
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(
        advantages(batch.take(np.array(order)), recipe(name)).values, expected[order]
    )


@quick
@given(step_tables(), st.sampled_from(NAMES), st.sampled_from(["observation", "features"]))
def test_groups_do_not_depend_on_each_other(rows, name, clusters):
    options = {"clusters": clusters, "eps": EPS} if name in BY_STATE else {}
    whole = advantages(to_batch(rows), recipe(name, **options)).values
    for task in {row["task"] for row in rows}:
        inside = [i for i, row in enumerate(rows) if row["task"] == task]
        alone = advantages(to_batch([rows[i] for i in inside]), recipe(name, **options)).values
        np.testing.assert_allclose(whole[inside], alone, rtol=1e-9, atol=1e-12)


@quick
@given(step_tables(max_group=1), st.sampled_from([n for n in NAMES if n not in ("g2po", "graphgpo")]))
def test_a_lone_trajectory_is_credited_nothing(rows, name):
    assert not advantages(to_batch(rows), recipe(name)).values.any()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gagpo", {"lam": 1.5}, "lam: 1.5"),
        ("gagpo", {"gamma": -0.1}, "gamma: -0.1"),
        ("g2po", {"gamma": 2.0}, "gamma: 2.0"),
        ("graphgpo", {"omega": 1.0}, "omega: 1.0"),
        ("graphgpo", {"omega": 0.0}, "omega: 0.0"),
        ("mt_grpo", {"gamma": 1.1}, "gamma: 1.1"),
        ("mt_grpo", {"reward_at_end": "never"}, "reward_at_end"),
        ("salt", {"mode": "median"}, "mode"),
        ("salt", {"clusters": "features"}, "features: None"),
    ],
)
def test_bad_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        advantages(episodes("ab", "ac"), recipe(name, **options))


def test_an_empty_table():
    batch = episodes("ab").take(np.zeros(0, np.int64))
    for name in NAMES:
        assert advantages(batch, recipe(name)).values.shape == (0,)


def test_states_of_hidden_states_are_declared():
    for name in BY_STATE:
        assert recipe(name).needs == frozenset()
        assert recipe(name, clusters="features").needs == {"features"}


def test_a_turn_at_which_all_earned_the_same_adds_nothing_not_even_rounding():
    def value(shared):
        rewards = np.array([[shared, 1.0], [shared, 0.0], [shared, 0.3]])
        batch = build_batch(
            task=[0] * 6, trajectory=np.repeat([0, 1, 2], 2), t=[0, 1] * 3, reward=rewards.ravel(),
            observation=["s"] * 6, action=["a"] * 6,
        ).batch  # fmt: skip
        return advantages(batch, recipe("mt_grpo", reward_at_end="turn")).values

    assert np.array_equal(value(10.1), value(0.0))
