"""The Qwen presets: the recipe they claim, on the real benchmarks, and the same under verl key by key."""

import os
import re
from pathlib import Path

import pytest
import yaml

from bipace.core.estimators import describe, recipe
from bipace.envs.alfworld import FAMILIES, AlfworldSuite
from bipace.envs.alfworld.suite import OFFICIAL_GAMES
from bipace.envs.registry import get_suite
from bipace.rollout.panel import choose_panels
from bipace.train.config import PRESETS, load_config, read_tree

VERL = Path(__file__).resolve().parents[2] / "examples" / "verl"
QWEN = [(size, suite) for size in ("1.5b", "7b") for suite in ("alfworld", "webshop", "textcraft")]
PAPER = {"1.5b": (-12, 0.05), "7b": (-8, 0.10)}

SAME = {
    "env.suite": "bipace.env.suite",
    "env.max_steps": "bipace.env.max_steps",
    "env.reward": "bipace.env.reward",
    "credit.eps": "bipace.credit.eps",
    "credit.w": "bipace.credit.w",
    "credit.gamma": "bipace.credit.gamma",
    "features.layer": "bipace.features.layer",
    "prompt.style": "bipace.prompt.style",
    "prompt.tagged": "bipace.prompt.tagged",
    "prompt.strict": "bipace.prompt.strict",
    "prompt.lowercase": "bipace.prompt.lowercase",
    "prompt.instructions": "bipace.prompt.instructions",
    "prompt.history_length": "bipace.prompt.history_length",
    "prompt.max_new_tokens": "data.max_response_length",
    "rollout.tasks": "data.train_batch_size",
    "rollout.group_size": "actor_rollout_ref.rollout.n",
    "rollout.temperature": "actor_rollout_ref.rollout.temperature",
    "actor.checkpointing": "actor_rollout_ref.model.enable_gradient_checkpointing",
    "update.micro_tokens": "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "update.lr": "actor_rollout_ref.actor.optim.lr",
    "update.weight_decay": "actor_rollout_ref.actor.optim.weight_decay",
    "update.epochs": "actor_rollout_ref.actor.ppo_epochs",
    "update.clip": "actor_rollout_ref.actor.clip_ratio",
    "update.kl_loss_coef": "actor_rollout_ref.actor.kl_loss_coef",
    "update.entropy_coef": "actor_rollout_ref.actor.entropy_coeff",
    "update.grad_clip": "actor_rollout_ref.actor.grad_clip",
    "update.invalid_action_penalty": "bipace.update.invalid_action_penalty",
    "run.iterations": "trainer.total_training_steps",
    "run.validate_every": "trainer.test_freq",
    "run.validation_temperature": "actor_rollout_ref.rollout.val_kwargs.temperature",
}
COMPUTED = {
    "estimator": lambda y: y["algorithm.adv_estimator"],
    "env.split": lambda y: y["run.sh"]["split"],
    "actor.folder": lambda y: y["actor_rollout_ref.model.path"].removeprefix("Qwen/"),
    "prompt.max_tokens": lambda y: y["data.max_prompt_length"] + y["data.max_response_length"],
    "update.minibatch_rows": lambda y: (
        y["actor_rollout_ref.actor.ppo_mini_batch_size"] * y["actor_rollout_ref.rollout.n"]
    ),
}
# one GPU here, a node of eight there
MACHINE = {"actor.device", "actor.autocast", "rollout.parallel", "run.save_every"}
VERLS_OWN = {  # keys of verl that `bipace train` has no key for: what it does there, it always does here
    "algorithm.adv_estimator": "bipace",
    "trainer.v1.trainer_mode": "bipace",
    "actor_rollout_ref.actor.use_dynamic_bsz": True,
    "actor_rollout_ref.actor.clip_ratio_c": 3.0,
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
    "actor_rollout_ref.rollout.val_kwargs.top_p": 1.0,
}
CLUSTER = (
    "trainer.", "data.", "actor_rollout_ref.model.", "actor_rollout_ref.ref.", "actor_rollout_ref.rollout.",
    "actor_rollout_ref.actor.strategy", "actor_rollout_ref.actor.fsdp_config.",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
)  # fmt: skip


def leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" != "defaults":
            yield f"{prefix}{key}", value


def under_verl(size, suite):
    """Every key of a recipe of examples/verl, and what run.sh takes for it."""
    files = [
        yaml.safe_load((VERL / f"{name}.yaml").read_text()) for name in ("bipace_base", f"{suite}_{size}")
    ]
    line = re.search(rf"^  {suite}\) (.*) ;;$", (VERL / "run.sh").read_text(), re.MULTILINE)[1]
    return {
        **dict(leaves(files[0])),
        **dict(leaves(files[1])),
        "run.sh": dict(p.split("=") for p in line.split()),
    }


@pytest.mark.parametrize(("size", "suite"), QWEN)
def test_a_preset_and_its_recipe_for_verl_say_the_same(size, suite):
    preset = dict(leaves(read_tree(Path(f"qwen2.5-{size}-{suite}"))))
    verl = under_verl(size, suite)
    for key, value in preset.items():
        if key not in MACHINE:
            assert (verl[SAME[key]] if key in SAME else COMPUTED[key](verl)) == value, key
    assert {verl_key for verl_key in verl if verl_key.startswith("bipace.")} == {
        place for key, place in SAME.items() if place.startswith("bipace.") and key in preset
    }
    for key, value in VERLS_OWN.items():
        assert verl[key] == value, key
    named = {*SAME.values(), *VERLS_OWN, "run.sh"}
    assert [key for key in verl if key not in named and not key.startswith(CLUSTER)] == []
    assert verl["run.sh"]["suite"] == verl["bipace.env.suite"]


@pytest.mark.parametrize(("size", "suite"), QWEN)
def test_a_preset_has_the_papers_pair_and_leaves_the_method_as_it_is(size, suite):
    config = load_config(Path(f"qwen2.5-{size}-{suite}"))
    assert (config.features.layer, config.credit["eps"]) == PAPER[size]
    assert config.notes() == []
    shipped = describe(recipe("bipace", eps=config.credit["eps"]))
    assert describe(config.recipe()) == shipped
    assert config.features.action_key == "executed"


def test_no_preset_overrides_the_scale_of_a_term():
    for path in PRESETS.glob("*.toml"):
        assert not {"mode", "trajectory_mode", "step_mode"} & read_tree(path).get("credit", {}).keys(), path


def test_textcraft_trains_from_depth_2_with_a_horizon_for_every_goal():
    config, suite = load_config(Path("qwen2.5-7b-textcraft")), get_suite("textcraft")
    panels = choose_panels(suite, config.env.split, config.env.panel, config.env.held_out)
    assert (panels.split, panels.panel, panels.held_out) == (
        "depth2",
        "depth2-heldout-panel",
        ("depth3-panel",),
    )
    goals = {
        name: {t.split("/")[0] for t in suite.splits[name]} for name in ("depth2", panels.panel, "heldout")
    }
    assert {suite.family(f"{goal}/0") for goal in goals["depth2"] | goals[panels.panel]} == {"depth-2"}
    assert goals[panels.panel] == {g for g in goals["heldout"] if suite.family(f"{g}/0") == "depth-2"}
    assert not goals["depth2"] & goals["heldout"]
    tasks = [*suite.splits["depth2"][:247], *suite.splits[panels.panel], *suite.splits["depth3-panel"]]
    assert max(len(suite.expert(task)) for task in tasks) <= config.env.max_steps
    assert len({task.split("/")[0] for task in tasks[:247]}) == 247


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nothing"))
    monkeypatch.delenv("BIPACE_WEBSHOP_DATA", raising=False)


