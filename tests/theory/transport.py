"""The 1-Wasserstein distance of two finite distributions, exactly and with numpy alone."""

from __future__ import annotations

import numpy as np

from bipace.core.steps import Bools, Floats

__all__ = ["wasserstein"]

_MASS = 1e-13  # less probability than this counts as none


def wasserstein(p: Floats, q: Floats, cost: Floats) -> float:
    """W1 = min over couplings of E cost(x, y), x ~ p, y ~ q.

    Successive shortest paths on the transport graph: every augmentation ships mass along the cheapest path
    that may also undo earlier shipments, so the flow is optimal for what it has shipped at all times.

    Args:
        p: [S] probabilities.
        q: [S] probabilities.
        cost: [S, S] ground cost.

    Returns:
        The cost, exact up to rounding.
    """
    rows, columns = np.flatnonzero(p > _MASS), np.flatnonzero(q > _MASS)
    price = cost[np.ix_(rows, columns)]
    supply, demand = np.array(p[rows]), np.array(q[columns])
    flow = np.zeros_like(price)
    while supply.max(initial=0.0) > _MASS and demand.max(initial=0.0) > _MASS:
        path = _cheapest_path(price, flow, supply > _MASS, demand > _MASS)
        forward, backward = path[::2], path[1::2]
        mass = min(supply[path[0][0]], demand[path[-1][1]], *(flow[arc] for arc in backward))
        for arc in forward:
            flow[arc] += mass
        for arc in backward:
            flow[arc] = max(flow[arc] - mass, 0.0)
        supply[path[0][0]] -= mass
        demand[path[-1][1]] -= mass
    return float((flow * price).sum())


def _cheapest_path(price: Floats, flow: Floats, supplied: Bools, wanted: Bools) -> list[tuple[int, int]]:
    """Arcs (row, column) from a supplied row to a wanted column: shipped, undone, shipped, ...

    (Bellman-Ford).
    """
    from_row = np.where(supplied, 0.0, np.inf)
    to_column = np.full(price.shape[1], np.inf)
    row_parent = np.full(price.shape[0], -1)
    column_parent = np.full(price.shape[1], -1)
    # rounding must not look like a cheaper cycle
    slack = 1e-12 * (1.0 + float(np.abs(price).max(initial=0.0)))
    while True:
        ship = from_row[:, None] + price
        better = ship.min(axis=0) < to_column - slack
        to_column[better], column_parent[better] = ship.min(axis=0)[better], ship.argmin(axis=0)[better]
        undo = np.where(flow > _MASS, to_column[None, :] - price, np.inf)
        cheaper = undo.min(axis=1) < from_row - slack
        if not cheaper.any():
            break
        from_row[cheaper], row_parent[cheaper] = undo.min(axis=1)[cheaper], undo.argmin(axis=1)[cheaper]
    column = int(np.where(wanted, to_column, np.inf).argmin())
    row = int(column_parent[column])
    path = [(row, column)]
    while row_parent[row] >= 0:
        column = int(row_parent[row])
        path.append((row, column))
        row = int(column_parent[column])
        path.append((row, column))
    return path[::-1]
