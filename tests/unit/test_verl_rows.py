"""The parts of the verl adapter that need no verl: rows, settings, guards, episodes, capture."""

from __future__ import annotations

import copy
from dataclasses import asdict

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from bipace.core.advantages import advantages
from bipace.core.rows import build_batch
from bipace.integrations.common.capture import capture, last_prompt_states, layer_index
from bipace.integrations.common.preflight import root_error
from bipace.integrations.common.rows import to_table
from bipace.integrations.verl.guards import check_config, check_version
from bipace.integrations.verl.rows import batch_metrics, engine_steps, parse_key
from bipace.integrations.verl.settings import ESTIMATORS, read_settings
from bipace.rollout.records import EpisodeSummary


def whole(**more):
    """What every row of an episode says of all of it."""
    quiet = dict(overlong=False, aborted=False, unparsed=0, rejected=0, unfinished=0)
    return asdict(EpisodeSummary(**{**quiet, **more}))


def records(rng, groups=3, members=4):
    """Rows of random episodes, with keys as verl writes them."""
    keys, rows, features = [], [], []
    for group in range(groups):
        for member in range(members):
            steps = int(rng.integers(1, 5))
            for t in range(steps):
                keys.append(f"u_{group}_{member}_{t}")
                won = bool(rng.integers(2))
                rows.append(
                    {
                        "observation": f"o{rng.integers(3)}", "command": "x", "action": f"a{rng.integers(2)}",
                        "parsed": bool(rng.integers(2)), "reward": 10.0 * (t == steps - 1 and won),
                        "episode": whole(steps=steps, reward=float(won), won=won, terminated=won,
                        truncated=not won),
                    }
                )  # fmt: skip
                features.append(rng.normal(size=8))
    return keys, rows, np.array(features, np.float32)


def credit(keys, rows, padding, features, **more):
    steps = engine_steps(keys, rows, padding)
    table, events = to_table(steps, features=features, invalid_action_penalty=0.1, **more)
    return dict(zip(keys, table.scatter(advantages(table.batch, recipe()).values), strict=True)), events


def recipe():
    return read_settings({"credit": {"eps": 0.9}}, "bipace").recipe()


def test_advantages_belong_to_keys_whatever_the_row_order_and_the_padding():
    rng = np.random.default_rng(0)
    keys, rows, features = records(rng)
    plain, _ = credit(keys, rows, [False] * len(keys), features)
    for _ in range(5):
        order = rng.permutation(len(keys) + 3)
        padded_keys = [*keys, "pad_0_0", "pad_1_0", "pad_2_0"]
        padded_rows = [*rows, rows[0], rows[0], rows[0]]
        padded_features = np.concatenate([features, features[[0, 0, 0]]])
        padding = [False] * len(keys) + [True] * 3
        found, events = credit(
            [padded_keys[i] for i in order],
            [padded_rows[i] for i in order],
            [padding[i] for i in order],
            padded_features[order],
        )
        assert {k: found[k] for k in keys} == plain
        assert all(found[k] == 0 for k in padded_keys[-3:])
        assert events["event/padding_rows"] == 3


def test_advantages_are_the_cores_on_the_same_steps():
    keys, rows, features = records(np.random.default_rng(1))
    found, _ = credit(keys, rows, [False] * len(keys), features)
    parsed = [k.rsplit("_", 2) for k in keys]
    batch = build_batch(
        task=[p[0] for p in parsed], trajectory=[p[1] for p in parsed], t=[int(p[2]) for p in parsed],
        reward=[r["reward"] for r in rows], observation=[r["observation"] for r in rows],
        action=[r["action"] for r in rows], features=features,
        penalty=[0.1 * (not r["parsed"]) for r in rows],
    ).batch  # fmt: skip
    assert list(found.values()) == advantages(batch, recipe()).values.tolist()


