"""Features on a device: the same labels and advantages, and only a prompt group's inner products leave it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.core.advantages import advantages
from bipace.core.calibrate import calibrate
from bipace.core.estimators import recipe
from bipace.core.features import FeaturesElsewhere
from bipace.core.rows import build_batch
from bipace.policies.device_features import DeviceFeatures, as_features

GROUPS, GROUP, LENGTH, WIDTH = 3, 4, 5, 64
N = GROUPS * GROUP * LENGTH


def vectors():
    random = np.random.default_rng(0)
    centres = random.standard_normal((6, WIDTH)).astype(np.float32)
    return centres[random.integers(6, size=N)] + 0.1 * random.standard_normal((N, WIDTH)).astype(np.float32)


def rows(features):
    random = np.random.default_rng(1)
    return build_batch(
        task=np.repeat(np.arange(GROUPS), GROUP * LENGTH),
        trajectory=np.repeat(np.arange(GROUPS * GROUP), LENGTH),
        t=np.tile(np.arange(LENGTH), GROUPS * GROUP),
        reward=random.standard_normal(N),
        observation=random.integers(4, size=N),
        action=random.integers(3, size=N),
        features=features,
    )


@pytest.fixture
def crossed(monkeypatch):
    """Sizes of the tensors that were brought to the host."""
    sizes, real = [], torch.Tensor.cpu

    def cpu(tensor, *arguments, **options):
        sizes.append(tuple(tensor.shape))
        return real(tensor, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    return sizes


@pytest.mark.parametrize("name", ["bigpo", "bipace"])
def test_only_the_groups_inner_products_leave_the_device(name, crossed):
    here, there = rows(vectors()).batch, rows(DeviceFeatures(torch.from_numpy(vectors()))).batch
    made = recipe(name, eps=0.1)
    assert np.array_equal(advantages(there, made).values, advantages(here, made).values)
    assert np.count_nonzero(advantages(here, made).values)
    square = GROUP * LENGTH
    assert crossed.count((square, square)) >= GROUPS
    assert all(len(shape) == 1 or shape == (square, square) for shape in crossed)


def test_only_features_outside_the_hosts_memory_stay_where_they_are():
    assert isinstance(as_features(torch.zeros(2, 3)), np.ndarray)
    there = as_features(torch.zeros(2, 3, device="meta"))
    assert isinstance(there, FeaturesElsewhere)
    assert there.shape == (2, 3)


def test_what_needs_the_vectors_themselves_brings_them_over(crossed):
    here, there = rows(vectors()).batch, rows(DeviceFeatures(torch.from_numpy(vectors()))).batch
    assert calibrate(there, directions=(0, 3)).curve == calibrate(here, directions=(0, 3)).curve
    assert (N, WIDTH) in crossed


def test_vectors_too_short_to_be_multiplied_as_they_are_give_the_same_labels():
    tiny = vectors() * np.float32(1e-25)
    made = recipe("bigpo", eps=0.1)
    found = advantages(rows(DeviceFeatures(torch.from_numpy(tiny))).batch, made).values
    assert np.array_equal(found, advantages(rows(tiny).batch, made).values)


def test_a_vector_that_is_not_finite_costs_its_trajectory_or_is_named():
    broken = vectors()
    broken[7, 3] = np.nan
    with pytest.warns(UserWarning, match="non-finite features"):
        made = rows(DeviceFeatures(torch.from_numpy(broken)))
    assert len(made.batch) == N - LENGTH
    assert made.batch.features.shape == (N - LENGTH, WIDTH)
    whole = rows(vectors()).batch
    columns = {name: getattr(whole, name) for name in ("task", "trajectory", "t", "reward", "terminated",
        "truncated",
                                                       "observation", "action")}  # fmt: skip
    with pytest.raises(ValueError, match="features: nan at row 7"):
        type(whole)(**columns, features=DeviceFeatures(torch.from_numpy(broken)))
    with pytest.raises(ValueError, match="one vector per row"):
        type(whole)(**columns, features=DeviceFeatures(torch.ones(3, 2)))
