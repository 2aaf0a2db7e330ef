"""Feature distance and value: the measures by hand, and on processes whose geometry is known."""

from dataclasses import replace

import numpy as np
import pytest

from bipace.core.rows import build_batch
from bipace.truth.hypothesis import hypothesis, order_effect, stay_together
from bipace.truth.table import Truth
from bipace.truth.worlds import world_truth


def truth_of(angles, value, task=None):
    """Steps at the given angles in degrees, one a trajectory, with the given values."""
    n, radians = len(angles), np.deg2rad(angles)
    features = np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)
    batch = build_batch(
        task=task or [0] * n, trajectory=list(range(n)), t=[0] * n, reward=[0.0] * n,
        observation=list(range(n)),
        action=["a"] * n,
    ).batch  # fmt: skip
    zeros = np.zeros(n)
    return Truth(
        batch,
        np.array(value, float),
        zeros,
        np.zeros((0, n)),
        zeros,
        np.zeros((n, 0), np.float32),
        {"1": features},
    )


def test_the_measures_counted_by_hand():
    """Three states at 0, 60 and 180 degrees: distances 0.5, 2 and 1.5, chords 1, 2 and 1.732."""
    found = hypothesis([truth_of([0, 60, 180], [0.0, 1.0, 4.0])], radii=(0.6,))["1"]
    assert found["rank_correlation"] == pytest.approx(1.0)  # gaps 1, 4 and 3
    assert found["lipschitz_max"] == pytest.approx(2.0)
    assert found["same"] == 0.0
    at = found["radii"]["0.6"]  # {0, 60} and {180}
    assert at["spread"] == pytest.approx(0.5)
    assert at["bias_mean"] == pytest.approx(0.5)
    assert at["bound"] == pytest.approx(2 * found["lipschitz_95"] * np.sqrt(1.2))


@pytest.mark.filterwarnings("ignore::bipace.core.rows.LoneGroupsWarning")
def test_values_that_run_against_distance_show_it_and_pairs_of_two_tasks_do_not_count():
    against = hypothesis([truth_of([0, 10, 180], [0.0, 4.0, 0.0])], radii=())["1"]
    assert against["rank_correlation"] < 0
    apart = hypothesis([truth_of([0, 10, 20], [0.0, 4.0, 0.0], task=[0, 1, 2])], radii=(0.1,))["1"]
    assert (apart["rank_correlation"], apart["groups"], apart["lipschitz_max"]) == (None, 0.0, None)
    assert apart["radii"]["0.1"]["spread"] is None


def test_a_perfect_encoder_has_no_spread_and_clusters_beat_chance():
    truth = world_truth("random", {"states": 8, "ending": 0.05}, groups=4, group_size=6)
    found = hypothesis([truth], radii=(0.05,))
    perfect = found["state"]["radii"]["0.05"]
    # A cluster of one state holds steps with different horizons left, and nothing else.
    assert perfect["spread"] < 0.9 * perfect["by_chance"]
    assert found["state"]["rank_correlation"] > 0
    assert perfect["order_effect"] == 0.0


def test_the_order_of_the_pass_matters_where_a_vector_lies_between_two():
    """0, 20 and 40 degrees at a radius of 25: the middle one goes with whoever comes first."""
    between = truth_of([0, 20, 40], [0.0, 0.0, 0.0])
    eps = float(1 - np.cos(np.deg2rad(22)))
    assert order_effect(between.with_layer("1"), eps, shuffles=8) > 0
    assert order_effect(between.with_layer("1"), 0.0) == 0.0
    with pytest.raises(ValueError, match="at least 1"):
        order_effect(between.with_layer("1"), eps, shuffles=0)


def test_pairs_stay_together_where_the_geometry_stays():
    batch = truth_of([0, 1, 90, 91], [0.0] * 4).with_layer("1")
    assert batch.features is not None
    same = np.asarray(batch.features)
    assert stay_together(batch, 3 * same, 0.01) == {"kept": 1.0, "new": 0.0}
    assert stay_together(batch, same[[0, 2, 1, 3]], 0.01) == {"kept": 0.0, "new": 1.0}
    assert stay_together(replace(batch, features=same[[0, 2, 1, 3]]), same, 1e-9) == {"kept": 0.0, "new": 0.0}
