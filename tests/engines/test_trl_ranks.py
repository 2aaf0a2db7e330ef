"""Two ranks on the CPU (accelerate, gloo), a prompt group on both of them: the parts are the whole."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("trl") is None:
    pytest.skip("TRL lives in an environment of its own: make test-engines", allow_module_level=True)

import numpy as np
import torch

from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from bipace.core.rows import build_batch

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parent / "trl_cpu" / "rank.py"


def job(folder, kind, name):
    """What both ranks saw, and the weights of each at the end."""
    folder.mkdir()
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
    ]
    done = subprocess.run(
        [*command, str(SCRIPT), str(folder), kind, name],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=420,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    seen = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    return seen, [torch.load(folder / f"weights{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", ["bipace", "gigpo"])
def test_values_of_prompt_groups_that_lie_on_two_ranks_are_the_cores(tmp_path, name):
    seen, ends = job(tmp_path / "job", "ours", name)
    merged = {k: [v for part in seen for v in part["columns"][k]] for k in seen[0]["columns"]}
    assert [len(set(part["columns"]["task"])) for part in seen] == [2, 2]
    assert set(seen[0]["columns"]["task"]) & set(seen[1]["columns"]["task"])
    order = sorted(range(len(merged["tokens"])), key=lambda row: merged["tokens"][row])
    local = len(seen[0]["columns"]["tokens"])
    rows = [
        (rank, row, start, end)
        for rank, part in enumerate(seen)
        for row, start, end in part["columns"]["span"]
    ]
    actions = [json.dumps(action) for action in merged["action"]]
    table = build_batch(
        task=merged["task"], trajectory=[order.index(rank * local + row) for rank, row, _, _ in rows],
        t=merged["t"],
        reward=merged["reward"], observation=merged["observation"], action=actions,
        features=np.array(merged["features"], np.float32) if name == "bipace" else None,
    )  # fmt: skip
    values = table.scatter(advantages(table.batch, recipe(name)).values)
    assert np.abs(values).max() > 0.1
    for value, (rank, row, start, end) in zip(values, rows, strict=True):
        assert seen[rank]["advantages"][row][start:end] == pytest.approx([value] * (end - start), abs=1e-5)
    assert seen[0]["metrics"][0]["group/trajectories"] == 2 * local
    assert torch.equal(*ends)
    assert seen[0]["moved"] > 1e-5


def test_grpo_on_two_ranks_is_stock_trl_on_two_ranks(tmp_path):
    stock, stock_ends = job(tmp_path / "stock", "stock", "grpo")
    ours, own_ends = job(tmp_path / "ours", "ours", "grpo")
    assert ours[0]["losses"] == pytest.approx(stock[0]["losses"], abs=1e-6)
    assert (own_ends[0] - stock_ends[0]).abs().max() < 1e-2 * stock[0]["moved"]
