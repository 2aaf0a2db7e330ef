"""Identities of the step terms that hold exactly, whatever the table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.core import segments
from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from strategies import EPS, step_tables, to_batch

quick = settings(max_examples=50, deadline=None)
radii = st.sampled_from([0.0, EPS, 0.5])


def step_term(rows, name="bipace", **options):
    return advantages(to_batch(rows), recipe(name, mode="mean_norm", **options)).outcomes[-1]


@quick
@given(step_tables(), radii, st.sampled_from(["never", "no_diff_action"]))
def test_the_values_of_a_cluster_sum_to_zero(rows, eps, fallback):
    term = step_term(rows, eps=eps, fallback=fallback)
    np.testing.assert_allclose(segments.total(term.value, term.peers.cluster), 0.0, atol=1e-9)


@quick
@given(step_tables(), radii)
def test_q_style_is_the_per_action_average_of_centred_returns(rows, eps):
    term, centred = step_term(rows, eps=eps, fallback="never"), step_term(rows, "bigpo", eps=eps)
    averaged = segments.mean(centred.value, term.peers.cluster_action)
    np.testing.assert_allclose(term.value, averaged, atol=1e-9)


@quick
@given(step_tables())
def test_actions_all_different_make_q_style_the_centred_return(rows):
    distinct = [{**row, "action": number} for number, row in enumerate(rows)]
    np.testing.assert_allclose(
        step_term(distinct, eps=EPS, fallback="never").value, step_term(rows, "bigpo", eps=EPS).value, atol=1e-9
    )


@quick
@given(step_tables(), radii)
def test_leave_one_out_is_the_centred_return_stretched(rows, eps):
    """R - mean of the others = n/(n-1) (R - mean), where every row falls back."""
    distinct = [{**row, "action": number} for number, row in enumerate(rows)]
    term = step_term(distinct, eps=eps, fallback="no_same_action_peer")
    n = term.peers.n
    stretched = (term.peers.returns - term.peers.mean) * n / np.maximum(n - 1, 1)
    np.testing.assert_allclose(term.value, stretched, atol=1e-9)


@quick
@given(step_tables(), radii)
def test_diff_peer_and_q_style_agree_up_to_scale_on_action_averages(rows, eps):
    """mean over an action's rows of R - mean_{C!=} = (Qhat - Vhat) n / (n - n_a), where another action is there."""
    q_style = step_term(rows, eps=eps, fallback="never")
    diff = step_term(rows, "diff_peer", eps=eps, fallback="never")
    peers = q_style.peers
    others = peers.n - peers.n_same
    averaged = segments.mean(diff.value, peers.cluster_action)
    expected = np.where(others > 0, q_style.value * peers.n / np.maximum(others, 1), 0.0)
    np.testing.assert_allclose(averaged, expected, atol=1e-9)


@pytest.mark.parametrize("name", ["gigpo", "bigpo", "diff_peer", "bipace"])
@quick
@given(rows=step_tables())
def test_a_step_alone_gets_no_step_signal(name, rows):
    term = step_term(rows, name)
    np.testing.assert_array_equal(term.value[term.peers.n == 1], 0.0)
