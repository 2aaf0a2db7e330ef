"""The words of the generated catalogue (vocabulary.json).

Product types, attributes, options, brands, title noise.

Changing the file changes every generated catalogue: raise `generate.VERSION` with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["ProductType", "Vocabulary", "vocabulary"]


@dataclass(frozen=True, slots=True)
class ProductType:
    """One kind of product.

    Attributes:
        category: one of the five categories of the official data.
        path: category path in the official form, levels joined by " › ".
        query: the search phrase under which the product was found; equal queries mean the same type.
        nouns: ways a title names it.
        attributes: attributes only this type has.
        options: option names it may offer.
        prices: lowest and highest price in dollars.
    """

    category: str
    path: str
    query: str
    nouns: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    prices: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All words.

    Attributes:
        types: the product types.
        category_attributes: category -> attributes that all its types may have.
        option_values: option name -> values.
        brands: brand names, which begin every title.
        audiences: whom a title says the product is for.
        fillers: claims that say nothing.
    """

    types: tuple[ProductType, ...]
    category_attributes: Mapping[str, tuple[str, ...]]
    option_values: Mapping[str, tuple[str, ...]]
    brands: tuple[str, ...]
    audiences: tuple[str, ...]
    fillers: tuple[str, ...]


@cache
def vocabulary() -> Vocabulary:
    """The shipped words, read once."""
    raw = json.loads(files("bipace.envs.webshop").joinpath("vocabulary.json").read_text(encoding="utf-8"))
    return Vocabulary(
        types=tuple(ProductType(**_tuples(kind)) for kind in raw["types"]),
        category_attributes=_tuples(raw["category_attributes"]),
        option_values=_tuples(raw["option_values"]),
        brands=tuple(raw["brands"]),
        audiences=tuple(raw["audiences"]),
        fillers=tuple(raw["fillers"]),
    )


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
