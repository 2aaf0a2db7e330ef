"""`mt_grpo` gives what MT-GRPO's public code gave, run once on the same tables (tests/golden/mt_grpo.json).

That code knows two turns, a reward for the first and an outcome at the end, and adds 1e-4 to deviations where
we add 1e-6: the parts are compared with its number, the recipe as shipped within what that difference makes.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bipace.core.advantages import Term, advantages
from bipace.core.baselines import cluster_std
from bipace.core.estimators import recipe
from bipace.core.turns import TurnsToGo
from strategies import to_batch

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mt_grpo.json").read_text(encoding="utf-8"))


def batch_of(case):
    return to_batch([{**row, "feature": [0.0], "penalty": 0.0} for row in case["rows"]])


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_the_public_codes_numbers_with_its_delta(case):
    made = recipe("mt_grpo", **case["options"])
    whole, turns = made.parts
    assert isinstance(whole, Term)
    assert isinstance(turns, Term)
    assert isinstance(turns.returns, TurnsToGo)
    delta = GOLDEN["delta"]
    theirs = replace(
        made,
        parts=(
            replace(whole, scale=partial(cluster_std, delta=delta)),
            replace(turns, returns=replace(turns.returns, delta=delta)),
        ),
    )
    values = advantages(batch_of(case), theirs).values
    np.testing.assert_allclose(values, case["values"], rtol=1e-6, atol=1e-6)  # theirs are float32


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_the_recipe_as_shipped_differs_by_delta_alone(case):
    values = advantages(batch_of(case), recipe("mt_grpo", **case["options"])).values
    np.testing.assert_allclose(values, case["values"], rtol=2e-3, atol=1e-6)
    assert np.abs(values - case["values"]).max() > 1e-6
