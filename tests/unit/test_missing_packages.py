"""A command whose packages are missing says so in one sentence, with the extra that brings them, before any
work.
"""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from bipace.train import extras
from bipace.train.failure import WRONG_INPUT, explain


@pytest.fixture
def only(monkeypatch):
    """The installed distributions are these."""

    def set_installed(*names):
        def version(package):
            if package.lower() in names:
                return "1.0"
            raise PackageNotFoundError(package)

        monkeypatch.setattr(extras, "version", version)

    lines = [
        "numpy>=1", "typer>=0.16; extra == 'cli'", "tomli>=2; (python_version < '3.11') and extra == 'cli'",
        "bipace[cli]; extra == 'report'", "matplotlib>=3.8; extra == 'report'", "scipy; extra == 'report'",
        "typer; extra == 'all'", "matplotlib; extra == 'all'", "torch; extra == 'all'",
        "PyStemmer; extra == 'webshop'",
        "bipace[report]; extra == 'train'", "torch>=2.6; extra == 'train'", "torch; extra == 'verl'",
    ]  # fmt: skip
    monkeypatch.setattr(extras, "requires", lambda name: lines)
    return set_installed


def test_the_sentence_names_command_packages_and_extra(only):
    only("typer")
    with pytest.raises(ModuleNotFoundError) as error:
        extras.require("bipace report", "report")
    wanted = "bipace report needs matplotlib and scipy, which are not installed: pip install 'bipace[report]'"
    assert explain(error.value) == (wanted, WRONG_INPUT)


def test_one_missing_package_is_singular_and_found_through_the_extra_it_stands_in(only):
    only("typer", "matplotlib", "scipy")
    with pytest.raises(ModuleNotFoundError, match=r"needs torch, which is not installed: .*bipace\[train\]"):
        extras.require("bipace train", "train")


def test_nothing_missing_and_nothing_known_pass(only, monkeypatch):
    only("typer", "matplotlib", "scipy", "torch")
    extras.require("bipace train", "train")
    monkeypatch.setattr(extras, "requires", lambda name: None)
    extras.require("bipace train", "train")


def test_the_smallest_extra_is_named(only):
    only()
    assert extras.extra_of("torch") == "train"
    assert extras.extra_of("Matplotlib") == "report"
    assert extras.extra_of("pystemmer") == "webshop"
    assert extras.extra_of("unheard-of") is None
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert explain(error)[0].endswith("which is not installed: pip install 'bipace[train]'")


def test_a_package_for_an_older_python_is_not_missed(only):
    only("typer")
    extras.require("bipace recipes", "cli")


def test_the_list_of_environments_shows_the_extra_with_its_brackets():
    """On a screen of 80 columns; rich would take `[webshop]` for markup."""
    code = "import sys; sys.modules['bm25s'] = None; from bipace.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "envs"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    assert "'bipace[webshop]'" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if line[:1] in "┏┃┡│└")
