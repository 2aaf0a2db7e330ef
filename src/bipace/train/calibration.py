"""Layer and radius from the first rollouts: what `credit.eps=calibrate` and `bipace calibrate` do with a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core.advantages import Recipe
from bipace.core.calibrate import open_directions
from bipace.core.rows import Rows
from bipace.core.scan import Scan, scan
from bipace.policies.gradients import layer_states, output_gradient_sketches
from bipace.policies.hf import Actor
from bipace.rollout.records import TokenSequence
from bipace.train.config import Config

__all__ = ["candidate_layers", "scan_metrics", "scan_rollouts"]

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
