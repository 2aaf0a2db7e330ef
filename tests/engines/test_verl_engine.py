"""The plug-in inside stock verl, without Ray: the engine's capture, the registries, the shipped recipes."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl lives in an environment of its own: make test-engines", allow_module_level=True)

from launch import ACTOR, HELPERS, MODULES, environment, overrides

pytestmark = pytest.mark.slow


def forward(folder, ranks, *options):
    """What every rank of `engine_forward.py` found."""
    command = [sys.executable, "-W", "ignore", str(HELPERS / "engine_forward.py"), str(ACTOR)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(folder / "store"), *options],
            env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=240) for process in processes]
    assert all(p.returncode == 0 for p in processes), outputs[0][1][-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


@pytest.mark.parametrize(("ranks", "options"), [(1, ()), (2, ()), (1, ("lora",))])
def test_captured_states_equal_a_plain_forward_on_every_layer_packed_and_padded(tmp_path, ranks, options):
    for found in forward(tmp_path, ranks, *options):
        assert len(found["error"]) == 2 * (found["layers"] + 1)
        assert max(found["error"].values()) < 1e-6, found
        assert found["without_key"] == ["entropy", "log_probs"]


def python(folder, code, modules=MODULES):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment(folder, modules), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_plug_in_registers_beside_verls_own_and_replaces_nothing(tmp_path):
    code = """
import verl
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as estimators
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY as trainers
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry as agents
from verl.workers.engine.base import EngineRegistry
from bipace.integrations.verl.settings import ESTIMATORS
assert set(ESTIMATORS) <= set(estimators) and estimators["grpo"].__module__.startswith("verl")
assert trainers["bipace"].__module__.startswith("bipace") and trainers["sync"].__module__.startswith("verl")
assert agents["bipace"]["_target_"].startswith("bipace")
stock = EngineRegistry._engines["language_model"]["fsdp2"]["cuda"]
assert stock.__module__.startswith("verl"), stock
print("REGISTERED")
"""
    status, out = python(tmp_path, code)
    assert status == 0, out[-3000:]
    assert "REGISTERED" in out


def test_an_estimator_under_another_trainer_says_which_one_it_needs(tmp_path):
    code = """
import torch, verl
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
get_adv_estimator_fn("bipace_gigpo")(token_level_rewards=torch.zeros(2, 3), response_mask=torch.ones(2, 3))
"""
    status, out = python(tmp_path, code)
    assert status != 0
    assert "trainer.v1.trainer_mode=bipace" in out


def test_advantages_through_verls_own_call_are_the_cores_per_row(tmp_path):
    code = """
import numpy as np, torch, verl
from verl.protocol import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from bipace.core.advantages import advantages
from bipace.integrations.verl.estimator import HANDED_OVER, Handover
from bipace.integrations.common.estimator import Estimator
from bipace.integrations.common.rows import to_table
from bipace.integrations.verl.rows import engine_steps
from bipace.integrations.verl.settings import read_settings
rng = np.random.default_rng(0)
keys = [f"u{g}_{m}_{t}" for g in range(2) for m in range(4) for t in range(3)] + ["pad1_0_0"]
won = {(g, m): bool(rng.integers(2)) for g in range(2) for m in range(4)}
records = []
for key in keys[:-1]:
    u, m, t = key.rsplit("_", 2)
    w = won[int(u[1:]), int(m)]
    whole = dict(steps=3, reward=1.0 * w, won=w, terminated=w, truncated=not w, overlong=False, aborted=False,
        unparsed=0, rejected=0, unfinished=0)
    records.append(dict(reward=10.0 * (w and t == "2"), observation=f"o{rng.integers(2)}",
        action=f"a{rng.integers(2)}", parsed=True, episode=whole))
records.append(records[0])
order = rng.permutation(len(keys))
keys, records = [keys[i] for i in order], [records[i] for i in order]
padding = [k.startswith("pad") for k in keys]
features = rng.normal(size=(len(keys), 8)).astype(np.float32)
mask = torch.ones(len(keys), 5); mask[:, 3:] = 0
recipe = read_settings({"credit": {"eps": 0.8}}, "bipace").recipe()
kl = torch.from_numpy(rng.normal(size=(len(keys), 5))) * mask
estimator = Estimator(recipe, invalid_action_penalty=0.1)
handed = Handover(keys, records, padding, features, np.zeros(len(keys)), estimator)
token = HANDED_OVER.set(handed)
data = DataProto.from_dict(tensors={"token_level_rewards": kl, "response_mask": mask},
    non_tensors={"uid": np.array([k.rsplit("_", 2)[0] for k in keys], dtype=object)})
found = compute_advantage_for_multi_trajectories(data, batch_keys=keys, adv_estimator="bipace", config={})
paid = kl.sum(-1).numpy()
steps = engine_steps(keys, records, padding)
rows, _ = to_table(steps, features=features, added=paid, invalid_action_penalty=0.1)
expected = torch.from_numpy(rows.scatter(advantages(rows.batch, recipe).values))[:, None] * mask
assert torch.equal(found.batch["advantages"].double(), expected.double())
assert (found.batch["advantages"][padding.index(True)] == 0).all() and expected.abs().max() > 0
assert {"cluster/singleton_rate", "credit/branch_lone", "group/groups"} <= set(handed.credit.metrics)
print("EQUAL")
"""
    status, out = python(tmp_path, code)
    assert status == 0, out[-3000:]
    assert "EQUAL" in out


def test_the_agent_loop_stores_one_row_per_model_call_with_its_own_reward(tmp_path):
    arguments = overrides(tmp_path, ranks=1, packed=False, steps=1, tasks=2, group=2)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HELPERS / "agent_rows.py"), *arguments],
        env=environment(tmp_path), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    rows = found["rows"]
    assert [row["record"]["command"] for row in rows] == found["plan"]
    assert [row["record"]["reward"] for row in rows] == [0.0] * (len(rows) - 1) + [10.0]
    assert all(row["score"] == 10.0 and row["version"] == 3 and all(row["mask"]) for row in rows)
    for before, after in itertools.pairwise(rows):
        assert after["prompt"].startswith(before["prompt"] + before["response"])
