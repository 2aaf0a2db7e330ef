"""What is judged: recipes with their options and, where they read features, the layer these come from."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bipace.core.advantages import Recipe, advantages
from bipace.core.estimators import RECIPES, recipe
from bipace.core.steps import Floats
from bipace.truth.table import Truth

__all__ = ["Candidate", "parse_candidate", "shipped"]


@dataclass(frozen=True)
class Candidate:
    """A recipe under judgement.

    Attributes:
        label: how reports call it.
        recipe: what it computes.
        layer: the features it reads; None: the last layer the truth holds.
    """

    label: str
    recipe: Recipe
    layer: str | None = None

    def values(self, truth: Truth) -> Floats:
        """[N] its advantages on the truth's rollouts.

        Raises ValueError where a layer is unknown or missing.
        """
        return advantages(truth.with_layer(self.layer), self.recipe).values


def parse_candidate(text: str) -> Candidate:
    """`"bipace eps=0.02 layer=1"`: a recipe's name, its options, and the layer of its features.

    Raises:
        ValueError: an option that is not NAME=VALUE; what `recipe` refuses.
    """
    name, *words = text.split()
    options: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            raise ValueError(f"recipe {text!r}: {word!r} is not NAME=VALUE, e.g. 'bipace eps=0.02 layer=1'")
        options[key] = _value(value)
    layer = options.pop("layer", None)
    return Candidate(text, recipe(name, **options), None if layer is None else str(layer))


def shipped(layers: Sequence[str]) -> list[Candidate]:
    """Every recipe at its defaults, and some with eps="auto"; without features, those that read none."""
    texts = [*RECIPES, "bipace clusters=observation", "bipace eps=auto", "pooled clusters=features eps=auto"]
    return [c for c in map(parse_candidate, texts) if layers or "features" not in c.recipe.needs]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
