"""Numbers do not drift: every recipe on one committed table gives what it gave when the table was made."""

import json
from pathlib import Path

import numpy as np
import pytest

from bipace.core.advantages import advantages
from bipace.core.estimators import RECIPES, recipe
from strategies import to_batch

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "trajectories.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("output", GOLDEN["outputs"], ids=lambda o: f"{o['recipe']}-{o['options']}")
def test_numbers(output):
    made = recipe(output["recipe"], **output["options"])
    np.testing.assert_allclose(
        advantages(to_batch(GOLDEN["rows"]), made).values, output["values"], rtol=1e-9, atol=1e-12
    )


def test_every_recipe_has_numbers():
    assert {output["recipe"] for output in GOLDEN["outputs"]} == set(RECIPES)
