"""Identities of the step terms that hold exactly, whatever the table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.core import segments
from bipace.core.advantages import Branch, advantages
from bipace.core.clustering import by_features
from bipace.core.estimators import describe, recipe
from bipace.core.returns import return_to_go
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


def corrected(rows, eps, gamma=0.95):
    """The method as its sources write it, by hand: Eq.

    1 divided, Qhat - Vhat not, leave-one-out without a peer.
    """
    table = to_batch(rows)
    labels, returns = by_features(table, eps), return_to_go(table, gamma)
    wholes = {
        trajectory: table.reward[table.trajectory == trajectory].sum() for trajectory in set(table.trajectory)
    }
    out = []
    for i in range(len(rows)):
        group = [wholes[trajectory] for trajectory in set(table.trajectory[table.task == table.task[i]])]
        spread = np.std(group, ddof=1) if len(group) > 1 else 0.0
        whole = (wholes[table.trajectory[i]] - np.mean(group)) / (spread + 1e-6) if len(group) > 1 else 0.0
        cluster = np.flatnonzero(labels == labels[i])
        same = cluster[table.action[cluster] == table.action[i]]
        if len(cluster) == 1:
            step = 0.0
        elif len(same) == 1:
            step = returns[i] - returns[cluster[cluster != i]].mean()
        else:
            step = returns[same].mean() - returns[cluster].mean()
        out.append(whole + step)
    return out


@settings(max_examples=100, deadline=None)
@given(step_tables(), radii)
def test_bipace_at_its_defaults_is_eq_1_plus_the_recentred_step_term(rows, eps):
    # quarters become whole: groups are equal or apart
    rows = [{**row, "reward": row["reward"] * 4} for row in rows]
    values = advantages(to_batch(rows), recipe("bipace", eps=eps)).values
    np.testing.assert_allclose(values, corrected(rows, eps), rtol=1e-6, atol=1e-6)


def test_each_term_has_its_own_division_and_one_switch_sets_both():
    names = {"mean_std_norm": "cluster_std", "mean_norm": "no_scale"}

    def scales(name, **options):
        return [term["scale"]["name"] for term in describe(recipe(name, **options))["terms"]]

    for name in ("bipace", "diff_peer"):
        assert scales(name) == ["cluster_std", "no_scale"]
    for name in ("gigpo", "bigpo"):
        assert scales(name) == ["cluster_std", "cluster_std"]
    for name in ("gigpo", "bigpo", "diff_peer", "bipace"):
        for mode, scale in names.items():
            assert scales(name, mode=mode) == [scale, scale]
        assert scales(name, trajectory_mode="mean_norm", step_mode="mean_std_norm") == [
            "no_scale",
            "cluster_std",
        ]
        with pytest.raises(ValueError, match=r"mode: 'mean_norm' sets both terms"):
            recipe(name, mode="mean_norm", step_mode="mean_norm")
        with pytest.raises(ValueError, match="step_mode: unknown 'mean_nrm'; did you mean 'mean_norm'"):
            recipe(name, step_mode="mean_nrm")


@quick
@given(step_tables(), radii)
def test_a_cluster_with_one_action_says_nothing_at_the_defaults(rows, eps):
    """Q = V there: what leave-one-out would give is noise."""
    one = [{**row, "action": "go"} for row in rows]
    for name in ("bipace", "diff_peer"):
        np.testing.assert_allclose(
            advantages(to_batch(one), recipe(name, eps=eps)).outcomes[-1].value, 0.0, atol=1e-9
        )


@quick
@given(step_tables(), radii)
def test_an_outcome_keeps_the_arithmetic_of_its_value(rows, eps):
    for name in ("bipace", "gigpo", "rloo", "pooled"):
        options = {"eps": eps} if name == "bipace" else {}
        for said in advantages(to_batch(rows), recipe(name, **options)).outcomes:
            expected = np.where(
                said.branch == Branch.LONE, 0.0, said.term.weight * (said.q - said.v) / said.scale
            )
            np.testing.assert_allclose(said.value, expected, rtol=1e-12, atol=1e-12)


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
        step_term(distinct, eps=EPS, fallback="never").value,
        step_term(rows, "bigpo", eps=EPS).value,
        atol=1e-9,
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
    """mean over an action's rows of R - mean_{C!=} = (Qhat - Vhat) n / (n - n_a), where another action is
    there.
    """
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