@pytest.mark.parametrize("how", ["missing", "aborted"])
def test_a_broken_trajectory_gets_zero_and_leaves_its_siblings_as_if_it_never_ran(how):
    keys, rows, features = records(np.random.default_rng(2))
    broken = next(k for k, r in zip(keys, rows, strict=True) if r["episode"]["steps"] > 1).rsplit("_", 1)[0]
    inside = [k.rsplit("_", 1)[0] == broken for k in keys]
    without = [i for i, b in enumerate(inside) if not b]
    expected, _ = credit(*([column[i] for i in without] for column in (keys, rows)), [False] * len(without),
                         features[without])  # fmt: skip
    rows = copy.deepcopy(rows)
    keep = list(range(len(keys)))
    if how == "missing":
        keep.remove(inside.index(True))
    else:
        rows[inside.index(True)]["episode"]["aborted"] = True
    found, events = credit(
        [keys[i] for i in keep], [rows[i] for i in keep], [False] * len(keep), features[keep]
    )
    assert {k: v for k, v in found.items() if k.rsplit("_", 1)[0] != broken} == expected
    assert all(v == 0 for k, v in found.items() if k.rsplit("_", 1)[0] == broken)
    assert events["event/missing_rows" if how == "missing" else "event/aborted_rows"] > 0


def test_a_kl_penalty_in_the_reward_enters_as_reward_of_its_step():
    keys, rows, features = records(np.random.default_rng(3))
    kl = np.random.default_rng(4).normal(size=len(keys))
    found, _ = credit(keys, rows, [False] * len(keys), features, added=kl)
    paid = [{**r, "reward": r["reward"] + float(p)} for r, p in zip(rows, kl, strict=True)]
    assert found == credit(keys, paid, [False] * len(keys), features)[0]


def test_a_key_of_another_trainer_is_refused():
    assert parse_key("a_b_3_4") == ("a_b", 3, 4)
    with pytest.raises(ValueError, match="uid_session_index"):
        parse_key("abc")


@pytest.mark.parametrize(
    ("section", "estimator", "message"),
    [
        ({}, "gae", "algorithm.adv_estimator: 'gae'"),
        ({"env": {"sute": "x"}}, "bipace", "did you mean bipace.env.suite"),
        ({"credit": {"epsilon": 1}}, "bipace", "eps"),
        ({"estimator": "gigpo"}, "bipace", "algorithm.adv_estimator"),
        (
            {"prompt": {"style": "chat"}},
            "bipace",
            "bipace.prompt.style: 'chat', expected 'transcript' or 'window'",
        ),
        ({"prompt": {"tagged": "yes"}}, "bipace", "bipace.prompt.tagged: 'yes', expected true or false"),
        ({"prompt": {"tagged": 1}}, "bipace", "bipace.prompt.tagged: 1, expected true or false"),
        (
            {"prompt": {"history_length": -3}},
            "bipace",
            "bipace.prompt.history_length: -3, expected at least 0",
        ),
        ({"prompt": {"history_length": 2.5}}, "bipace", "history_length: 2.5, expected a whole number"),
        ({"features": {"layer": "last"}}, "bipace", "bipace.features.layer: 'last', expected a"),
        ({"features": {"layer": 1.5}}, "bipace", "bipace.features.layer: 1.5, expected a"),
        ({"features": {"layer": True}}, "bipace", "bipace.features.layer: True, expected a"),
        ({"features": {"calibrate_every": -1}}, "bipace", "calibrate_every: -1, expected at least 0"),
        ({"update": {"invalid_action_penalty": -0.1}}, "bipace", "penalty: -0.1, expected at least 0"),
        ({"env": {"reward_scale": 0}}, "bipace", "reward_scale: 0, expected more than 0"),
        ({"env": {"suite": 3}}, "bipace", "bipace.env.suite: 3, expected text"),
        ({"env": {"reward": "won"}}, "bipace", "bipace.env.reward: 'won', expected 'score' or 'success'"),
        (
            {"credit": {"eps": "calibrate"}},
            "bipace",
            "bipace.credit.eps: 'calibrate' is chosen from the first",
        ),
        ({"credit": [1]}, "bipace", "bipace.credit: .*, expected a section"),
        ({"estimator": 3}, "bipace", "bipace.estimator: 3, expected text"),
        ({"features": {"action_key": "verb"}}, "bipace", "action_tag"),
        ({"env": {"max_steps": 0}}, "bipace", "at least 1"),
        ({"env": 3}, "bipace", "bipace.env: 3, expected a section"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_its_name(section, estimator, message):
    with pytest.raises(ValueError, match=message):
        read_settings(section, estimator)


def test_every_recipe_of_the_core_has_an_estimator_that_is_not_verls():
    assert {read_settings({}, name).recipe().name for name in ESTIMATORS} == set(ESTIMATORS.values())
    assert not {"grpo", "rloo", "gae"} & set(ESTIMATORS)


GOOD = {
    "algorithm": {"adv_estimator": "bipace", "rollout_correction": {"bypass_mode": False}},
    "trainer": {"use_v1": True, "v1": {"trainer_mode": "bipace"}},
    "actor_rollout_ref": {"actor": {"strategy": "fsdp2"}, "rollout": {"n": 8}},
    "reward": {"reward_model": {"enable": False}},
}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("algorithm.rollout_correction.bypass_mode", True, "bypass_mode"),
        ("actor_rollout_ref.actor.strategy", "megatron", "fsdp and fsdp2"),
        ("actor_rollout_ref.rollout.n", 1, "no peers"),
        ("trainer.v1.trainer_mode", "sync", "trainer_mode=bipace"),
        ("trainer.use_v1", False, "use_v1=true"),
        ("reward.reward_model.enable", True, "set it to false"),
    ],
)
def test_a_job_that_would_go_wrong_quietly_is_refused(path, value, message):
    assert check_config(GOOD).estimator == "bipace"
    config = copy.deepcopy(GOOD)
    *sections, leaf = path.split(".")
    place = config
    for section in sections:
        place = place[section]
    place[leaf] = value
    with pytest.raises(ValueError, match=message):
        check_config(config)


def test_a_recipe_without_features_runs_under_any_strategy():
    config = copy.deepcopy(GOOD)
    config["algorithm"]["adv_estimator"] = "bipace_gigpo"
    config["actor_rollout_ref"]["actor"]["strategy"] = "megatron"
    assert not check_config(config).captures


@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "0.10.0", "main"])
def test_another_verl_is_refused(version):
    check_version("0.9.1")
    with pytest.raises(ImportError, match=r">=0.9.1,<0.10"):
        check_version(version)


