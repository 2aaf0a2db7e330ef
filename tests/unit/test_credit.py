"""Credit against the truth: exact worlds, re-rolls of a small actor, and what must be refused."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from bipace.core import segments
from bipace.core.advantages import Recipe, Term, advantages
from bipace.core.clustering import by_prompt_group
from bipace.truth.candidates import Candidate, parse_candidate, shipped
from bipace.truth.ranks import ranks
from bipace.truth.report import draw_scores, markdown_table, score_table
from bipace.truth.score import METRICS, NoVariance, best, noise_ceiling, score, score_all
from bipace.truth.table import Truth, join, load_truth, save_truth
from bipace.truth.worlds import world_truth


@pytest.fixture(scope="module")
def truth():
    return world_truth("grid", groups=6, group_size=8, seed=1)


def test_the_truth_itself_scores_perfectly(truth):
    found = score(truth, 3.0 * truth.advantage, bootstraps=20)
    for name in ("pearson", "spearman", "sign", "gradient_cosine"):
        np.testing.assert_allclose(found[name], 1.0, atol=1e-9)
    np.testing.assert_allclose(found["rmse"], 0.0, atol=1e-6)


def test_saying_nothing_scores_nothing(truth):
    found = {
        name: values[0] for name, values in score(truth, np.zeros(len(truth.batch)), bootstraps=0).items()
    }
    assert found["zero_share"] == 1.0
    assert found["pearson"] == found["spearman"] == found["sign"] == found["gradient_cosine"] == 0.0
    assert found["rmse"] == pytest.approx(np.sqrt((truth.advantage**2).mean()))


def test_the_scores_are_their_definitions(truth):
    values = advantages(truth.batch, parse_candidate("gigpo").recipe).values
    found = score(truth, values, bootstraps=0)
    assert found["pearson"][0] == pytest.approx(np.corrcoef(values, truth.advantage)[0, 1])
    matters = np.abs(truth.advantage) > 1e-9
    assert found["sign"][0] == pytest.approx((np.sign(values) == np.sign(truth.advantage))[matters].mean())
    a, b = values @ truth.gradient, truth.advantage @ truth.gradient
    assert found["gradient_cosine"][0] == pytest.approx(
        a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-5
    )


def test_signs_are_judged_where_the_truth_stands_out_of_its_own_error(truth):
    values = advantages(truth.batch, parse_candidate("gigpo").recipe).values
    noisy = replace(truth, error=np.full(len(values), 0.4 * np.median(np.abs(truth.advantage))))
    matters = np.abs(truth.advantage) > 2 * noisy.error
    assert 0 < matters.mean() < (np.abs(truth.advantage) > noisy.error).mean()
    expected = (np.sign(values) == np.sign(truth.advantage))[matters].mean()
    assert score(noisy, values, bootstraps=0)["sign"][0] == pytest.approx(expected)


def test_a_report_is_made_of_its_definitions(truth):
    """Corrected correlation, steps without the first, each step index, and an interval moved onto the
    estimate.
    """
    random = np.random.default_rng(0)
    noise = 0.5 * random.standard_normal((2, len(truth.batch)))
    noisy = replace(truth, halves=truth.advantage + noise, advantage=truth.advantage + noise.mean(axis=0))
    candidate = parse_candidate("gigpo")
    values, t = candidate.values(noisy), noisy.batch.t
    entry = score_all([noisy], [candidate], bootstraps=60)["recipes"]["gigpo"]

    def correlation(rows):
        return np.corrcoef(values[rows], noisy.advantage[rows])[0, 1]

    pearson = entry["pearson"]
    assert pearson["value"] == pytest.approx(correlation(t >= 0))
    assert entry["without_first"]["pearson"]["value"] == pytest.approx(correlation(t > 0))
    for step in entry["by_step"]:
        rows = t >= step["t"] if step["t"] == 8 else t == step["t"]
        assert step["share"] == pytest.approx(rows.mean())
        assert step["pearson"] == pytest.approx(correlation(rows))
    ceiling = noise_ceiling(noisy)
    assert ceiling < 0.99
    assert entry["pearson_corrected"]["value"] == pytest.approx(pearson["value"] / ceiling)
    drawn = score(noisy, values, bootstraps=60)["pearson"][1:]
    expected = np.quantile(drawn, [0.025, 0.975]) - drawn.mean() + pearson["value"]
    assert [pearson["low"], pearson["high"]] == pytest.approx(expected.tolist())


def test_the_best_label_is_the_highest_defined_number():
    scores = {label: {"pearson": {"value": value}} for label, value in (("a", -0.2), ("b", 0.0), ("c", None))}
    assert best(scores) == "b"


def test_a_resample_is_the_score_of_the_drawn_prompt_groups(truth):
    values = advantages(truth.batch, parse_candidate("gigpo").recipe).values
    found = score(truth, values, bootstraps=3)
    task = segments.compact(truth.batch.task)
    drawn = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=3)[2]
    rows = np.concatenate([np.flatnonzero(task == g) for g in range(6) for _ in range(drawn[g])])
    assert found["pearson"][3] == pytest.approx(np.corrcoef(values[rows], truth.advantage[rows])[0, 1])
    a, b = values[rows] @ truth.gradient[rows], truth.advantage[rows] @ truth.gradient[rows]
    assert found["gradient_cosine"][3] == pytest.approx(
        a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-5
    )


def test_a_saved_truth_comes_back_and_another_identity_is_refused(truth, tmp_path):
    path = tmp_path / "seed0"
    assert load_truth(path) is None
    save_truth(truth, path)
    again = load_truth(path, truth.identity)
    np.testing.assert_array_equal(again.advantage, truth.advantage)
    np.testing.assert_array_equal(again.batch.observation, truth.batch.observation)
    assert list(again.layers) == list(truth.layers)
    for key, other in (("seed", 2), ("actor", "another checkpoint"), ("tasks", ["another panel"])):
        with pytest.raises(ValueError, match=f"these differ: {key}. Name another folder with --out"):
            load_truth(path, {**truth.identity, key: other})


def test_a_smaller_group_is_the_first_members_of_each(truth):
    smaller = truth.first_members(4)
    first = segments.first_rows(segments.compact(smaller.batch.trajectory))
    assert np.bincount(segments.compact(smaller.batch.task[first])).tolist() == [4] * 6
    assert set(smaller.batch.trajectory) <= set(truth.batch.trajectory)
    for size in (1, 9):
        with pytest.raises(ValueError, match="group_size"):
            truth.first_members(size)


def test_joined_truths_judge_like_their_parts(truth):
    other = world_truth("grid", groups=3, group_size=4, seed=2)
    both = join([truth, other], {})
    recipe = parse_candidate("gigpo").recipe
    parts = np.concatenate([advantages(t.batch, recipe).values for t in (truth, other)])
    np.testing.assert_allclose(advantages(both.batch, recipe).values, parts, atol=1e-12)


def test_every_shipped_recipe_is_judged_with_intervals(truth, tmp_path):
    found = score_all([truth], shipped(list(truth.layers)), group_sizes=[4], bootstraps=50)
    assert json.loads(json.dumps(found)) == found
    for entry in found["recipes"].values():
        assert set(METRICS) <= set(entry)
        for name in METRICS:
            assert entry[name]["low"] <= entry[name]["high"]
        assert sum(step["share"] for step in entry["by_step"]) == pytest.approx(1.0)
    assert set(found["group_sizes"]["4"]) == set(found["recipes"])
    assert len(score_table(found).rows) == len(found["recipes"])
    assert markdown_table(found["recipes"]).count("\n") == len(found["recipes"]) + 1
    draw_scores({"grid": found}, tmp_path / "credit.png")
    assert (tmp_path / "credit.png").read_bytes()[:4] == b"\x89PNG"


def test_recipes_without_features_are_judged_where_there_are_none(truth):
    labels = {c.label for c in shipped([])}
    assert {"gigpo", "bipace clusters=observation", "pooled"} <= labels
    assert "bipace" not in labels


@pytest.mark.parametrize(("skill", "horizon", "wins"), [(0.4, 1, 0.0), (1.0, 9, 1.0)])
def test_a_policy_that_always_or_never_succeeds_is_no_result(skill, horizon, wins):
    flat = world_truth("corridor", {"length": 2}, groups=4, group_size=4, skill=skill, horizon=horizon)
    assert flat.batch.terminated.sum() / len(np.unique(flat.batch.trajectory)) == wins
    with pytest.raises(NoVariance, match="always or never"):
        score_all([flat], [parse_candidate("grpo")])
    judged = score_all(
        [flat, world_truth("grid", groups=4, group_size=4)], [parse_candidate("grpo")], bootstraps=5
    )
    assert (judged["seeds"], judged["seeds_without_variance"]) == (1, 1)


def test_steps_on_which_the_truth_does_not_vary_give_no_number(truth):
    rows = np.abs(truth.advantage - truth.advantage[0]) < 1e-12
    found = score(truth, truth.batch.reward + truth.batch.t, bootstraps=2, rows=rows)
    assert all(np.isnan(found[name]).all() for name in METRICS)


def test_a_group_left_with_one_trajectory_is_judged_with_the_others(truth):
    lone = (truth.batch.task != 0) | (
        truth.batch.trajectory == truth.batch.trajectory[truth.batch.task == 0][0]
    )
    left = truth.take(np.flatnonzero(lone))
    candidates = shipped(list(truth.layers))
    found = score_all([left], candidates, bootstraps=5)
    assert all(np.isfinite(entry["pearson"]["value"]) for entry in found["recipes"].values())
    grpo = next(c for c in candidates if c.label == "grpo")
    assert (grpo.values(left)[left.batch.task == 0] == 0).all()


def test_features_that_are_no_numbers_are_refused_by_name(truth):
    broken = np.array(truth.layers["spread"])
    broken[3, 0] = np.nan
    with pytest.raises(ValueError, match="features: nan at row 3"):
        parse_candidate("bipace layer=spread").values(replace(truth, layers={"spread": broken}))


def test_the_noise_ceiling_is_the_correlation_a_perfect_recipe_reaches():
    random = np.random.default_rng(0)
    n = 20_000
    real = random.standard_normal(n)
    halves = real + 0.8 * random.standard_normal((2, n))
    exact = world_truth("grid", groups=2, group_size=2)
    noisy = Truth(exact.batch, exact.value, halves.mean(axis=0), halves, exact.error, exact.gradient)
    assert noise_ceiling(noisy) == pytest.approx(np.corrcoef(halves.mean(axis=0), real)[0, 1], abs=0.01)
    assert noise_ceiling(exact) == 1.0


def test_unusable_worlds_and_recipes_are_refused():
    with pytest.raises(ValueError, match="group_size"):
        world_truth("grid", group_size=1)
    with pytest.raises(ValueError, match="skill"):
        world_truth("grid", skill=1.5)
    with pytest.raises(ValueError, match="world"):
        world_truth("nowhere")
    with pytest.raises(ValueError, match="NAME=VALUE"):
        parse_candidate("bipace 0.1")
    with pytest.raises(ValueError, match="layer"):
        parse_candidate("bipace layer=99").values(world_truth("grid", groups=2, group_size=2))


def test_a_readers_own_recipe_is_judged_too(truth):
    own = Candidate("mine", Recipe("mine", (Term(lambda batch: batch.reward.copy(), by_prompt_group),)))
    assert score_all([truth], [own], bootstraps=10)["recipes"]["mine"]["pearson"]["value"] is not None


def test_ranks_share_places_as_scipys_do():
    rankdata = pytest.importorskip("scipy.stats", reason="needs scipy (the dev extra)").rankdata
    for values in (np.zeros(0), np.ones(3), np.array([2.0, -1, 2, np.inf, 0, -0.0]), np.arange(5.0)[::-1]):
        assert ranks(values).tolist() == rankdata(values).tolist()


def test_a_narrow_screen_shows_every_letter_of_the_table(truth):
    text = "bipace clusters=observation"
    console = Console(file=io.StringIO(), width=80)
    console.print(score_table(score_all([truth], [parse_candidate(text)], bootstraps=20)))
    said = console.file.getvalue()
    assert "…" not in said
    first = "".join(line[1:].split("│")[0].strip() for line in said.splitlines() if line.startswith("│"))
    assert first == text.replace(" ", "")