@pytest.mark.parametrize(
    ("suite", "variable"), [("alfworld", "ALFWORLD_DATA"), ("webshop-synthetic", "BIPACE_WEBSHOP_DATA")]
)
def test_without_the_official_data_one_sentence_says_what_to_set(no_data, suite, variable):
    if suite == "webshop-synthetic":
        pytest.importorskip("bm25s", reason="needs the webshop extra")
    family = AlfworldSuite() if suite == "alfworld" else get_suite(suite)
    with pytest.raises(
        ValueError, match=rf"no split or panel 'train'.*{variable}.*env\.split=gen-train"
    ) as caught:
        choose_panels(family, "train")
    assert "\n" not in str(caught.value)
    panels = choose_panels(family, "gen-train")
    assert all(name.startswith("gen-") for name in (panels.split, panels.panel, *panels.held_out))


def official(folder, counts):
    """The folders of official games; the files are empty, as only their names are looked at."""
    for split, count in counts.items():
        for number in range(count):
            trial = (
                folder
                / "json_2.1.1"
                / split
                / f"{FAMILIES[number % 6]}-A-None-B-{number}"
                / f"trial_{number}"
            )
            trial.mkdir(parents=True)
            (trial / "game.tw-pddl").touch()
    return AlfworldSuite(folder)


def test_official_games_train_on_train_and_validate_on_all_of_valid_seen(tmp_path):
    suite = official(tmp_path, OFFICIAL_GAMES)
    panels = choose_panels(suite, "train")
    assert (panels.panel, panels.held_out) == ("valid_seen", ("valid_unseen",))
    assert [len(suite.splits[name]) for name in ("train", "valid_seen", "valid_unseen")] == [3553, 140, 134]


def test_an_incomplete_official_folder_is_named_before_any_work(tmp_path):
    suite = official(tmp_path, {"train": 12, "valid_seen": 140, "valid_unseen": 133})
    with pytest.raises(
        ValueError, match=r"only a part of 'train': .*train holds 12 of its 3,553 games.*ALFWORLD_DATA"
    ):
        choose_panels(suite, "train")
    with pytest.raises(ValueError, match=r"'valid_unseen'.*holds 133 of its 134 games"):
        choose_panels(suite, "gen-train", "valid_seen", ["valid_unseen"])
    assert choose_panels(suite, "gen-train", "valid_seen", []).panel == "valid_seen"


def test_layouts_and_games_that_alfworlds_own_loader_passes_over_are_left_out(tmp_path):
    official(tmp_path, OFFICIAL_GAMES)
    for number, (name, text) in enumerate(
        [
            (f"{FAMILIES[0]}-AppleSliced-None-B-1", '{"solvable": true}'),
            (f"{FAMILIES[0]}-movable-None-B-1", '{"solvable": true}'),
            ("other_family-A-None-B-1", "{}"),
        ]
    ):
        trial = tmp_path / "json_2.1.1" / "valid_seen" / name / f"trial_{number}"
        trial.mkdir(parents=True)
        (trial / "game.tw-pddl").write_text(text)
    suite = AlfworldSuite(tmp_path)
    assert len(suite.splits["valid_seen"]) == 140
    unsolvable = tmp_path / "json_2.1.1" / "valid_seen" / f"{FAMILIES[0]}-A-None-B-9999" / "trial_9"
    unsolvable.mkdir(parents=True)
    (unsolvable / "game.tw-pddl").write_text('{"solvable": false}')
    for path in (tmp_path / "json_2.1.1" / "valid_seen").glob("*/*/game.tw-pddl"):
        if not path.stat().st_size:
            path.write_text('{"solvable": true}')
    assert len(AlfworldSuite(tmp_path).splits["valid_seen"]) == 140


@pytest.mark.skipif("BIPACE_WEBSHOP_DATA" not in os.environ, reason="the official WebShop files are not here")
def test_official_webshop_goals():
    suite = get_suite("webshop-synthetic")
    assert len(suite.splits["validation"]) == 500
