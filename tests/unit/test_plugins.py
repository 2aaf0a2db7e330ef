"""A user's own objects by module and by file: run once, and every mistake named."""

import pytest

from bipace.core.estimators import recipe
from bipace.core.plugins import load_attribute


def test_a_file_is_run_once_and_its_attributes_share_a_module(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("runs = []\nruns.append(1)\nclass A: ...\ndef make(): return A()\n")
    assert isinstance(load_attribute(f"{own}:make", "x")(), load_attribute(f"{own}:A", "x"))
    assert load_attribute(f"{own}:runs", "x") == [1]
    assert load_attribute("math:pi", "x") == pytest.approx(3.14159, abs=1e-5)


def test_a_file_that_fails_is_run_again_when_it_is_mended(tmp_path):
    own = tmp_path / "broken.py"
    own.write_text("raise RuntimeError('half written')\n")
    with pytest.raises(RuntimeError, match="half written"):
        load_attribute(f"{own}:value", "x")
    own.write_text("value = 3\n")
    assert load_attribute(f"{own}:value", "x") == 3


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("no_such_module:x", "recipe 'r': there is no module 'no_such_module'"),
        ("absent.py:x", "recipe 'r': there is no file 'absent.py'"),
        ("math:tau2", "recipe 'r': math has no attribute 'tau2'"),
        ("math:", "recipe 'r': expected module:attribute"),
        (":x", "recipe 'r': expected module:attribute"),
    ],
)
def test_what_cannot_be_found_is_named(where, message):
    with pytest.raises(ValueError, match=message):
        load_attribute(where, "recipe 'r'")


def test_a_module_that_misses_an_import_of_its_own_says_so(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import not_installed_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        load_attribute("needs_more:x", "recipe 'r'")


def test_a_recipe_of_ones_own_must_be_a_function_that_returns_one(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("from bipace.core.estimators import grpo\nnumber = 3\ndef wrong(): return 4\n")
    assert recipe(f"{own}:grpo").name == "grpo"
    with pytest.raises(ValueError, match="is a int, expected a function"):
        recipe(f"{own}:number")
    with pytest.raises(ValueError, match="returned int, expected a bipace Recipe"):
        recipe(f"{own}:wrong")


@pytest.mark.parametrize(
    "options",
    [
        {"weight_offset": 0.0, "base_group": True, "alpha": -1.0},
        {"weight_offset": -1.0, "alpha": -0.5},
        {"weight_offset": -2.0, "alpha": 0.5},
    ],
)
def test_hgpo_weights_that_are_no_numbers_are_refused(options):
    with pytest.raises(ValueError, match="weight_offset"):
        recipe("hgpo", **options)


def test_hgpo_weights_at_the_edge_are_allowed():
    assert recipe("hgpo", weight_offset=0.0, base_group=True, alpha=0.0).parts[0].weights == (
        1.0,
        1.0,
        1.0,
        1.0,
    )
    assert recipe("hgpo", weight_offset=0.0, alpha=-1.0).parts[0].weights[0] == 1.0
