"""Every recipe trains on generated ALFWorld games through the command line, with the shipped actor and
preset.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.core.estimators import RECIPES
from bipace.envs.alfworld import FAMILIES

TINY = (
    "rollout.tasks=2", "rollout.group_size=3", "env.max_steps=3", "env.held_out=[]", "run.iterations=2",
    "run.validate_every=2", "actor.threads=1",
)  # fmt: skip


def bipace(*arguments):
    command = [sys.executable, "-c", "from bipace.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_every_recipe_trains_on_generated_games(recipe, tmp_path):
    done = bipace(
        "train", "--config", "alfworld", f"estimator={recipe}", *TINY, "--out", str(tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["recipe"], summary["suite"], summary["iterations"]) == (recipe, "alfworld", 2)
    assert set(summary["panel"]["family"]) == set(FAMILIES)
    assert summary["panel"]["n"] == 128


def test_an_actor_is_made_by_one_command_and_evaluated(tmp_path):
    config = tmp_path / "tiny.toml"
    config.write_text('env = {split = "gen-small-panel", max_steps = 6}\n')
    made = bipace(
        "imitate", str(tmp_path / "actor"), "--suite", "alfworld", "--config", str(config),
        "--steps", "2", "--every", "2", "--batch", "4", "--lr", "1e-3",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    card = json.loads((tmp_path / "actor" / "imitation.json").read_text())
    assert card["command"].endswith(f"--lr 0.001 --batch 4 --config {config}")
    told = bipace(
        "eval",
        str(tmp_path / "actor"),
        "env.suite=alfworld",
        "env.max_steps=2",
        "--panel",
        "gen-panel",
        "--json",
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["gen-panel"]["n"] == 128
