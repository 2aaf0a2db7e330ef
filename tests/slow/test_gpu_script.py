"""examples/gpu/run.sh on a CPU with the small actor: preflight, its table, the run, and going on with it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "gpu" / "run.sh"
SMALL = ["run.iterations=4", "run.validate_every=2", "rollout.tasks=2", "env.max_steps=3", "env.held_out=[]"]


def script(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(SCRIPT), *words],
        env={**os.environ, "PATH": path, "DEVICE": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_without_a_model_it_says_what_it_takes():
    said = script()
    assert said.returncode == 2
    assert "examples/gpu/run.sh MODEL [PRESET] [OUT]" in said.stdout


@pytest.mark.slow
def test_preflight_then_the_run_then_the_same_command_again(tmp_path):
    out = str(tmp_path / "gpu")
    first = script("textcraft-small", "demo", out, *SMALL, PREFLIGHT_ONLY="1")
    assert first.returncode == 0, first.stderr
    table = first.stdout[first.stdout.index("seconds of an iteration (mean of 2)") :]
    parts = {name: float(seconds) for name, seconds in re.findall(r"^  (\w+) +([\d.]+)", table, re.MULTILINE)}
    assert {"rollout", "update", "credit", "all"} <= parts.keys()
    assert sum(parts.values()) - parts["all"] == pytest.approx(parts["all"], rel=0.25, abs=0.05)
    assert "the run: 4 iterations and 3 validations" in table
    assert not (tmp_path / "gpu" / "run").exists()

    second = script("textcraft-small", "demo", out, *SMALL)
    assert second.returncode == 0, second.stderr
    log = (tmp_path / "gpu" / "run" / "metrics.jsonl").read_bytes()
    third = script("textcraft-small", "demo", out)
    assert third.returncode == 0, third.stderr
    assert (tmp_path / "gpu" / "run" / "metrics.jsonl").read_bytes() == log


@pytest.mark.slow
def test_a_device_that_is_not_there_is_refused_before_any_work(tmp_path):
    said = script("textcraft-small", "demo", str(tmp_path / "gpu"), DEVICE="cuda:7")
    assert said.returncode != 0
    assert "actor.device" in said.stdout + said.stderr
    assert "Traceback" not in said.stdout + said.stderr
