"""What the published recipes share: their two terms, their switches, and the conventions of verl-agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from bipace.core.advantages import Blend, Recipe, Term
from bipace.core.baselines import (
    Peers,
    cluster_mean,
    cluster_std,
    leave_trajectory_out,
    never,
    no_diff_action,
    no_same_action_peer,
    no_scale,
    own_return,
)
from bipace.core.calibrate import ByCalibratedFeatures, ByScannedFeatures
from bipace.core.clustering import (
    ByChance,
    ByFeatures,
    ByNgrams,
    Clustering,
    by_observation,
    by_prompt_group,
)
from bipace.core.greedy import Centroid
from bipace.core.names import require_known
from bipace.core.returns import LessPenalty, Return, ReturnToGo, trajectory_return
from bipace.core.steps import Floats

__all__ = [
    "BOTH_DIVIDED",
    "FALLBACKS",
    "SCALES",
    "TRAJECTORY_DIVIDED",
    "Clusters",
    "Convention",
    "Eps",
    "Fallback",
    "LeaveOut",
    "Mode",
    "Whiten",
    "assemble",
    "charged",
    "local_clusters",
    "modes",
    "require_known",
    "step_term",
    "trajectory_term",
]

Eps = float | Literal["auto", "calibrate"]
Whiten = int | Literal["auto"]
Mode = Literal["mean_std_norm", "mean_norm"]
Convention = Literal["paper", "verl_agent"]
Fallback = Literal["no_same_action_peer", "no_diff_action", "never"]
Clusters = Literal["features", "observation", "ngrams", "chance"]
LeaveOut = Literal["nothing", "trajectory"]

BOTH_DIVIDED: tuple[Mode, Mode] = ("mean_std_norm", "mean_std_norm")
TRAJECTORY_DIVIDED: tuple[Mode, Mode] = ("mean_std_norm", "mean_norm")

FALLBACKS = {"no_same_action_peer": no_same_action_peer, "no_diff_action": no_diff_action, "never": never}
SCALES: dict[str, Callable[[Peers], Floats]] = {"mean_std_norm": cluster_std, "mean_norm": no_scale}


def assemble(name: str, *parts: Term | Blend, convention: Convention) -> Recipe:
    """The recipe of some parts, with the place for penalties that the convention asks for."""
    return Recipe(name, parts, "in_return" if convention == "verl_agent" else "own_row")


def modes(
    mode: Mode | None, trajectory_mode: Mode | None, step_mode: Mode | None, *, default: tuple[Mode, Mode]
) -> tuple[Mode, Mode]:
    """The division of the trajectory term and of the step term.

    Args:
        mode: verl-agent's one switch for both terms; None: each term has its own.
        trajectory_mode: of the trajectory term; None: the recipe's default.
        step_mode: of the step term; None: the recipe's default.
        default: of the two terms.

    Raises:
        ValueError: an unknown word; `mode` beside one of the two others.
    """
    given = {"mode": mode, "trajectory_mode": trajectory_mode, "step_mode": step_mode}
    for name, value in given.items():
        if value is not None:
            require_known(name, value, SCALES)
    if mode is None:
        return trajectory_mode or default[0], step_mode or default[1]
    if trajectory_mode is not None or step_mode is not None:
        raise ValueError(
            f"mode: {mode!r} sets both terms, and trajectory_mode={trajectory_mode!r}, "
            f"step_mode={step_mode!r} set one each; give either mode, or the other two"
        )
    return mode, mode


def trajectory_term(mode: Mode, convention: Convention, v: Callable[[Peers], Floats] = cluster_mean) -> Term:
    """Whole returns compared over the prompt group.

    Over its trajectories, or as verl-agent does over its rows.
    """
    require_known("convention", convention, ("paper", "verl_agent"))
    scale = SCALES[require_known("mode", mode, SCALES)]
    returns = charged(trajectory_return, convention)
    if convention == "verl_agent":
        return Term(returns, by_prompt_group, v=v, scale=scale, unit="step", lone="raw")
    return Term(returns, by_prompt_group, v=v, scale=scale, unit="trajectory")


def step_term(
    clusters: Clustering,
    *,
    w: float,
    gamma: float,
    mode: Mode,
    convention: Convention,
    q: Callable[[Peers], Floats] = own_return,
    v: Callable[[Peers], Floats] = cluster_mean,
    fallback: Fallback = "never",
    leave_out: LeaveOut = "nothing",
) -> Term:
    """Returns-to-go compared inside clusters of steps.

    The baseline may leave the step's own trajectory out.
    """
    outside = require_known("leave_out", leave_out, ("nothing", "trajectory")) == "trajectory"
    return Term(
        charged(ReturnToGo(gamma), convention),
        clusters,
        q=q,
        v=leave_trajectory_out if outside else v,
        scale=SCALES[require_known("mode", mode, SCALES)],
        fallback=FALLBACKS[require_known("fallback", fallback, FALLBACKS)],
        weight=w,
        alone="trajectory" if outside else "step",
    )


def local_clusters(clusters: str, gamma: float, eps: Eps, centroid: Centroid, whiten: Whiten) -> Clustering:
    """Which steps are compared: near features, equal observations, or one of the paper's two controls.

    Args:
        clusters: "features"; "observation" (equal text); "ngrams" (texts near each other by character
            n-grams); "chance" (random clusters of the feature clusters' sizes).
        gamma: discount of the returns that eps = "auto" predicts.
        eps: cosine radius; "auto": chosen on the batch itself; "calibrate": chosen, with the layer, from a
            run's first rollouts (`bipace.core.scan`).
        centroid: see `by_features`.
        whiten: see `by_features`, or "auto" (0 or 3) where eps is chosen.

    Raises:
        ValueError: an unknown kind of clusters; whiten = "auto" with a fixed eps; "ngrams" with a chosen eps.
    """
    require_known("clusters", clusters, ("features", "observation", "ngrams", "chance"))
    if clusters == "observation":
        return by_observation
    if eps in ("auto", "calibrate") and clusters != "ngrams":
        directions = (0, 3) if whiten == "auto" else (whiten,)
        chosen = ByCalibratedFeatures(gamma, centroid=centroid, directions=directions)
        near: Clustering = chosen if eps == "auto" else ByScannedFeatures(gamma, centroid, directions)
        return ByChance(near) if clusters == "chance" else near
    if isinstance(eps, str) or isinstance(whiten, str):
        raise ValueError(
            f'eps, whiten: {eps!r}, {whiten!r}; eps is a number, "auto" or "calibrate", whiten="auto" goes '
            'with eps="auto" or "calibrate", and clusters="ngrams" needs a number'
        )
    if clusters == "ngrams":
        return ByNgrams(eps, centroid=centroid)
    near = ByFeatures(eps, centroid, whiten)
    return ByChance(near) if clusters == "chance" else near


def charged(returns: Return, convention: Convention) -> Return:
    """The return, less the row's penalty under verl-agent's convention."""
    return LessPenalty(returns) if convention == "verl_agent" else returns
