"""The group arithmetic under everything else, against the standard library's on one segment at a time."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipace.core import segments

tables = st.lists(st.tuples(st.integers(-3, 3), st.floats(-100, 100)), max_size=12)


def split(rows):
    """Raw labels, compact labels and values of drawn rows."""
    raw, values = np.array([label for label, _ in rows], np.int64), np.array([value for _, value in rows])
    return raw, segments.compact(raw), values


@given(tables)
def test_every_statistic_is_that_of_the_rows_own_segment(rows):
    raw, labels, values = split(rows)
    for i in range(len(rows)):
        own = values[raw == raw[i]].tolist()
        assert segments.count(labels)[i] == len(own)
        assert segments.total(values, labels)[i] == pytest.approx(sum(own), abs=1e-9)
        assert segments.mean(values, labels)[i] == pytest.approx(statistics.fmean(own), abs=1e-9)
        assert segments.constant(values, labels)[i] == (len(set(own)) == 1)
        for ddof in (0, 1, 2):
            squares = sum((value - statistics.fmean(own)) ** 2 for value in own)
            expected = (squares / (len(own) - ddof)) ** 0.5 if len(own) > ddof else 0.0
            assert segments.std(values, labels, ddof)[i] == pytest.approx(expected, abs=1e-9)


@given(tables, tables)
def test_labels_are_compact_and_pairs_are_equal_where_both_parts_are(rows, others):
    raw, labels, _ = split(rows)
    assert set(labels.tolist()) == set(range(len(set(raw.tolist()))))
    assert (np.argsort(raw, kind="stable") == np.argsort(labels, kind="stable")).all()
    assert [raw.tolist().index(value) for value in sorted(set(raw.tolist()))] == segments.first_rows(
        labels
    ).tolist()
    apart = 3 * labels + 1
    assert segments.first_rows(apart).tolist() == segments.first_rows(labels).tolist()
    n = min(len(rows), len(others))
    other = split(others)[0][:n]
    pairs = segments.pair(raw[:n], other)
    for i in range(n):
        for j in range(n):
            assert (pairs[i] == pairs[j]) == (raw[i] == raw[j] and other[i] == other[j])


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.uint64, np.float64, np.bool_, np.str_])
def test_labels_of_any_type_near_together_or_far_apart_are_renamed_in_their_order(dtype):
    raw = np.array([120, 0, 7, 120, 7, 120]).astype(dtype)
    assert segments.compact(raw).tolist() == np.unique(raw, return_inverse=True)[1].tolist()
    for far in (np.array([-(2**62), 5, 2**62, 5]), np.array([-128, 127, -128] + [0] * 100, np.int8)):
        assert segments.compact(far).tolist() == np.unique(far, return_inverse=True)[1].tolist()
        assert segments.compact(far).dtype == np.int64


@pytest.mark.parametrize("value", [0.1, 1e-300, -7.3e8])
def test_equal_values_have_exactly_their_mean_and_no_deviation(value):
    labels, values = np.zeros(7, np.int64), np.full(7, value)
    assert (segments.mean(values, labels) == value).all()
    assert (segments.std(values, labels) == 0).all()
