"""A job that must learn, through TRL's own loop: the example's, with the shipped actor."""

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

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "trl"
EXAMPLE = EXAMPLES / "textcraft.py"
QUIET = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def test_bipace_inside_trl_learns(tmp_path):
    """Success on recipe lists that were not trained on, 256 episodes each time; one deviation of the rise: 4
    points.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(EXAMPLE), "--recipe", "bipace", "--out", str(tmp_path)],
        env={**os.environ, **QUIET}, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["points"] >= 15, found
    assert found["credit_s"] < 0.02 * found["generation_s"], found


def test_the_notebook_runs(tmp_path):
    cells = json.loads((EXAMPLES / "textcraft.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "generations = 10" in code
    script = tmp_path / "notebook.py"
    script.write_text(code.replace("generations = 10", "generations = 1") + "\nassert len(log) == 1, log\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
