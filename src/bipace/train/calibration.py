"""Layer and radius from the first rollouts.

What `credit.eps=calibrate` and `bipace calibrate` do with a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.core.advantages import Recipe
from bipace.core.calibrate import open_directions
from bipace.core.estimators import recipe_options
from bipace.core.rows import Rows
from bipace.core.scan import Scan, scan
from bipace.envs.registry import get_suite
from bipace.policies.gradients import layer_states, output_gradient_sketches
from bipace.policies.hf import Actor
from bipace.rollout.panel import choose_panels
from bipace.rollout.records import TokenSequence
from bipace.rollout.sampler import choose_tasks
from bipace.rollout.table import to_rows
from bipace.train.actors import make_collector
from bipace.train.config import Config, ConfigError
from bipace.train.places import actor_folder

__all__ = ["candidate_layers", "scan_actor", "scan_metrics", "scan_rollouts"]

_ALL_OF = 6  # blocks up to which every layer is tried
_DEPTHS = (0.5, 0.61, 0.75, 0.9)  # the paper's two among them


def candidate_layers(n_layers: int) -> tuple[int, ...]:
    """The layers a scan tries: all blocks of a small model, four depths of a larger one; never the embedding.

    (At the last prompt token the embedding is the same for every state.)
    """
    if n_layers <= _ALL_OF:
        return tuple(range(1, n_layers + 1))
    return tuple(dict.fromkeys(round(depth * n_layers) for depth in _DEPTHS))


def scan_rollouts(
    actor: Actor,
    sequences: Sequence[TokenSequence],
    rows: Rows,
    recipe: Recipe,
    config: Config,
    *,
    directions: Sequence[int] | None = None,
) -> tuple[Scan, Mapping[str, NDArray[np.float32]]]:
    """Try every candidate layer and radius on a batch of rollouts.

    Costs a forward pass a layer and one for the sketches of the output layer's gradients; no backward pass.

    Args:
        actor: the policy that played.
        sequences: what was sampled; their spans are the raw rows of the table, in order.
        rows: the table.
        recipe: its radius is open.
        config: temperature and size of a forward.
        directions: whitenings to try; default: the recipe's.

    Returns:
        The scan, and the features of every layer for the rows of the table.

    Raises:
        ValueError: rollouts that nothing can be learned from (`bipace.core.scan.check_scannable`).
    """
    tokens, spans = [s.tokens for s in sequences], [s.spans for s in sequences]
    size = config.update.micro_tokens
    states = layer_states(actor, tokens, spans, candidate_layers(actor.n_layers), micro_tokens=size)
    gradients = output_gradient_sketches(
        actor, tokens, spans, temperature=config.rollout.temperature, micro_tokens=size
    )[rows.kept]
    layers = {name: features[rows.kept] for name, features in states.items()}
    gamma = float(config.credit.get("gamma", 0.95))
    tried = directions or open_directions(recipe) or (0,)
    return scan(rows.batch, layers, gradients, recipe, directions=tried, gamma=gamma), layers


def scan_metrics(found: Scan) -> dict[str, float]:
    """The choice and every point's agreement, as metrics."""
    chosen = found.chosen
    grid = {f"agreement/{p.layer}/{p.whiten}/{p.eps:g}": p.agreement.value for p in found.pairs}
    taken: dict[str, Any] = {"eps": chosen.eps, "whiten": float(chosen.whiten), "layer": float(chosen.layer)}
    return {**taken, **grid}


def scan_actor(
    actor: str,
    config: Config,
    *,
    directions: Sequence[int] | None = None,
    say: Callable[[str], None] = lambda _what: None,
) -> Scan:
    """Play one iteration's rollouts with an actor and scan them: what `bipace calibrate` does.

    Args:
        actor: a shipped actor, a run or a model folder.
        config: environment, recipe and rollouts.
        directions: whitenings to try; default none.
        say: told what takes its time.

    Raises:
        ValueError: a recipe that clusters no features, or with a radius of its own; one trajectory a group;
            rollouts without any reward, or in which every group's trajectories earned the same.
    """
    recipe = _open_recipe(config)
    played = config.rollout
    if played.group_size < 2:
        raise ConfigError(
            "rollout.group_size: 1, so a step has nobody to be compared with and no layer and eps can be "
            "chosen; use rollout.group_size=8"
        )
    suite = get_suite(config.env.suite)
    tasks = suite.splits[choose_panels(suite, config.env.split, config.env.panel, config.env.held_out).split]
    model = Actor.load(actor_folder(actor), device=config.actor.device)
    number = min(played.tasks, len(tasks))
    chosen = choose_tasks(len(tasks), number, seed=config.run.seed, iteration=0, order=played.order)
    say(f"playing {len(chosen)} prompt groups of {played.group_size} ...")
    trajectories = make_collector(config, suite).collect(
        model,
        [tasks[int(i)] for i in chosen],
        played.group_size,
        temperature=played.temperature,
        generator=torch.Generator(device=model.device).manual_seed(config.run.seed),
    )
    kept = [t for t in trajectories if t.steps and not t.error]
    rows = to_rows(
        kept,
        action_key=config.features.action_key,
        refused_actions=config.features.refused_actions,
        reward_scale=config.env.reward_scale,
        success_only=config.env.reward == "success",
    )
    sequences = [s for t in kept for s in t.sequences]
    return scan_rollouts(model, sequences, rows, recipe, config, directions=tuple(directions or (0,)))[0]


def _open_recipe(config: Config) -> Recipe:
    """The configured recipe with its radius left open."""
    if "eps" in recipe_options(config.estimator):
        recipe = config.model_copy(update={"credit": {**config.credit, "eps": "calibrate"}}).recipe()
        if open_directions(recipe) is not None:
            return recipe
    raise ConfigError(
        f"estimator: {config.estimator!r} does not cluster hidden states, so there is no layer or eps to "
        "choose; take bipace, bigpo or diff_peer with credit.clusters=features"
    )
