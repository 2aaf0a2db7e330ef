"""Whole runs: repeatable, resumable, refusing what does not fit, and improving."""

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.core.diagnostics import DegenerateClustersWarning
from bipace.core.estimators import RECIPES
from bipace.policies.hf import Actor
from bipace.train.config import ConfigError, load_config
from bipace.train.loop import NonFiniteError, Run, train
from bipace.train.scored import sampled_scores, score_sequences

SMALL = (
    "rollout.tasks=2", "rollout.group_size=4", "run.iterations=3", "run.validate_every=3", "run.save_every=1",
    "env.panel=depth4-panel", "env.held_out=[]", "actor.threads=1",
)  # fmt: skip
TIMES = ("timing_s/", "perf/")


def bipace(*arguments):
    command = [sys.executable, "-c", "from bipace.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def log(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(TIMES)} for line in lines]


def weights(folder):
    state = Actor.load(folder / "last" / "actor").model.state_dict()
    return torch.cat([v.flatten() for v in state.values()])


def run(folder, *overrides, resume=False):
    return train(
        load_config(overrides=(*SMALL, *overrides)), folder, resume=resume, on_iteration=lambda *_: None
    )


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_every_recipe_trains_through_the_command_line(recipe, tmp_path):
    done = bipace("train", f"estimator={recipe}", *SMALL, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["recipe"], summary["iterations"]) == (recipe, 3)
    assert 0 < summary["credit_share"] < 0.2
    assert (tmp_path / "run" / "curve.png").stat().st_size > 5_000
    assert len(log(tmp_path / "run")) == 4


# A radius beside eight short episodes makes clusters that the run rightly warns of.
few_rollouts = pytest.mark.filterwarnings("ignore::bipace.core.diagnostics.DegenerateClustersWarning")


@few_rollouts
def test_window_prompts_with_tags_a_reference_and_a_separate_feature_pass_run(tmp_path):
    found = run(
        tmp_path / "run", "prompt.style=window", "prompt.tagged=true", "prompt.instructions=true",
        "run.iterations=1",
        "update.kl_loss_coef=0.01", "features.source=separate", "run.save_rollouts=true",
        "actor.autocast=true",
    )  # fmt: skip
    assert found.iteration == 1
    line = log(tmp_path / "run")[-1]
    assert line["event/unparsed"] > 0
    assert (tmp_path / "run" / "rollouts.jsonl").read_text().count("\n") == 8


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_what_the_rollout_kept_is_what_scoring_anew_finds(style, tmp_path):
    config = load_config(overrides=(*SMALL, f"prompt.style={style}", "rollout.temperature=0.8"))
    sampled = Run(config, tmp_path)
    sequences = [s for t in sampled.collect() for s in t.sequences]
    kept = sampled_scores(sequences)
    anew = score_sequences(sampled.actor, sequences, layer=sampled.layer, micro_tokens=4096, temperature=0.8)
    torch.testing.assert_close(torch.cat(kept.logprobs), torch.cat(anew.logprobs), atol=1e-5, rtol=1e-5)
    assert kept.features.shape == anew.features.shape
    assert abs(kept.features - anew.features).max() < 1e-5


def test_separate_and_shared_features_credit_the_same(tmp_path):
    run(tmp_path / "a", "run.iterations=1", "features.source=shared")
    run(tmp_path / "b", "run.iterations=1", "features.source=separate")
    assert torch.equal(weights(tmp_path / "a"), weights(tmp_path / "b"))
    # The engine that sampled is the actor itself, so scoring anew finds what it drew with, up to rounding.
    gap, largest = (log(tmp_path / "a")[-1][f"rollout/logprob_gap{which}"] for which in ("", "_max"))
    assert 0 <= gap < 5e-6
    assert gap <= largest < 5e-5


def test_the_same_seed_twice_is_the_same_run_and_resuming_is_not_stopping(tmp_path):
    run(tmp_path / "whole")
    run(tmp_path / "again")
    run(tmp_path / "parts", "run.iterations=1")
    run(tmp_path / "parts", resume=True)
    for other in ("again", "parts"):
        assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / other))
        a, b = log(tmp_path / "whole"), log(tmp_path / other)
        for x, y in zip(a, b, strict=True):
            shared = x.keys() & y.keys()
            assert {k: x[k] for k in shared} == {k: y[k] for k in shared}
    run(tmp_path / "seed", "run.seed=1")
    assert not torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "seed"))


