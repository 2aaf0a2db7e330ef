"""Recipes by name, and a recipe as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from bipace.core.advantages import Blend, Recipe, Term
from bipace.core.estimators import graphs, hidden_states, observations, shrinkage, trajectory, turns
from bipace.core.names import require_known, with_current_names
from bipace.core.parts import describe_part
from bipace.core.plugins import load_attribute

__all__ = ["RECIPES", "describe", "recipe", "recipe_options"]

RECIPES: dict[str, Callable[..., Recipe]] = {
    "grpo": trajectory.grpo,
    "dr_grpo": trajectory.dr_grpo,
    "rloo": trajectory.rloo,
    "gigpo": observations.gigpo,
    "hgpo": observations.hgpo,
    "salt": graphs.salt,
    "mt_grpo": turns.mt_grpo,
    "gagpo": graphs.gagpo,
    "g2po": graphs.g2po,
    "graphgpo": graphs.graphgpo,
    "bigpo": hidden_states.bigpo,
    "diff_peer": hidden_states.diff_peer,
    "bipace": hidden_states.bipace,
    "pooled": shrinkage.pooled,
    "multiscale": shrinkage.multiscale,
}
"""The methods by name, in the order in which tables show them."""


def recipe(name: str, **options: Any) -> Recipe:
    """A recipe by name, or a user's own from `module:function` or `path/to/file.py:function`.

    Args:
        name: a key of RECIPES, or where to find a function that returns a `Recipe`.
        options: its keyword arguments.

    Raises:
        ValueError: unknown recipe or option, naming the nearest known one; a function that returns no Recipe.

    Examples:
        >>> import bipace
        >>> bipace.recipe("bipace", eps=0.02).name
        'bipace'
        >>> sorted(bipace.recipe("bipace").needs)
        ['features']
    """
    factory = _factory(name)
    known = recipe_options(name)
    if "habits" not in known:
        options = with_current_names(options, {"habits": "convention"})
    for option in options:
        require_known(f"{name} option", option, known)
    made = factory(**options)
    if not isinstance(made, Recipe):  # pyright: ignore[reportUnnecessaryIsInstance]  (a user's own function)
        raise ValueError(f"recipe {name}: returned {type(made).__name__}, expected a bipace Recipe")
    return made


def recipe_options(name: str) -> list[str]:
    """Names of the options a recipe takes. Raises ValueError for an unknown recipe.

    Examples:
        >>> from bipace.core.estimators.registry import recipe_options
        >>> recipe_options("rloo")
        ['convention']
    """
    return list(inspect.signature(_factory(name)).parameters)


def describe(made: Recipe) -> dict[str, Any]:
    """A recipe as JSON: every term with its parts, their names and options, its scale, and its needs.

    Examples:
        >>> import bipace
        >>> bipace.describe(bipace.recipe("rloo"))["terms"][0]["v"]
        {'name': 'leave_one_out'}
    """

    def term(t: Term) -> dict[str, Any]:
        parts = {
            k: describe_part(getattr(t, k)) for k in ("returns", "clusters", "q", "v", "scale", "fallback")
        }
        return {**parts, "weight": t.weight, "unit": t.unit, "lone": t.lone, "alone": t.alone}

    parts = [
        {"blend": [term(t) for t in p.terms], "weights": p.weights, "weight": p.weight}
        if isinstance(p, Blend)
        else term(p)
        for p in made.parts
    ]
    return {"name": made.name, "terms": parts, "penalty": made.penalty, "needs": sorted(made.needs)}


def _factory(name: str) -> Callable[..., Any]:
    own = ":" in name
    factory = (
        load_attribute(name, f"recipe {name!r}") if own else RECIPES[require_known("recipe", name, RECIPES)]
    )
    if not callable(factory):
        raise ValueError(
            f"recipe {name!r}: is a {type(factory).__name__}, expected a function that returns a Recipe"
        )
    return factory
