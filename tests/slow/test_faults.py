"""Environments that misbehave and updates that break down, in real runs from a user's file."""

import json
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.core.rows import LoneGroupsWarning
from bipace.policies.hf import Actor
from bipace.train.config import load_config
from bipace.train.loop import NonFiniteError, NothingPlayed, train

SUITE = f"env.suite={Path(__file__).with_name('faulty_suite.py')}:Suite"
SMALL = (
    SUITE, "rollout.tasks=2", "rollout.group_size=4", "run.iterations=2", "run.save_every=1",
    "env.panel=panel",
    "env.held_out=[]", "actor.threads=1", "update.lr=0.01", "update.minibatches=1", "prompt.max_new_tokens=8",
)  # fmt: skip


@pytest.fixture
def run(tmp_path, tiny_actor_folder):
    def go(*overrides):
        config = load_config(overrides=(*SMALL, f"actor.folder={tiny_actor_folder}", *overrides))
        train(config, tmp_path / "run", on_iteration=lambda *_: None)
        return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]

    return go


def weights(folder):
    return torch.cat([v.flatten() for v in Actor.load(folder).model.state_dict().values()])


def moved(tmp_path, start):
    return not torch.equal(weights(tmp_path / "run" / "last" / "actor"), weights(start))


@pytest.mark.parametrize("estimator", ["bipace", "grpo"])
@pytest.mark.parametrize("fault", ["raises", "reset", "not-finite", "nothing", "exit"])
def test_a_fault_costs_its_episodes_and_the_rest_is_learned_from(
    fault, estimator, run, tmp_path, tiny_actor_folder
):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = run(f"env.split={fault}", f"estimator={estimator}", "features.layer=1")
    for line in log[1:]:
        assert line["event/aborted"] == 4
        assert line["episode/count"] == line["group/trajectories"] == 4
        assert line["group/groups"] == 1
        assert line["update/skipped"] == 0
        assert all(value == value for value in line.values())
    assert moved(tmp_path, tiny_actor_folder)


@pytest.mark.parametrize(("fault", "seconds"), [("hang", 0.5), ("die", 30)])
def test_an_environment_that_hangs_or_dies_costs_its_episodes(
    fault, seconds, run, tmp_path, tiny_actor_folder
):
    log = run(f"env.split={fault}", f"env.step_seconds={seconds}", "run.iterations=1", "run.seed=1")
    assert (log[1]["event/aborted"], log[1]["group/trajectories"]) == (4, 4)
    assert moved(tmp_path, tiny_actor_folder)


def test_the_same_run_in_processes_of_their_own_learns_the_same(tmp_path, tiny_actor_folder):
    for name, limit in (("here", ()), ("there", ("env.step_seconds=30",))):
        config = load_config(overrides=(*SMALL, f"actor.folder={tiny_actor_folder}", "env.suite=textcraft",
                                        "env.panel=depth4-panel", "env.max_steps=2", *limit))  # fmt: skip
        train(config, tmp_path / name, on_iteration=lambda *_: None)
    a, b = (
        (tmp_path / name / "last" / "actor" / "model.safetensors").read_bytes() for name in ("here", "there")
    )
    assert a == b


def test_siblings_of_a_member_that_could_not_begin_read_the_right_prompt(run, tmp_path):
    log = run("env.split=first", "run.save_rollouts=true", "run.iterations=1")
    assert (log[1]["event/aborted"], log[1]["group/trajectories"]) == (1, 7)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()]
    observed = {
        line["steps"][0]["observation"] for line in lines if line["task"] == "first/0" and line["steps"]
    }
    assert observed == {"Say anything about first/0."}


@pytest.mark.filterwarnings("ignore::bipace.core.rows.LoneGroupsWarning")
def test_a_group_left_with_one_trajectory_is_counted_and_teaches_nothing(run, tmp_path, tiny_actor_folder):
    with pytest.warns(LoneGroupsWarning, match="all 2 prompt groups hold one trajectory"):
        log = run("env.split=most", "estimator=grpo", "update.invalid_action_penalty=0")
    for line in log[1:]:
        assert (line["event/aborted"], line["group/lone_groups"], line["group/trajectories"]) == (6, 2, 2)
        assert line["credit/zero_advantage_share"] == 1
    assert not moved(tmp_path, tiny_actor_folder)


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_an_iteration_without_a_single_whole_episode_stops_the_run_with_the_reason(
    style, run, tmp_path, tiny_actor_folder
):
    with pytest.raises(
        NothingPlayed, match=r"all 8 episodes of iteration 1 were aborted.*the first by .*resume"
    ):
        run("env.split=all", f"prompt.style={style}")
    assert not moved(tmp_path, tiny_actor_folder)


def test_a_panel_on_which_nothing_was_played_is_no_zero_percent(run):
    with pytest.raises(NothingPlayed, match=r"all \d+ episodes on all at iteration 0 were aborted"):
        run("env.split=good", "env.panel=all")


def test_a_lost_panel_episode_counts_as_not_solved_and_is_named_in_the_task_results(run, tmp_path):
    log = run("env.split=good", "run.iterations=1")
    assert log[0]["val/panel/aborted"] == 1
    place = tmp_path / "run" / "validation"
    names = ["iteration-000000.panel.jsonl", "iteration-000001.panel.jsonl"]
    assert sorted(path.name for path in place.iterdir()) == names
    good, lost = [json.loads(line) for line in (place / names[1]).read_text().splitlines()]
    assert (good["task"], good["family"], good["steps"], good["error"]) == ("good/7", "good", 2, "")
    assert (lost["task"], lost["success"], lost["error"]) == ("raises/8", False, "RuntimeError: broke down")


def test_non_finite_updates_are_skipped_counted_and_harmless(run, tmp_path, tiny_actor_folder):
    log = run("env.split=good", "env.reward_scale=1e39", "estimator=dr_grpo")
    assert [line["update/skipped"] for line in log[1:]] == [1, 1]
    assert json.loads((tmp_path / "run" / "last" / "trainer_state.json").read_text())["skipped"] == 2
    assert not moved(tmp_path, tiny_actor_folder)


def test_too_many_of_them_stop_the_run_with_its_last_good_state(run, tmp_path, tiny_actor_folder):
    with pytest.raises(
        NonFiniteError, match=r"4 updates had a non-finite loss.*at most 3.*; stopped in iteration 4"
    ):
        run("env.split=good", "env.reward_scale=1e39", "estimator=dr_grpo", "run.iterations=5")
    assert json.loads((tmp_path / "run" / "last" / "trainer_state.json").read_text())["iteration"] == 3
    assert not moved(tmp_path, tiny_actor_folder)


def test_an_update_that_ruins_the_policy_is_never_saved(run, tmp_path, tiny_actor_folder):
    with pytest.raises(
        NonFiniteError, match="left a policy whose probabilities are not finite; stopped in iteration 1"
    ):
        run("env.split=good", "update.lr=1e30", "update.weight_decay=0")
    assert not moved(tmp_path, tiny_actor_folder)
