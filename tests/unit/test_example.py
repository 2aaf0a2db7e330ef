"""The tutorial runs, and its agent learns."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "one_file.py"


@pytest.mark.parametrize("recipe", ["bipace", "gigpo", "grpo"])
def test_the_tutorial_learns_its_world(recipe, capsys):
    final = runpy.run_path(str(EXAMPLE))["main"](recipe)
    shown = capsys.readouterr().out.splitlines()
    assert "iteration   5" in shown[0]
    assert final > 0.9
