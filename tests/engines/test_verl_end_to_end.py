"""Stock verl on local Ray, end to end on the CPU: one and two ranks, padded and packed, with the shipped actor.

A job takes most of a minute, so each is run once and asserted from many sides.
"""

from __future__ import annotations

import importlib.util
import json
import shutil

import numpy as np
import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl lives in an environment of its own: make test-engines", allow_module_level=True)

import torch
from launch import ACTOR, job, overrides, run
from transformers import AutoModelForCausalLM

from bipace.core.advantages import advantages
from bipace.envs.registry import get_suite
from bipace.integrations.verl.capture import layer_index
from bipace.integrations.verl.data import write_tasks
from bipace.integrations.verl.rows import to_table
from bipace.integrations.verl.settings import read_settings

pytestmark = pytest.mark.slow

SHAPES = [(2, False), (2, True), (1, True), (1, False)]
LEARNING_STEPS = 12
RISE = 0.1


def prepare(folder):
    suite = get_suite("textcraft")
    write_tasks(suite, "train", folder / "train.parquet", limit=2048)
    write_tasks(suite, "train-panel", folder / "val.parquet", limit=128)
    return folder


@pytest.fixture(scope="module")
def learning_job(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("learning"))
    extra = ("trainer.val_before_train=True", f"trainer.test_freq={LEARNING_STEPS}", "trainer.save_freq=1")
    return job(folder, extra, ranks=1, packed=False, steps=LEARNING_STEPS, tasks=16, group=8)


@pytest.fixture(scope="module", params=SHAPES, ids=lambda s: f"ranks{s[0]}-{'packed' if s[1] else 'padded'}")
def short_job(request, tmp_path_factory):
    ranks, packed = request.param
    if (ranks, packed) == (1, False):  # the learning job has this shape, and a job takes most of a minute
        return request.getfixturevalue("learning_job")
    folder = prepare(tmp_path_factory.mktemp("verl"))
    return job(folder, ("trainer.save_freq=1",), ranks=ranks, packed=packed, steps=2, tasks=4, group=4)


def plain_states(model, prompts):
    model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    layer = layer_index(0.61, model.config.num_hidden_layers)
    with torch.no_grad():
        states = [
            model(input_ids=torch.tensor([p]), output_hidden_states=True).hidden_states[layer][0, -1] for p in prompts
        ]
    return torch.stack(states).numpy()


def test_captured_features_equal_a_plain_forward(short_job):
    models = {1: ACTOR, 2: short_job.folder / "global_step_1" / "actor" / "huggingface"}
    for step, model in models.items():
        expected = plain_states(model, short_job.step(step)["prompts"])
        found = np.load(short_job.folder / f"features_{step}.npy")
        assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-6


def test_advantages_equal_the_cores_on_the_same_rows_in_any_order(short_job):
    seen = short_job.step(1)
    features = np.load(short_job.folder / "features_1.npy")
    recipe = read_settings({"credit": {"eps": 0.1}}, "bipace").recipe()
    order = np.random.default_rng(0).permutation(len(seen["keys"]))
    rows, _ = to_table(
        [seen["keys"][i] for i in order], [seen["records"][i] for i in order], [seen["padding"][i] for i in order],
        features=features[order], invalid_action_penalty=0.1,
    )  # fmt: skip
    values = np.zeros(len(order))
    values[order] = rows.scatter(advantages(rows.batch, recipe).values)
    for value, found, mask in zip(values, seen["advantages"], seen["response_mask"], strict=True):
        assert found == pytest.approx([value * m for m in mask], abs=1e-6)
    assert any(values != 0)


def test_padding_rows_carry_no_credit(short_job):
    for step in (1, 2):
        seen = short_job.step(step)
        padded = [sum(map(abs, a)) for a, p in zip(seen["advantages"], seen["padding"], strict=True) if p]
        assert padded == [0.0] * len(padded)
        assert short_job.metrics[step]["event/padding_rows"] == len(padded)


def test_the_weights_of_each_checkpoint_reach_every_rollout_server(short_job):
    lines = [json.loads(line) for line in (short_job.folder / "weights.jsonl").read_text().splitlines()]
    assert not any(line["missing"] or line["unexpected"] for line in lines)
    before = {line["version"]: line["checksum"] for line in lines}[0]
    for step in (1, 2):
        folder = short_job.folder / f"global_step_{step}" / "actor" / "huggingface"
        saved = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        expected = {name: float(value.double().sum()) for name, value in saved.state_dict().items()}
        arrived = [line["checksum"] for line in lines if line["version"] == step]
        assert arrived
        for checksum in arrived:
            assert all(checksum[name] == pytest.approx(expected[name], rel=1e-6, abs=1e-6) for name in checksum)
            assert checksum != before


def test_a_step_logs_the_metrics_of_bipace_train(short_job):
    seen = short_job.step(1)
    rows = zip(seen["keys"], seen["padding"], strict=True)
    names = {"episode/success_rate", "event/unparsed", "group/groups", "cluster/singleton_rate", "credit/branch_lone"}
    assert names <= set(short_job.metrics[1])
    assert short_job.metrics[1]["episode/count"] == len({k.rsplit("_", 1)[0] for k, p in rows if not p})
    assert 0 < short_job.metrics[2]["perf/bipace_share"] < 0.05


def success(metrics):
    (name,) = [k for k in metrics if k.startswith("val-core/") and "/acc/mean@1" in k]
    return metrics[name]


def test_it_learns(learning_job):
    before, after = success(learning_job.metrics[0]), success(learning_job.metrics[LEARNING_STEPS])
    assert after - before >= RISE, f"success {before:.3f} -> {after:.3f} in {LEARNING_STEPS} steps"


def test_a_resumed_job_starts_from_the_saved_weights_and_step(learning_job):
    folder = learning_job.folder
    kept = folder / "first.jsonl"
    shutil.copy(folder / "weights.jsonl", kept)
    last = [json.loads(line) for line in kept.read_text().splitlines()][-1]
    resumed = job(folder, name="resumed", ranks=1, packed=False, steps=LEARNING_STEPS + 1, tasks=16, group=8)
    assert sorted(resumed.metrics) == [LEARNING_STEPS + 1]
    first = json.loads((folder / "weights.jsonl").read_text().splitlines()[len(kept.read_text().splitlines())])
    assert first["version"] == LEARNING_STEPS
    assert first["checksum"] == last["checksum"]


def test_a_worker_without_the_plug_in_stops_the_job_with_the_way_out(tmp_path):
    prepare(tmp_path)
    arguments = overrides(tmp_path, ranks=1, packed=False, steps=1, tasks=2, group=2)
    modules = ("cpu_platform", "hf_rollout", "stock_engine", "bipace.integrations.verl.plugin")
    status, log = run(tmp_path, arguments, modules=modules)
    assert status != 0
    assert "plug-in is not loaded in every worker" in log.read_text()
