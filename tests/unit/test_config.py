"""One default each, differences only, and errors that name the way out."""

import json
import warnings
from pathlib import Path

import pytest

pytest.importorskip("pydantic", reason="the configuration needs the cli extra")

from bipace.core.estimators import RECIPES, recipe_options
from bipace.train.config import (
    PRESETS,
    Config,
    ConfigError,
    UpdateConfig,
    config_from,
    config_schema,
    describe_config,
    load_config,
    value_of,
    write_config,
)
from bipace.train.threads import choose_threads


def test_defaults_are_a_valid_configuration():
    assert load_config() == Config()
    assert load_config().estimator == "bipace"


def test_file_then_overrides(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('estimator = "gigpo"\n[credit]\nw = 0.5\n[env]\nmax_steps = 7\n')
    config = load_config(
        path, ["env.max_steps=12", "rollout.tasks=4", "env.split=heldout", "credit.gamma=0.9"]
    )
    assert (config.estimator, config.env.max_steps, config.rollout.tasks) == ("gigpo", 12, 4)
    assert config.env.split == "heldout"
    assert config.credit == {"w": 0.5, "gamma": 0.9}


def test_a_slip_in_a_presets_name_is_answered_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"no file dmeo and no preset .*; did you mean 'demo'\? \(shipped: alf"
    ):
        load_config(Path("dmeo"))
    with pytest.raises(ConfigError, match=r"no file x/y.toml and no preset of that name \(shipped: "):
        load_config(Path("x/y.toml"))


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
        ("features.action_key=verb", "features.action_key: 'verb', expected one of executed, action_tag"),
        ("credit.mode=std", r"credit\.mode: 'std', expected 'mean_std_norm' or 'mean_norm'"),
        ("nonsense", "expected section.key=value"),
        ("env.split.x=1", "unknown key|not a section|expected"),
    ],
)
def test_bad_input_is_one_clear_error(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=[override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("prompt.tagged=no", "prompt.tagged: 'no', expected true or false"),
        ("prompt.tagged=1", "prompt.tagged: 1, expected true or false"),
        ("features.layer=last", "features.layer: 'last', expected a whole number"),
        ("features.layer=true", "features.layer: True, expected a whole number"),
        ("features.layer=1.5", "features.layer: 1.5, expected a whole number, or a fraction between 0 and 1"),
        ("prompt.history_length=-3", "prompt.history_length: -3, expected at least 0"),
        ("prompt.history_length=2.0", "prompt.history_length: 2.0, expected a whole number"),
        ("update.lr='3e-4'", "update.lr: '3e-4', expected a number"),
        ("env.suite=3", "env.suite: 3, expected text"),
        ("env.held_out=depth3-panel", "env.held_out: 'depth3-panel', expected"),
        ("env.held_out=[3]", r"env.held_out: 3, expected text"),
        ("env=3", "env: 3, expected a section with keys"),
        ("credit.w='1'", "credit.w: '1', expected a number"),
        ("credit.gamma=true", "credit.gamma: True, expected a number"),
        ("credit.eps=wide", "credit.eps: 'wide', expected"),
        ("run.loggers=[mlflow]", "run.loggers: .*mlflow"),
    ],
)
def test_a_value_of_another_type_is_refused_and_never_converted(override, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(overrides=[override])
    assert "\n" not in str(caught.value)


def test_a_whole_number_is_a_number():
    assert load_config(overrides=["env.reward_scale=1", "credit.w=2"]).env.reward_scale == 1.0


def test_former_names_are_understood_with_a_message(tmp_path):
    with pytest.warns(FutureWarning, match=r"env\.success_reward is now called env\.reward_scale"):
        assert load_config(overrides=["env.success_reward=5.0"]).env.reward_scale == 5.0
    old = tmp_path / "run.toml"
    old.write_text("[rollout]\nwave = 7\n[update]\nmax_skipped = 3\n")
    with pytest.warns(FutureWarning, match=r"rollout\.parallel|update\.max_skipped was removed") as caught:
        assert load_config(old).rollout.parallel == 7
    assert len(caught) == 2
    with pytest.raises(ConfigError, match=r"both are given; keep rollout\.parallel"):
        config_from({"rollout": {"wave": 7, "parallel": 8}})
    with pytest.raises(ConfigError, match=r"update\.max_skipped: 9; this key was removed, 3 always holds"):
        load_config(overrides=["update.max_skipped=9"])


RECORDS = sorted((Path(__file__).resolve().parents[2] / "docs" / "results").glob("**/seed-0/config.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.parent.name)
def test_the_configuration_of_a_run_made_before_is_read(path):
    saved = json.loads(path.read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        config = config_from(saved)
    scale = saved["env"].get("success_reward", saved["env"].get("reward_scale"))
    assert (config.env.reward_scale, config.estimator) == (scale, saved["estimator"])
    assert config_from(config.model_dump(mode="json")) == config


def test_the_schema_names_every_key_once_with_type_default_and_meaning():
    rows = config_schema()
    assert len({row["key"] for row in rows}) == len(rows)
    assert all(row["type"] and row["meaning"] for row in rows)
    by_key = {row["key"]: row for row in rows}
    assert by_key["features.layer"] | {"meaning": ""} == {
        "key": "features.layer", "type": "number", "default": 0.61, "meaning": ""
    }  # fmt: skip
    assert by_key["env.held_out"]["type"] == "list of text or unset"
    assert by_key["prompt.style"]["type"] == "transcript or window"
    assert by_key["credit.eps"]["default"] == 0.05
    assert json.loads(json.dumps(rows)) == rows
    defaults = Config().model_dump(mode="json")
    for key, row in by_key.items():
        section, _, leaf = key.partition(".")
        if section != "credit":
            assert row["default"] == (defaults[section][leaf] if leaf else defaults[section]), key
    assert [row["key"] for row in config_schema("grpo") if row["key"].startswith("credit.")] == [
        f"credit.{name}" for name in recipe_options("grpo")
    ]


def test_the_schema_carries_the_values_of_a_configuration():
    config = load_config(overrides=["credit.eps=0.02", "env.max_steps=7", "estimator=bipace"])
    values = {row["key"]: value_of(config, row) for row in config_schema()}
    assert (values["credit.eps"], values["credit.w"], values["env.max_steps"]) == (0.02, 1.0, 7)
    assert values["rollout.parallel"] == 256
    assert values["estimator"] == "bipace"


def test_vllm_needs_features_from_the_actors_own_forward():
    with pytest.raises(
        ConfigError, match=r"'rollout' with rollout\.engine=vllm.*set features\.source=shared"
    ):
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
    radius = {"demo": 0.02, "webshop": 0.005}.get(preset)
    pair = {"eps": radius} if radius and "eps" in recipe_options(estimator) else {}
    assert found.credit == pair  # a division of the recipe's own is no preset's business


@pytest.mark.parametrize("estimator", sorted(RECIPES))
def test_options_of_a_file_that_another_recipe_does_not_take_are_left_out(estimator, tmp_path):
    (tmp_path / "run.toml").write_text('estimator = "bipace"\n[credit]\neps = 0.02\ngamma = 0.9\n')
    found = load_config(tmp_path / "run.toml", [f"estimator={estimator}"])
    taken = recipe_options(estimator)
    assert found.credit == {k: v for k, v in (("eps", 0.02), ("gamma", 0.9)) if k in taken}


def test_a_credit_option_that_was_asked_for_is_never_dropped():
    with pytest.raises(ConfigError, match="mode"):
        load_config(Path("demo"), ["estimator=dr_grpo", "credit.mode=mean_norm"])


def test_what_the_descriptions_say_of_presets_and_threads_is_so(monkeypatch):
    """Three of them were false: 0.4 in every preset, threads by size alone, an update like verl-agent's by
    default.
    """
    described = {row["key"]: row["meaning"] for row in config_schema()}
    greedy = {
        path.stem: load_config(path).run.validation_temperature for path in sorted(PRESETS.glob("*.toml"))
    }
    assert {name for name, value in greedy.items() if value == 0.4} == {n for n in greedy if "qwen" in n}
    assert "presets named qwen use 0.4" in described["run.validation_temperature"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert choose_threads(10**9, None, cores=8).why == "OMP_NUM_THREADS"
    assert "default: OMP_NUM_THREADS, else one below 10 M" in described["actor.threads"]
    assert (UpdateConfig().kl_loss_coef, UpdateConfig().entropy_coef) == (0.0, 0.0)  # verl-agent: 0.01, 0.001
    assert "verl-agent's except" not in UpdateConfig.__doc__
