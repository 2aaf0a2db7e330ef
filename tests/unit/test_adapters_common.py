"""The common room of the adapters, piece by piece (as a whole: tests/adapters)."""

from __future__ import annotations

import numpy as np
import pytest

from bipace.core.estimators import describe, recipe
from bipace.integrations.common.estimator import Estimator
from bipace.integrations.common.guards import check_group_size, check_version, select
from bipace.integrations.common.preflight import Report, checked
from bipace.integrations.common.rows import EngineStep, UndeclaredPaddingWarning, to_table
from bipace.integrations.common.settings import CreditSettings, Settings, read_settings
from bipace.integrations.common.spread import along_spans, over_mask, written_runs
from bipace.train.config import Config


def step(**more):
    return EngineStep(
        **{"group": "g", "trajectory": 0, "t": 0, "observation": "o", "action": "a", "reward": 1.0, **more}
    )


def test_runs_of_a_mask():
    assert written_runs([0, 1, 1, 0, 0, 1, 0]) == [(1, 3), (5, 6)]
    assert written_runs([1, 1]) == [(0, 2)]
    assert written_runs(np.array([True, False, True])) == [(0, 1), (2, 3)]
    assert written_runs([]) == written_runs([0, 0]) == []
    with pytest.raises(ValueError, match="tokens of one row"):
        written_runs([[1, 0]])


def test_values_along_spans_and_over_a_mask():
    found = along_spans(np.array([1.5, -2.0, 3.0]), [[(1, 3), (3, 4)], [], [(0, 1)]], (3, 5))
    assert found.tolist() == [[0, 1.5, 1.5, -2.0, 0], [0] * 5, [3.0, 0, 0, 0, 0]]
    assert over_mask([2.0, -1.0], [[1, 0], [True, True]]).tolist() == [[2.0, 0.0], [-1.0, -1.0]]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([[(0, 1)]], "1 in 1 rows for 2 values"),
        ([[(0, 1), (0, 2)]], r"\(0, 2\) in row 0, expected 1 <= start"),
        ([[(0, 1), (2, 2)]], r"\(2, 2\)"),
        ([[(0, 1), (1, 4)]], "<= 3"),
    ],
)
def test_spans_that_do_not_fit_are_refused(spans, message):
    with pytest.raises(ValueError, match=message):
        along_spans(np.ones(2), spans, (1, 3))
    with pytest.raises(ValueError, match="one row of tokens per value"):
        over_mask([1.0, 2.0], [[1, 0]])


@pytest.mark.parametrize("t", [-1, 0.5, "0", True, None])
def test_a_step_without_an_index_is_refused(t):
    with pytest.raises(ValueError, match=r"t: .* at row 1, expected a whole number from 0"):
        to_table([step(), step(trajectory=1, t=t)])


def test_two_different_rows_of_one_name_are_refused_and_a_copy_is_padding():
    with pytest.raises(
        ValueError, match="rows 0 and 1 are both step 0 of trajectory 0 in group 'g' and differ"
    ):
        to_table([step(), step(action="b")])
    with pytest.warns(UndeclaredPaddingWarning, match="1 rows are copies"):
        rows, counts = to_table([step(), step(), step(trajectory=1)])
    assert rows.kept.tolist() == [0, 2]
    assert counts["event/padding_rows"] == 1


def test_groups_and_trajectories_of_any_kind_of_name_keep_their_order():
    names = [("a", 2), ("a", 10), 3, 20, "x", None, (1, "y")]
    steps = [step(group=name, trajectory=m, reward=float(m)) for name in names for m in range(3)]
    rows, again = to_table(steps)[0].batch, to_table(steps[::-1])[0].batch
    for column in ("task", "trajectory", "reward"):
        assert getattr(rows, column).tolist() == getattr(again, column)[::-1].tolist()


def test_without_a_length_a_gap_makes_a_trajectory_incomplete():
    _, counts = to_table([step(t=0), step(t=2), step(trajectory=1)])
    assert counts["event/missing_rows"] == 2
    _, counts = to_table([step(t=0, steps=2), step(t=1, steps=3)])
    assert counts["event/missing_rows"] == 2
    with pytest.raises(ValueError, match="features: 1 entries, expected 2"):
        to_table([step(), step(trajectory=1)], features=np.ones((1, 3), np.float32))


def test_an_empty_batch_is_empty_and_chooses_no_radius():
    estimator = Estimator(recipe("bipace", eps="auto"), calibrate_every=0)
    found = estimator([], features=np.ones((0, 3), np.float32))
    assert found.values.shape == (0,)
    assert estimator.radius is None


def test_an_estimator_calibrates_when_its_turn_comes():
    rng = np.random.default_rng(0)
    estimator = Estimator(recipe("bipace", eps="auto"), calibrate_every=2)
    curves = []
    for iteration in range(4):
        steps = [step(trajectory=m, t=t, reward=float(rng.integers(2))) for m in range(4) for t in range(3)]
        found = estimator(steps, features=rng.normal(size=(12, 4)).astype(np.float32), iteration=iteration)
        curves.append(sum(name.startswith("credit/eps_error") for name in found.metrics))
        assert found.metrics["credit/eps"] == estimator.radius[0]
    assert curves == [9, 0, 9, 0]


def test_the_engine_that_a_user_has_is_named_and_the_one_we_are_for():
    check_version("trl", "1.16.0", (1, 16, 0), (2, 0, 0))
    check_version("trl", "1.17", (1, 16, 0), (2, 0, 0))
    with pytest.raises(
        ImportError, match=r"written for trl >=1.16.0,<2.0 and this is trl 1.15.2; install bipace\[trl\]"
    ):
        check_version("trl", "1.15.2", (1, 16, 0), (2, 0, 0))


def test_a_group_of_one_is_refused_for_step_recipes_alone():
    check_group_size(recipe("grpo"), 1, "n")
    check_group_size(recipe("gigpo"), 2, "n")
    with pytest.raises(ValueError, match="num_generations: 1 with the step-level recipe 'gigpo'"):
        check_group_size(recipe("gigpo"), 1, "num_generations")


def test_select():
    assert select({"a": {"b": 0, "c": None}}, "a.b") == 0
    assert select({"a": {"c": None}}, "a.c", 7) == select({"a": 3}, "a.c", 7) == select({}, "x.y", 7) == 7


def test_a_report_counts_what_failed(capsys):
    report = Report()
    report.add(checked("one", lambda: "as it should be"))
    report.add(checked("two", lambda: str(1 // 0)))
    assert report.close() == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok     one: as it should be",
        "FAILED two: ZeroDivisionError: integer division or modulo by zero",
        "1 of 2 checks failed",
    ]
    assert Report().close() == 0


def test_settings_without_an_episode_know_no_environment():
    made = read_settings(CreditSettings, {"estimator": "gigpo", "credit": {"w": 0.5}})
    assert made.recipe().terms[1].weight == 0.5
    assert not made.captures
    with pytest.raises(ValueError, match=r"^env: unknown key; did you mean"):
        read_settings(CreditSettings, {"env": {}})


def test_a_key_has_the_default_it_has_in_bipace_train():
    ours, theirs = Settings(), Config()
    for section in ("env", "prompt", "features", "update"):
        for name in type(getattr(ours, section)).model_fields:
            assert getattr(getattr(ours, section), name) == getattr(getattr(theirs, section), name), (
                section,
                name,
            )
    assert describe(ours.recipe()) == describe(theirs.recipe())