@few_rollouts
def test_an_automatic_radius_is_chosen_once_or_at_its_turns_and_a_resumed_run_keeps_it(tmp_path):
    def turns(folder):
        return [any(key.startswith("credit/eps_error/") for key in line) for line in log(folder)[1:]]

    once = ("credit.eps=auto", "features.calibrate_every=0")
    run(tmp_path / "once", *once)
    assert turns(tmp_path / "once") == [True, False, False]
    assert len({line["credit/eps"] for line in log(tmp_path / "once")[1:]}) == 1
    run(tmp_path / "parts", *once, "run.iterations=1")
    run(tmp_path / "parts", *once, resume=True)
    assert turns(tmp_path / "parts") == [True, False, False]
    assert torch.equal(weights(tmp_path / "once"), weights(tmp_path / "parts"))
    run(tmp_path / "second", "credit.eps=auto", "features.calibrate_every=2")
    assert turns(tmp_path / "second") == [True, False, True]
    run(tmp_path / "every", "credit.eps=auto")
    assert turns(tmp_path / "every") == [True, True, True]


@few_rollouts
def test_layer_and_radius_are_chosen_in_the_first_iteration_and_a_resumed_run_keeps_them(tmp_path):
    once = ("credit.eps=calibrate", "env.split=demo", "rollout.tasks=6")
    run(tmp_path / "whole", *once)
    lines = log(tmp_path / "whole")[1:]
    scanned = [any(key.startswith("credit/agreement/") for key in line) for line in lines]
    assert scanned == [True, False, False]
    assert len({line["credit/eps"] for line in lines}) == 1
    state = json.loads((tmp_path / "whole" / "last" / "trainer_state.json").read_text())
    assert state["layer"] == int(lines[0]["credit/layer"])
    run(tmp_path / "parts", *once, "run.iterations=1")
    run(tmp_path / "parts", *once, resume=True)
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_calibration_where_nothing_is_ever_won_stops_with_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="earned any reward"):
        run(tmp_path / "run", "credit.eps=calibrate", "env.max_steps=1")


def test_the_calibrate_command_prints_the_grid_and_the_choice(tmp_path):
    done = bipace("calibrate", "textcraft-small", "rollout.tasks=6", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["choice"] in found["grid"]
    assert {entry["layer"] for entry in found["grid"]} == {1, 2}
    assert json.loads((tmp_path / "calibration.json").read_text()) == found
    assert (tmp_path / "calibration.png").stat().st_size > 5_000
    for override, says in (("estimator=gigpo", "does not cluster"), ("env.max_steps=1", "earned any reward")):
        done = bipace("calibrate", "textcraft-small", "rollout.tasks=3", override, "--out", str(tmp_path))
        assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path):
    run(tmp_path / "run", "run.iterations=1")
    with pytest.raises(ConfigError, match="already holds a run"):
        run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"these keys differ: estimator, update\.lr"):
        run(tmp_path / "run", "estimator=grpo", "update.lr=0.1", resume=True)
    with pytest.raises(ConfigError, match="holds no run to resume"):
        run(tmp_path / "empty", resume=True)


def test_a_run_that_breaks_down_stops_with_its_last_good_state(tmp_path):
    with pytest.raises(NonFiniteError, match="last good state"):
        run(tmp_path / "run", "env.reward_scale=1e30", "estimator=dr_grpo", "run.iterations=9")
    assert torch.isfinite(weights(tmp_path / "run")).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "actor.folder=nowhere"), "no folder 'nowhere' and no shipped actor"),
        (("train", "features.layer=9"), "layer is 9"),
        (("train", "env.suite=textcraf"), "textcraft"),
        (("train", "env.split=tests"), "no split or panel 'tests'"),
        (("train", "rollout.group_size=1"), "has no peers"),
        (("train", "env.max_step=1"), "did you mean env.max_steps"),
        (("eval", "nowhere"), "no folder 'nowhere'"),
        (("play", "--task", "minecraft:moon/0"), "minecraft:moon/0"),
    ],
)
def test_bad_input_is_one_line_and_no_folder(arguments, message, tmp_path):
    extra = ("--out", str(tmp_path / "run")) if arguments[0] == "train" else ()
    done = bipace(*arguments, *extra)
    assert done.returncode == 2
    *notes, said = done.stderr.splitlines()
    assert said.startswith("error: ")
    assert all(note.startswith("note: ") for note in notes)
    assert message in said
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "last").exists()


def test_eval_reports_a_run_folder(tmp_path):
    run(tmp_path / "run", "run.iterations=1")
    done = bipace("eval", str(tmp_path / "run"), "--json", "--out", str(tmp_path / "episodes.jsonl"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["depth4-panel"]["n"] == 44
    assert (tmp_path / "episodes.jsonl").read_text().count("\n") == 44


def test_recipes_and_config_describe_themselves():
    listed = json.loads(bipace("recipes", "--json").stdout)
    assert set(listed) == set(RECIPES)
    assert listed["bipace"]["terms"][1]["q"]["name"] == "same_action_mean"
    assert "env.max_steps" in bipace("config").stdout


def test_degenerate_clusters_are_named_once(tmp_path):
    with pytest.warns(DegenerateClustersWarning, match="compared as one") as found:
        run(tmp_path / "run", "credit.eps=2.0")
    assert len([w for w in found if w.category is DegenerateClustersWarning]) == 1
