"""What holds for every job of verl with the plug-in: tests of the fixture `any_job` of the module that
imports them.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from launch import ACTOR
from transformers import AutoModelForCausalLM

from bipace.core.advantages import advantages
from bipace.integrations.common.capture import layer_index
from bipace.integrations.common.rows import to_table
from bipace.integrations.verl.rows import engine_steps
from bipace.integrations.verl.settings import read_settings
from glossary import unexplained

__all__ = [
    "test_a_step_logs_the_metrics_of_bipace_train",
    "test_advantages_equal_the_cores_on_the_same_rows_in_any_order",
    "test_captured_features_equal_a_plain_forward",
    "test_every_metric_of_ours_is_explained",
    "test_padding_rows_carry_no_credit",
    "test_the_weights_of_each_checkpoint_reach_every_rollout_server",
]


def first_steps(finished):
    return sorted(step for step in finished.metrics if step > 0)[:2]


def checkpoint(finished, step):
    """The weights after a step; the shipped actor before the first."""
    return finished.folder / f"global_step_{step}" / "actor" / "huggingface" if step else ACTOR


def plain_states(model, prompts):
    model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    layer = layer_index(0.61, model.config.num_hidden_layers)
    with torch.no_grad():
        states = [
            model(input_ids=torch.tensor([p]), output_hidden_states=True).hidden_states[layer][0, -1]
            for p in prompts
        ]
    return torch.stack(states).numpy()


def test_captured_features_equal_a_plain_forward(any_job):
    for step in first_steps(any_job):
        expected = plain_states(checkpoint(any_job, step - 1), any_job.step(step)["prompts"])
        found = np.load(any_job.folder / f"features_{step}.npy")
        assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-6


def test_advantages_equal_the_cores_on_the_same_rows_in_any_order(any_job):
    recipe, credited = read_settings({"credit": {"eps": 0.1, "mode": "mean_norm"}}, "bipace").recipe(), 0
    for step in first_steps(any_job):
        seen = any_job.step(step)
        features = np.load(any_job.folder / f"features_{step}.npy")
        order = np.random.default_rng(step).permutation(len(seen["keys"]))
        steps = engine_steps(seen["keys"], seen["records"], seen["padding"])
        rows, _ = to_table([steps[i] for i in order], features=features[order], invalid_action_penalty=0.1)
        values = np.zeros(len(order))
        values[order] = rows.scatter(advantages(rows.batch, recipe).values)
        credited += np.count_nonzero(values)
        for value, found, mask in zip(values, seen["advantages"], seen["response_mask"], strict=True):
            assert found == pytest.approx([value * m for m in mask], rel=1e-6, abs=1e-6)
    assert credited


def test_padding_rows_carry_no_credit(any_job):
    for step in first_steps(any_job):
        seen = any_job.step(step)
        padded = [sum(map(abs, a)) for a, p in zip(seen["advantages"], seen["padding"], strict=True) if p]
        assert padded == [0.0] * len(padded)
        assert any_job.metrics[step]["event/padding_rows"] == len(padded)


def test_the_weights_of_each_checkpoint_reach_every_rollout_server(any_job):
    lines = [json.loads(line) for line in (any_job.folder / "weights.jsonl").read_text().splitlines()]
    assert not any(line["missing"] or line["unexpected"] for line in lines)
    arrived = {
        step: [line["checksum"] for line in lines if line["version"] == step]
        for step in {0, *any_job.metrics}
    }
    for step in first_steps(any_job):
        saved = AutoModelForCausalLM.from_pretrained(checkpoint(any_job, step), dtype=torch.float32)
        expected = {name: float(value.double().sum()) for name, value in saved.state_dict().items()}
        assert arrived[step]
        for checksum in arrived[step]:
            assert all(
                checksum[name] == pytest.approx(expected[name], rel=1e-6, abs=1e-6) for name in checksum
            )
            assert checksum != arrived[0][0]


def test_a_step_logs_the_metrics_of_bipace_train(any_job):
    step = first_steps(any_job)[0]
    seen, logged = any_job.step(step), any_job.metrics[step]
    rows = zip(seen["keys"], seen["padding"], strict=True)
    names = {
        "episode/success_rate",
        "event/unparsed",
        "group/groups",
        "cluster/singleton_rate",
        "credit/branch_lone",
    }
    assert names <= set(logged)
    assert logged["episode/count"] == len({k.rsplit("_", 1)[0] for k, p in rows if not p})
    assert 0 < logged["perf/credit_share"] < 0.05


OURS = ("episode/", "event/", "group/", "cluster/", "credit/")


def test_every_metric_of_ours_is_explained(any_job):
    logged = {name for metrics in any_job.metrics.values() for name in metrics if name.startswith(OURS)}
    ours = {"perf/credit_share", "perf/feature_mb", "timing_s/credit"}
    assert ours <= {name for metrics in any_job.metrics.values() for name in metrics}
    assert unexplained(logged | ours) == set()
    assert {
        "event/missing_rows",
        "event/padding_rows",
        "event/aborted_rows",
        "event/non_finite_rows",
    } <= logged
