"""A sample of the attack suite (`make attack` runs all of it)."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("plotly", reason="needs the analyze extra")
pytestmark = pytest.mark.slow

RUN = Path(__file__).resolve().parents[1] / "attack" / "run.py"


def test_each_ninetieth_attack_has_the_outcome_it_must_have():
    done = subprocess.run(
        [sys.executable, str(RUN), "--every", "90"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", wrong 0" in done.stdout.splitlines()[-1]
