"""`convention="verl_agent"` gives what verl-agent's public code gave when it was run beside ours
(tests/golden).
"""

import json
from pathlib import Path

import numpy as np
import pytest

from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from strategies import to_batch

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "verl_agent.json").read_text(encoding="utf-8"))
OUTPUTS = [(case, output) for case in GOLDEN["cases"] for output in case["outputs"]]


@pytest.mark.parametrize(
    ("case", "output"), OUTPUTS, ids=[f"{o['recipe']}-{i}" for i, (_, o) in enumerate(OUTPUTS)]
)
def test_the_public_codes_numbers(case, output):
    rows = [{**row, "feature": [0.0]} for row in case["rows"]]
    made = recipe(output["recipe"], convention="verl_agent", **output["options"])
    # Their arithmetic is float32.
    np.testing.assert_allclose(
        advantages(to_batch(rows), made).values, output["values"], rtol=1e-5, atol=2e-5
    )


def test_every_recipe_they_share_with_us_is_held_to_them():
    shared = {"grpo", "dr_grpo", "rloo", "gigpo", "hgpo"}
    assert {output["recipe"] for _, output in OUTPUTS} == shared
    assert sum("similarity" in output["options"] for _, output in OUTPUTS) == 12


def test_the_convention_are_not_the_default():
    """On at least one table every recipe's default differs from the convention: the switch is a choice."""
    for name in ("grpo", "dr_grpo", "rloo", "gigpo"):
        differs = []
        for case in GOLDEN["cases"]:
            batch = to_batch([{**row, "feature": [0.0]} for row in case["rows"]])
            own, theirs = (
                advantages(batch, recipe(name, convention=h)).values for h in ("paper", "verl_agent")
            )
            differs.append(np.abs(own - theirs).max() > 1e-3)
        assert any(differs)
