"""A slice of benchmarks/fuzz.py: the whole million is a command."""

import importlib.util
from pathlib import Path

import pytest

from bipace.core.estimators import RECIPES

pytestmark = pytest.mark.slow


def test_random_batches_never_crash_and_never_give_a_non_finite_number():
    path = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"
    spec = importlib.util.spec_from_file_location("fuzz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    met = module.fuzz(1_000 * len(RECIPES), seed=7)
    assert met == dict.fromkeys(RECIPES, 1_000)
