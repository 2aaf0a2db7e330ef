"""One default each, differences only, and errors that name the way out."""

from pathlib import Path

import pytest

pytest.importorskip("pydantic", reason="the configuration needs the cli extra")

from bipace.core.estimators import RECIPES, recipe_options
from bipace.train.config import Config, ConfigError, describe_config, load_config, write_config


def test_defaults_are_a_valid_configuration():
    assert load_config() == Config()
    assert load_config().estimator == "bipace"


def test_file_then_overrides(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('estimator = "gigpo"\n[credit]\nw = 0.5\n[env]\nmax_steps = 7\n')
    config = load_config(path, ["env.max_steps=12", "rollout.tasks=4", "env.split=heldout", "credit.gamma=0.9"])
    assert (config.estimator, config.env.max_steps, config.rollout.tasks) == ("gigpo", 12, 4)
    assert config.env.split == "heldout"
    assert config.credit == {"w": 0.5, "gamma": 0.9}


def test_what_is_written_reads_back_the_same(tmp_path):
    config = load_config(overrides=["estimator=bigpo", "credit.eps=0.02", "env.held_out=['depth3-panel']"])
    write_config(config, tmp_path / "config.toml")
    assert load_config(tmp_path / "config.toml") == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.max_step=12", r"env.max_step: unknown key; did you mean env.max_steps\?"),
        ("max_steps=12", r"max_steps: unknown key; did you mean env.max_steps\?"),
        ("estimater=grpo", r"estimater: unknown key; did you mean estimator\?"),
        ("estimator=gigppo", r"recipe: unknown 'gigppo'; did you mean 'gigpo'\?"),
        ("credit.epsilon=0.1", r"bipace option: unknown 'epsilon'; did you mean"),
        ("credit.eps=2.5", r"eps: 2.5, expected a cosine distance in \[0, 2\]"),
        ("rollout.group_size=1", "group of one trajectory a step has no peers"),
        ("rollout.group_size=zero", "rollout.group_size: 'zero'"),
        ("rollout.temperature=0", "rollout.temperature: 0"),
        ("features.action_key=verb", "unknown 'verb', expected one of executed, action_tag"),
        ("credit.mode=std", "mode: unknown 'std'"),
        ("nonsense", "expected section.key=value"),
    ],
)
def test_bad_input_is_one_clear_error(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=[override])


def test_vllm_needs_features_from_the_actors_own_forward():
    with pytest.raises(ConfigError, match=r"'rollout' with rollout\.engine=vllm.*set features\.source=shared"):
        load_config(overrides=["rollout.engine=vllm"])
    for source in ("shared", "separate"):
        found = load_config(overrides=["rollout.engine=vllm", f"features.source={source}"])
        assert found.rollout.engine == "vllm"


def test_a_trajectory_recipe_may_have_groups_of_one():
    assert load_config(overrides=["estimator=rloo", "rollout.group_size=1"]).rollout.group_size == 1


def test_a_missing_and_a_broken_file_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        load_config(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = 1")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(broken)


def test_every_key_is_explained():
    assert [key for key, _, meaning in describe_config(Config()) if not meaning] == []


@pytest.mark.parametrize("estimator", sorted(RECIPES))
@pytest.mark.parametrize("preset", ["demo", "alfworld", "webshop"])
def test_a_preset_runs_with_any_recipe(preset, estimator):
    found = load_config(Path(preset), [f"estimator={estimator}"])
    assert found.estimator == estimator
    assert found.credit == {}


@pytest.mark.parametrize("estimator", sorted(RECIPES))
def test_options_of_a_file_that_another_recipe_does_not_take_are_left_out(estimator, tmp_path):
    (tmp_path / "run.toml").write_text('estimator = "bipace"\n[credit]\neps = 0.02\ngamma = 0.9\n')
    found = load_config(tmp_path / "run.toml", [f"estimator={estimator}"])
    taken = recipe_options(estimator)
    assert found.credit == {k: v for k, v in (("eps", 0.02), ("gamma", 0.9)) if k in taken}


def test_a_credit_option_that_was_asked_for_is_never_dropped():
    with pytest.raises(ConfigError, match="mode"):
        load_config(Path("demo"), ["estimator=dr_grpo", "credit.mode=mean_norm"])