@pytest.mark.parametrize("layer", [0, 1, 2, 3, 0.5, -2])
def test_captured_states_are_those_of_a_plain_forward_packed_and_padded(layer):
    torch.manual_seed(0)
    shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=50, num_key_value_heads=1, **shape)).eval()
    sequences = [torch.randint(0, 50, (n,)) for n in (9, 5, 7)]
    prompts = torch.tensor([4, 1, 7])
    index = layer_index(layer, 3)
    with torch.no_grad():
        plain = torch.stack([
            model(input_ids=s[None, :p], output_hidden_states=True).hidden_states[index][0, -1]
            for s, p in zip(sequences, prompts, strict=True)
        ])  # fmt: skip
        padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
        with capture(model, layer) as kept:
            model(input_ids=padded)
        assert torch.allclose(last_prompt_states(kept[0], prompts, None), plain, atol=1e-6)
        packed = torch.cat(sequences)[None]
        positions = torch.cat([torch.arange(len(s)) for s in sequences])[None]
        with capture(model, layer) as kept:
            model(input_ids=packed, position_ids=positions, use_cache=False)
        offsets = torch.tensor([0, 9, 14, 21])
        assert torch.allclose(last_prompt_states(kept[0][0], prompts, offsets), plain, atol=1e-6)


@pytest.mark.parametrize("layer", [4, -5, 1.0, 1.5, True])
def test_a_layer_outside_the_model_is_refused(layer):
    with pytest.raises(ValueError, match="has 3 layers"):
        layer_index(layer, 3)


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("fine\nTraining Progress: 100%\n", None),
        ("x.py:3: UserWarning: y is not available: ModuleNotFoundError('z')\n", None),
        (
            "Traceback (most recent call last):\nray.exceptions.RayTaskError(RuntimeError): "
            "ray::Task.run() (pid=3)\n"
            '  File "a.py", line 1\nRuntimeError: the workers sent no hidden states back\n',
            "RuntimeError: the workers sent no hidden states back",
        ),
        (
            "\x1b[36m(Worker pid=12)\x1b[0m torch.OutOfMemoryError: CUDA out of memory.\n\x1b[36m(W "
            "pid=1)\x1b[0m x\n",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
    ],
)
def test_the_error_that_ended_a_dry_run_is_found_in_its_output(log, error):
    assert root_error(log) == error


def test_an_episode_that_left_no_row_is_counted():
    keys, rows, _ = records(np.random.default_rng(3), groups=2, members=4)
    lost = [k.startswith("u_1_2_") for k in keys]
    kept = [(k, r) for k, r, gone in zip(keys, rows, lost, strict=True) if not gone]
    found = batch_metrics([k for k, _ in kept], [r for _, r in kept], [False] * len(kept), group_size=4)
    assert found["event/missing_episodes"] == 1
    assert found["episode/count"] == 7
