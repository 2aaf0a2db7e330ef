"""The command line says what happened: Ctrl-C, resume by the folder alone, whose settings an evaluation uses,
gains.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.rollout.intervals import success_interval
from bipace.train.finish import gain_interval

COMMAND = (sys.executable, "-m", "bipace")
SUITE = """
from dataclasses import replace
from bipace.envs.textcraft import suite
easy = [task for task in suite().splits["demo"] if suite().family(task) == "depth-1"]
small = replace(suite(), splits={"train": tuple(easy[:5]), "own-panel": tuple(easy[:3])})
"""
SETTINGS = (
    "rollout.tasks=2", "rollout.group_size=2", "env.max_steps=4", "env.held_out=[]", "run.validate_every=9",
    "run.save_every=9", "prompt.max_new_tokens=12",
)  # fmt: skip


def bipace(*words, **more):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, **more)


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "tiny.py").write_text(SUITE)
    return f"env.suite={tmp_path / 'tiny.py'}:small"


def test_ctrl_c_tells_where_it_stopped_and_how_to_go_on(suite, tmp_path):
    folder = tmp_path / "run"
    words = ("train", suite, *SETTINGS, "run.iterations=60", "--out", str(folder))
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = folder / "metrics.jsonl"
    while process.poll() is None and not (log.is_file() and log.read_text().count("\n") > 1):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    shown, told = process.communicate(timeout=300)
    assert process.returncode == 130, told
    done = json.loads((folder / "last" / "trainer_state.json").read_text())["iteration"]
    assert f"stopped at {done} of 60; go on with: bipace train --resume {folder}" in told
    assert "threads: 1 (" in told
    assert "to go: " in told
    assert shown == ""
    assert not (folder / "summary.json").exists()
    again = bipace("train", "--resume", str(folder), f"run.iterations={done + 1}")
    assert again.returncode == 0, again.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["iterations"] == summary["panel"]["final_iteration"] == done + 1
    low, high = summary["panel"]["gain_ci95"]
    assert low <= summary["panel"]["final"] - summary["panel"]["warm_start"] <= high
    assert json.loads((folder / "provenance.json").read_text())["threads"]["number"] == 1
    for part in ("", "best", "last/actor", f"checkpoints/iteration-{done + 1:06d}"):
        found = bipace("eval", str(folder / part), "--json")
        assert found.returncode == 0, found.stderr
        assert {name: panel["n"] for name, panel in json.loads(found.stdout).items()} == {"own-panel": 3}


def test_an_actor_of_another_suite_is_told(tmp_path):
    done = bipace("eval", "alfworld-small", "env.max_steps=1", "--panel", "depth4-panel")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stderr.split())
    assert "the actor alfworld-small was made for alfworld, not for textcraft" in told
    assert "actor.folder=textcraft-medium, textcraft-small" in told


def test_a_device_that_is_not_there_is_one_sentence_and_leaves_nothing(tmp_path):
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = bipace("train", "actor.device=cuda", cwd=tmp_path, env=hidden)
    assert done.returncode == 2, done.stderr
    said = "error: actor.device: 'cuda', but torch finds no CUDA device here; use actor.device=cpu"
    assert done.stderr.strip() == said
    assert not list(tmp_path.iterdir())


def test_imitation_of_a_suite_with_two_tasks_ends(suite, tmp_path):
    (tmp_path / "two.py").write_text(SUITE.replace("easy[:5]", "easy[:2]"))
    words = ("--suite", f"{tmp_path / 'two.py'}:small", "--steps", "3", "--every", "3", "--target", "2")
    done = bipace("imitate", str(tmp_path / "new"), *words, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "new" / "imitation.json").read_text())["demonstrations"] == 2


def test_the_interval_of_a_gain_is_newcombes():
    """Newcombe 1998, table II, method 10: 56/70 - 48/80 has 0.0524 to 0.3339."""
    before, after = 48 / 80, 56 / 70
    found = gain_interval(before, list(success_interval(48, 80)), after, list(success_interval(56, 70)))
    assert [round(value, 4) for value in found] == [0.0524, 0.3339]
    assert gain_interval(0.0, None, 1.0, [0.5, 1.0]) is None
