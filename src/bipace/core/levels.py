"""What the published recipes share: their two levels, their switches, and the habits of verl-agent."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from bipace.core.advantages import Blend, Clustering, Recipe, Return, Term
from bipace.core.baselines import (
    Peers,
    cluster_mean,
    cluster_std,
    never,
    no_diff_action,
    no_same_action_peer,
    no_scale,
    own_return,
)
from bipace.core.calibrate import by_calibrated_features
from bipace.core.clustering import by_features, by_observation, by_prompt_group
from bipace.core.greedy import Centroid
from bipace.core.returns import less_penalty, return_to_go, trajectory_return
from bipace.core.steps import Floats

__all__ = [
    "FALLBACKS",
    "SCALES",
    "Eps",
    "Fallback",
    "Habits",
    "Mode",
    "Whiten",
    "assemble",
    "charged",
    "local_clusters",
    "require_known",
    "step_term",
    "trajectory_term",
]

Eps = float | Literal["auto"]
Whiten = int | Literal["auto"]
Mode = Literal["mean_std_norm", "mean_norm"]
Habits = Literal["paper", "verl_agent"]
Fallback = Literal["no_diff_action", "no_same_action_peer", "never"]

FALLBACKS = {"no_diff_action": no_diff_action, "no_same_action_peer": no_same_action_peer, "never": never}
SCALES: dict[str, Callable[[Peers], Floats]] = {"mean_std_norm": cluster_std, "mean_norm": no_scale}


def assemble(name: str, *parts: Term | Blend, habits: Habits) -> Recipe:
    """The recipe of some parts, with the place for penalties that the habits ask for."""
    return Recipe(name, parts, "in_return" if habits == "verl_agent" else "own_row")


def trajectory_term(mode: Mode, habits: Habits, v: Callable[[Peers], Floats] = cluster_mean) -> Term:
    """Whole returns compared over the prompt group: over its trajectories, or by verl-agent's habit over its rows."""
    require_known("habits", habits, ("paper", "verl_agent"))
    scale = SCALES[require_known("mode", mode, SCALES)]
    returns = charged(trajectory_return, habits)
    if habits == "verl_agent":
        return Term(returns, by_prompt_group, v=v, scale=scale, unit="step", lone="raw")
    return Term(returns, by_prompt_group, v=v, scale=scale, unit="trajectory")


def step_term(
    clusters: Clustering,
    *,
    w: float,
    gamma: float,
    mode: Mode,
    habits: Habits,
    q: Callable[[Peers], Floats] = own_return,
    v: Callable[[Peers], Floats] = cluster_mean,
    fallback: Fallback = "never",
) -> Term:
    """Returns-to-go compared inside clusters of steps."""
    return Term(
        charged(partial(return_to_go, gamma=gamma), habits),
        clusters,
        q=q,
        v=v,
        scale=SCALES[require_known("mode", mode, SCALES)],
        fallback=FALLBACKS[require_known("fallback", fallback, FALLBACKS)],
        weight=w,
    )


def local_clusters(clusters: str, gamma: float, eps: Eps, centroid: Centroid, whiten: Whiten) -> Clustering:
    """Clusters of equal observations or of near features; eps = "auto" chooses the radius on the batch itself.

    Raises:
        ValueError: an unknown kind of clusters; whiten = "auto" with a fixed eps.
    """
    require_known("clusters", clusters, ("features", "observation"))
    if clusters == "observation":
        return by_observation
    if eps == "auto":
        directions = (0, 3) if whiten == "auto" else (whiten,)
        return partial(by_calibrated_features, gamma=gamma, centroid=centroid, directions=directions)
    if isinstance(eps, str) or isinstance(whiten, str):
        raise ValueError(
            f'eps, whiten: {eps!r}, {whiten!r}; the only word is "auto", and whiten="auto" needs eps="auto"'
        )
    return partial(by_features, eps=eps, centroid=centroid, whiten=whiten)


def charged(returns: Return, habits: Habits) -> Return:
    """The return, less the row's penalty under verl-agent's habits."""
    return partial(less_penalty, returns=returns) if habits == "verl_agent" else returns


def require_known(what: str, value: str, known: Any) -> str:
    """The value, or a ValueError that names the nearest known one."""
    if value not in known:
        near = difflib.get_close_matches(str(value), list(known), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{what}: unknown {value!r}{hint} Known: {', '.join(known)}")
    return value
