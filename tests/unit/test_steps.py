"""StepBatch refuses what no estimator could use, and names the field."""

import numpy as np
import pytest

from bipace.core.steps import StepBatch


def table(**changes):
    columns = dict(
        task=[0, 0, 0], trajectory=[0, 0, 1], t=[0, 1, 0], reward=[0.0, 1.0, 0.0],
        terminated=[False, True, True], truncated=[False] * 3, observation=[0, 1, 0], action=[0, 1, 2],
    )  # fmt: skip
    return StepBatch(**{**columns, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": [0.0, np.nan, 0.0]}, "reward: nan at row 1"),
        ({"reward": [0.0, np.inf, 0.0]}, "reward: inf at row 1"),
        ({"reward": [0.0, 1.0]}, r"reward: shape \(2,\), expected \(3,\)"),
        ({"t": [0, 0, 0]}, r"duplicate \(trajectory, t\) in trajectory 0"),
        ({"t": [0, 2, 0]}, "a gap in t in trajectory 0: found t=2 where t=1"),
        ({"t": [1, 2, 0]}, "a gap in t in trajectory 0: found t=1 where t=0"),
        ({"task": [0, 1, 0]}, "trajectory: 0 has rows under two tasks, 0 and 1"),
        ({"action": [0.5, 1.0, 2.0]}, "action: dtype float64, expected integers"),
        ({"features": np.full((3, 2), np.nan, np.float32)}, "features: nan at row 0"),
        ({"features": np.zeros((2, 2), np.float32)}, r"features: shape \(2, 2\), expected \(3, D\)"),
        ({"features": np.zeros((3, 2), np.int64)}, "features: dtype int64"),
        ({"penalty": [0.0, -1.0, 0.0]}, "penalty: must be >= 0"),
        ({"texts": ["a"]}, "texts: has 1 entries but observation holds label 1"),
    ],
)
def test_bad_input_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        table(**changes)


def test_arrays_are_read_only_and_the_callers_stay_writable():
    features = np.ones((3, 2), np.float32)
    batch = table(features=features)
    for name in ("task", "reward", "features"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(batch, name)[0] = 7
    features[0] = 2.0


def test_half_precision_features_are_widened():
    assert table(features=np.ones((3, 2), np.float16)).features.dtype == np.float32


def test_an_empty_table_is_a_table():
    assert len(table(**{k: [] for k in ("task", "trajectory", "t", "reward", "terminated", "truncated")},
                     observation=np.zeros(0, int), action=np.zeros(0, int))) == 0  # fmt: skip
