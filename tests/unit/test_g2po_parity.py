"""`g2po` gives what G2PO's public code gave, run once on the same tables (tests/golden/g2po.json)."""

import json
from pathlib import Path

import numpy as np
import pytest

from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from strategies import to_batch

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "g2po.json").read_text(encoding="utf-8"))
OUTPUTS = [(case, output) for case in GOLDEN["cases"] for output in case["outputs"]]


@pytest.mark.parametrize(("case", "output"), OUTPUTS)
def test_the_public_codes_numbers(case, output):
    rows = [{**row, "feature": [0.0]} for row in case["rows"]]
    made = recipe("g2po", convention="verl_agent", **output["options"])
    # Their step scores are float32.
    np.testing.assert_allclose(
        advantages(to_batch(rows), made).values, output["values"], rtol=1e-6, atol=2e-6
    )
