"""The report's statistics against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

stats = pytest.importorskip("scipy.stats", reason="needs scipy (the train extra)")

from bipace.report.stats import (
    first_reaching,
    improvement,
    improvement_interval,
    interquartile_mean,
    mean_std,
    optimality_gap,
    performance_profile,
    stratified_interval,
)

values = st.lists(st.floats(0, 1), min_size=1, max_size=20).map(np.array)


@given(values)
def test_the_interquartile_mean_is_scipys_trimmed_mean(x):
    np.testing.assert_allclose(interquartile_mean(x), stats.trim_mean(x, 0.25), rtol=1e-12, atol=1e-15)


@given(values, values)
def test_the_probability_of_improvement_is_mann_whitneys_u(x, y):
    expected = stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
    assert improvement([(x, y)]) == pytest.approx(expected, abs=1e-12)
    assert improvement([(x, y)]) + improvement([(y, x)]) == pytest.approx(1)


def test_the_interval_of_one_stratum_is_scipys_percentile_bootstrap():
    x = np.random.default_rng(0).normal(size=9)
    mine = stratified_interval([x], interquartile_mean, resamples=40_000)
    theirs = stats.bootstrap(
        (x,), lambda x, axis=-1: interquartile_mean(x), n_resamples=40_000, method="percentile", rng=1
    ).confidence_interval  # fmt: skip
    np.testing.assert_allclose(mine, theirs, atol=0.02)


def test_the_interval_of_two_samples_is_scipys_percentile_bootstrap():
    random = np.random.default_rng(1)
    x, y = random.normal(0.5, size=8), random.normal(size=6)

    def above(x, y, axis):
        x, y = np.moveaxis(x, axis, -1), np.moveaxis(y, axis, -1)
        return (x[..., :, None] > y[..., None, :]).mean(axis=(-1, -2))

    mine = improvement_interval([(x, y)], resamples=20_000)
    theirs = stats.bootstrap(
        (x, y), above, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    np.testing.assert_allclose(mine, theirs, atol=0.03)


def test_strata_keep_their_own_runs():
    # Within each environment every run agrees, so redrawing inside it changes nothing; redrawing across
    # would.
    low = stratified_interval([np.zeros(4), np.ones(4)], lambda x: x.mean(axis=-1))
    assert low == (0.5, 0.5)
    assert improvement_interval([(np.ones(3), np.zeros(3)), (np.zeros(3), np.ones(3))]) == (0.5, 0.5)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(2)
    hits = 0
    for trial in range(200):
        low, high = stratified_interval(
            [random.normal(size=20)], lambda x: x.mean(axis=-1), resamples=400, seed=trial
        )
        hits += low <= 0 <= high
    assert 0.86 <= hits / 200 <= 0.99


def test_one_run_has_no_interval_and_no_deviation():
    assert stratified_interval([np.array([0.5])], interquartile_mean) is None
    assert improvement_interval([(np.array([0.5]), np.array([0.4, 0.3]))]) is None
    assert mean_std([0.5]) == (0.5, None)
    assert mean_std([0.0, 1.0]) == (0.5, pytest.approx(2**-0.5))


def test_a_threshold_is_reached_first_or_never():
    assert first_reaching([0, 10, 20], [0.1, 0.6, 0.5], 0.5) == 10
    assert first_reaching([0, 10, 20], [0.1, 0.6, 0.5], 0.6) == 10
    assert first_reaching([0, 10, 20], [0.1, 0.6, 0.5], 0.61) is None


@given(values, st.floats(0.1, 2.0))
def test_the_optimality_gap_is_the_mean_shortfall(x, target):
    loop = sum(target - v if v < target else 0.0 for v in x.tolist()) / len(x)
    assert float(optimality_gap(x, target)) == pytest.approx(loop, abs=1e-12)


@given(st.lists(values, min_size=1, max_size=3))
def test_a_profile_counts_the_runs_above_and_never_rises(strata):
    taus = np.linspace(0, 1, 11)
    shares, band = performance_profile(strata, taus, resamples=50)
    everyone = [v for s in strata for v in s.tolist()]
    loop = [sum(v > tau for v in everyone) / len(everyone) for tau in taus.tolist()]
    np.testing.assert_allclose(shares, loop, rtol=0, atol=1e-15)
    assert (np.diff(shares) <= 0).all()
    if max(map(len, strata)) < 2:
        assert band is None
    else:
        assert band is not None
        assert ((band[0] >= 0) & (band[0] <= band[1]) & (band[1] <= 1)).all()


def test_the_band_of_a_profile_is_that_of_the_share_at_each_tau():
    x = np.random.default_rng(3).random(9)
    _, band = performance_profile([x], np.array([0.3, 0.7]), resamples=4000)
    assert band is not None
    for at, tau in enumerate((0.3, 0.7)):
        low, high = stratified_interval(
            [x], lambda drawn, tau=tau: (drawn > tau).mean(axis=-1), resamples=4000
        )  # fmt: skip
        assert (band[0][at], band[1][at]) == pytest.approx((low, high), abs=1e-12)
