"""What parts declare, what recipes do with it, and what a user's own part cannot break."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.core.advantages import Recipe, Term, advantages
from bipace.core.baselines import cluster_mean
from bipace.core.clustering import by_features, by_observation
from bipace.core.estimators import RECIPES, describe, recipe
from bipace.core.labels import canonical, label, ranked
from bipace.core.parts import needs, needs_of
from bipace.core.returns import return_to_go
from bipace.core.rows import DroppedRowsWarning, LoneGroupsWarning, build_batch
from strategies import step_tables, to_batch


def test_recipes_declare_what_they_need():
    needed = {name: set(recipe(name).needs) for name in RECIPES}
    assert {name for name, columns in needed.items() if columns} == {
        "bigpo",
        "diff_peer",
        "bipace",
        "multiscale",
    }
    assert recipe("bipace", eps="auto").needs == {"features"}
    assert recipe("bipace", clusters="chance").needs == {"features"}
    assert recipe("bipace", clusters="ngrams").needs == {"texts"}
    assert recipe("gigpo", similarity=0.9).needs == {"texts"}
    assert recipe("pooled", clusters="features").needs == {"features"}
    assert describe(recipe("bipace"))["needs"] == ["features"]


def test_a_clustering_of_ones_own_declares_by_a_decorator_or_an_attribute():
    @needs("features")
    def by_sign(batch):
        return (batch.features[:, 0] > 0).astype(int)

    @dataclass(frozen=True)
    class ByQuadrant:
        axis: int = 0
        needs = frozenset({"features"})

        def __call__(self, batch):
            return (batch.features[:, self.axis] > 0).astype(int)

    def undeclared(batch):
        return by_observation(batch)

    for clusters, needed in ((by_sign, {"features"}), (ByQuadrant(1), {"features"}), (undeclared, set())):
        made = Recipe("mine", (Term(return_to_go, clusters),))
        assert made.needs == needed
    assert describe(Recipe("mine", (Term(return_to_go, ByQuadrant(1)),)))["terms"][0]["clusters"] == {
        "name": "ByQuadrant",
        "axis": 1,
    }


def test_a_need_that_no_table_can_meet_is_refused():
    with pytest.raises(
        ValueError, match="needs: unknown column 'hidden'; a part may declare features, texts"
    ):
        needs("hidden")

    def wrong(batch):
        return by_observation(batch)

    wrong.needs = {"hidden"}
    with pytest.raises(ValueError, match="wrong: needs 'hidden'"):
        needs_of(wrong)


def test_map_reaches_the_terms_inside_blends():
    made = recipe("hgpo", base_group=True)
    heavier = made.map(lambda term: replace(term, weight=2.0))
    assert {term.weight for term in heavier.terms} == {2.0}
    assert len(heavier.terms) == len(made.terms)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Term(return_to_go, by_observation, unit="episode"), "unit: unknown 'episode'"),
        (lambda: Term(return_to_go, by_observation, weight=float("nan")), "weight: nan"),
        (lambda: Recipe("r", (), penalty="foo"), "penalty: unknown 'foo'"),
        (lambda: recipe("bipace", w=float("nan")), "weight: nan"),
        (lambda: recipe("hgpo", alpha=float("nan")), "weights: nan"),
        (lambda: recipe("bipace", leave_out="me"), "leave_out: unknown 'me'"),
        (lambda: recipe("bipace", clusters="random"), "clusters: unknown 'random'"),
        (lambda: recipe("bipace", clusters="ngrams", eps="auto"), "needs a number"),
    ],
)
def test_bad_choices_are_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def two_steps(**columns):
    given_columns = dict(
        task=[0, 0], trajectory=[0, 1], t=[0, 0], reward=[1.0, 0.0], observation=["s", "s"], action=["a", "b"]
    )
    return build_batch(**{**given_columns, **columns}).batch


def test_a_scale_of_zero_and_an_overflow_never_leave_as_numbers():
    def zero(peers):
        return np.zeros(len(peers.returns))

    with pytest.raises(ValueError, match="scale: zero gives 0 at row 0"):
        advantages(two_steps(), Recipe("r", (Term(return_to_go, by_observation, scale=zero),)))
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="recipe gigpo: its values overflow"):
        advantages(two_steps(reward=[8e307, -8e307]), recipe("gigpo", mode="mean_norm", w=3.0))


def test_a_part_of_ones_own_cannot_change_the_table():
    def greedy_baseline(peers):
        peers.returns[:] = 0
        return cluster_mean(peers)

    with pytest.raises(ValueError, match="read-only"):
        advantages(two_steps(), Recipe("r", (Term(return_to_go, by_observation, v=greedy_baseline),)))


def test_the_former_name_of_convention_is_understood_and_says_the_new_one():
    with pytest.warns(FutureWarning, match="habits is now called convention"):
        made = recipe("gigpo", habits="verl_agent")
    assert made == recipe("gigpo", convention="verl_agent")
    with pytest.raises(ValueError, match="both are given"):
        recipe("gigpo", habits="paper", convention="paper")


@pytest.mark.filterwarnings("ignore::bipace.core.rows.LoneGroupsWarning")
@settings(max_examples=80, deadline=None)
@given(
    step_tables(),
    st.randoms(use_true_random=False),
    st.sampled_from(["bigpo", "diff_peer", "bipace", "hgpo"]),
)
def test_shuffled_raw_rows_give_every_row_the_same_bits(rows, random, name):
    """Labels do not depend on arrival: at 0, 25 and 50 degrees and eps 0.1 the orders ABC and CBA
    differed.
    """
    names = ["rollout-b", "rollout-a", "rollout-c", "x", "10", "9", "", "z1", "z0", "y", "w", "v"]

    def raw(order):
        return build_batch(
            task=[f"task {rows[i]['task']}" for i in order],
            trajectory=[names[rows[i]["trajectory"]] for i in order],
            t=[rows[i]["t"] for i in order],
            reward=[rows[i]["reward"] for i in order],
            observation=[rows[i]["observation"] for i in order],
            action=[rows[i]["action"] for i in order],
            features=np.array([rows[i]["feature"] for i in order], np.float32),
        )

    order = list(range(len(rows)))
    first = raw(order)
    random.shuffle(order)
    second = raw(order)
    made = recipe(name)
    before = first.scatter(advantages(first.batch, made).values)
    after = second.scatter(advantages(second.batch, made).values)
    np.testing.assert_array_equal(after, before[order])


def test_three_vectors_in_two_orders_of_arrival():
    degrees = {"a": 0, "b": 25, "c": 50}

    def clusters(arrival):
        angle = np.deg2rad([degrees[name] for name in arrival])
        batch = build_batch(
            task=["g"] * 3, trajectory=list(arrival), t=[0] * 3, reward=[1.0, 0.0, 0.0],
            observation=["o"] * 3,
            action=["x"] * 3, features=np.stack([np.cos(angle), np.sin(angle)], axis=1),
        ).batch  # fmt: skip
        labels = by_features(batch, 0.1)
        return {
            frozenset(n for n, own in zip(arrival, labels, strict=True) if own == label)
            for label in set(labels)
        }

    assert clusters("abc") == clusters("cba") == clusters("bca")


def test_contents_are_compared_and_not_shortened_text():
    torch = pytest.importorskip("torch")
    big, other = np.zeros(5000), np.zeros(5000)
    other[2500] = 1.0

    class Holder:
        def __init__(self, array):
            self.array = array

    for make in (torch.tensor, Holder, lambda a: {"x": [a]}, lambda a: Holder(torch.tensor(a))):
        assert canonical(make(big)) == canonical(make(big.copy()))
        assert canonical(make(big)) != canonical(make(other))
    labels, _ = label(
        [1, 1.0, True, np.int64(1), np.float64(1), np.bool_(True), float("nan"), np.float64("nan")]
    )
    assert labels.tolist() == [0, 1, 2, 0, 1, 2, 3, 3]
    loop = Holder(None)
    loop.array = loop
    assert canonical(loop) == canonical(loop)


def test_ranks_follow_the_names():
    assert ranked([10, 9, 2, 10]).tolist() == [2, 1, 0, 2]
    assert ranked(["b", "a", "b"]).tolist() == [1, 0, 1]
    assert ranked(["b", None, 3]).tolist() == ranked(["b", None, 3][::-1]).tolist()[::-1]
    assert ranked([]).tolist() == []


def test_warnings_name_what_was_dropped():
    with pytest.warns(DroppedRowsWarning, match=r"non-finite reward at row 1; trajectory 't1' of task 'g'"):
        two_steps(task=["g", "g"], trajectory=["t0", "t1"], reward=[1.0, None])
    with pytest.warns(LoneGroupsWarning, match="is the task key unique per trajectory"):
        two_steps(task=["g", "h"])


def test_leaving_the_own_trajectory_out():
    """Five visits of one trajectory to a state that one other visits once: its own visits are no evidence."""
    batch = build_batch(
        task=["g"] * 7, trajectory=["a"] * 5 + ["b"] * 2, t=[0, 1, 2, 3, 4, 0, 1],
        reward=[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 3.0], observation=["s"] * 5 + ["s", "alone"], action=["x"] * 7,
    ).batch  # fmt: skip
    said = advantages(batch, recipe("gigpo", gamma=1.0, mode="mean_norm", leave_out="trajectory")).outcomes[1]
    np.testing.assert_allclose(said.value, [-2, -2, -2, -2, -2, 2, 0])
    alone = advantages(batch.take(np.arange(5)), recipe("gigpo", leave_out="trajectory")).outcomes[1]
    assert alone.value.tolist() == [0.0] * 5


def test_tables_of_the_strategies_meet_the_declared_needs():
    rows = [
        dict(task=0, trajectory=i, t=0, reward=float(i), observation="s", action="a", feature=[1.0])
        for i in (0, 1)
    ]
    for name in RECIPES:
        assert np.isfinite(advantages(to_batch(rows), recipe(name)).values).all()
