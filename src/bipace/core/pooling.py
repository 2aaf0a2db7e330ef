"""Partial pooling: values of small clusters shrink towards their prompt group's; no cliff at one member.

A cluster's mean of few returns is noisy, and a cluster of one says nothing at all. Shrinkage with k
pseudo-members, (sum R + k prior) / (n + k), is the posterior mean of a normal model with k = sigma^2 / tau^2:
the variance inside a cluster over the variance between clusters (Efron and Morris 1975; Gelman and Hill 2007,
chapter 12).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from bipace.core import segments
from bipace.core.baselines import Peers
from bipace.core.steps import Floats, Ints

__all__ = ["Prior", "group_mean", "group_std", "pooled_q", "pooled_v", "pseudo_members"]

Prior = float | Literal["auto"]

# bounds of an estimated k: a batch without spread must neither erase nor fix a value
_LEAST, _MOST = (1 / 16, 16.0)


def pooled_v(peers: Peers, k: Prior = 0.5) -> Floats:
    """V = (sum_C R + k m) / (n + k), m the mean return of the prompt group's rows.

    A group of one row gives its own R.

    Args:
        peers: with `group`.
        k: pseudo-members >= 0, or "auto" (`pseudo_members` of clusters in prompt groups).

    Raises:
        ValueError: k below 0, or an unknown word; peers without prompt groups.
    """
    group = _group(peers)
    k = pseudo_members(peers.returns, peers.cluster, group) if k == "auto" else _count("k", k)
    prior = segments.mean(peers.returns, group)
    return prior + (peers.mean - prior) * peers.n / (peers.n + k)


def pooled_q(peers: Peers, k: Prior = 0.5, k_action: Prior = 0.5) -> Floats:
    """Q = (sum_{C=} R + k_action V) / (n_a + k_action) with V = `pooled_v`.

    Args:
        peers: with `group`.
        k: of V.
        k_action: pseudo-members >= 0, or "auto" (`pseudo_members` of actions in clusters).

    Raises:
        ValueError: as `pooled_v`.
    """
    value = pooled_v(peers, k)
    same = segments.mean(peers.returns, peers.cluster_action)
    if k_action == "auto":
        k_action = pseudo_members(peers.returns, peers.cluster_action, peers.cluster)
    return value + (same - value) * peers.n_same / (peers.n_same + _count("k_action", k_action))


def group_mean(peers: Peers) -> Floats:
    """V = mean over the steps of the prompt group.

    Raises:
        ValueError: peers without prompt groups.
    """
    return segments.mean(peers.returns, _group(peers))


def group_std(peers: Peers, delta: float = 1e-6) -> Floats:
    """Divide by the sample deviation of the prompt group's returns + delta.

    Raises:
        ValueError: peers without prompt groups.
    """
    return segments.std(peers.returns, _group(peers)) + delta


def pseudo_members(values: Floats, inner: Ints, outer: Ints) -> float:
    """Pseudo-members k = sigma^2 / tau^2 by moments (one-way random effects), between 1/16 and 16.

    sigma^2 is the mean square inside inner segments and tau^2 what the spread of inner means around their
    outer segment's mean has beyond it. Nothing to estimate from (no inner segment of two, or none beside
    another) gives 1.

    Args:
        values: [N].
        inner: [N] labels; each segment lies in one outer segment.
        outer: [N] labels.
    """
    if not len(values):
        return 1.0
    n = segments.count(inner).astype(np.float64)
    within = ((values - segments.mean(values, inner)) ** 2).sum()
    between = ((segments.mean(values, inner) - segments.mean(values, outer)) ** 2).sum()
    inners, outers = len(np.unique(inner)), len(np.unique(outer))
    if len(values) == inners or inners == outers:
        return 1.0
    sigma2 = within / (len(values) - inners)
    # sum over inner segments of n^2 is the sum over rows of n.
    effective = len(values) - (segments.total(n, outer) / segments.count(outer) / segments.count(outer)).sum()
    tau2 = (between - (inners - outers) * sigma2) / effective
    if tau2 <= 0:
        return _MOST if sigma2 > 0 else 1.0
    return float(min(max(sigma2 / tau2, _LEAST), _MOST))


def _group(peers: Peers) -> Ints:
    if peers.group is None:
        raise ValueError('peers: no prompt groups; partial pooling is for step terms (unit="step")')
    return peers.group


def _count(name: str, value: float | str) -> float:
    if isinstance(value, str) or not 0 <= value < np.inf:
        raise ValueError(f'{name}: {value!r}, expected a number of pseudo-members >= 0, or "auto"')
    return float(value)
