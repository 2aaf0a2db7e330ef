"""Goals: what a shopper is asked to buy.

Two kinds, as in the public code: `human`, the instructions people wrote (`items_human_ins.json`), and
`synthetic`, one for every combination of a product's options (`items_ins_v2*.json`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from bipace.envs.webshop.catalogue import Catalogue, Product, price_of

__all__ = ["Goal", "make_goals", "price_bound"]

ORDER_SEED = 233  # the public code's seed: with it, the shuffled list is the published one
NO_BOUND = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing to buy.

    Attributes:
        asin: the product it was written for (others may do as well).
        category: that product's department.
        query: that product's search phrase.
        product_category: that product's category path.
        title: that product's title.
        instruction: what the shopper is told, with the price bound.
        attributes: what the product must be.
        options: what must be chosen: values (human goals) or (name, value) pairs (synthetic goals).
        price_upper: highest price in dollars that counts.
    """

    asin: str
    category: str
    query: str
    product_category: str
    title: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str | tuple[str, str], ...]
    price_upper: float


def price_bound(price: float, rng: random.Random) -> float | None:
    """The larger of two different ones of the next four multiples of 10 dollars above the price.

    None above 980 dollars, where fewer than two of the multiples up to 990 are left: such goals have no
    bound.
    """
    above = [10.0 * step for step in range(1, 100) if 10.0 * step > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else None


def make_goals(catalogue: Catalogue, kind: str, seed: int) -> tuple[Goal, ...]:
    """All goals of a kind in the one order that every worker cuts.

    Args:
        catalogue: the products and instructions.
        kind: "human" or "synthetic".
        seed: fixes price bounds; the order's seed is ORDER_SEED, the public code's.

    Raises:
        ValueError: another kind.
    """
    if kind not in ("human", "synthetic"):
        raise ValueError(f"goals: {kind!r}, expected 'human' or 'synthetic'")
    listed = (_human if kind == "human" else _synthetic)(catalogue, seed)
    goals = list(listed)
    random.Random(ORDER_SEED).shuffle(goals)
    return tuple(goals)


def _human(catalogue: Catalogue, seed: int) -> Iterator[Goal]:
    for product in catalogue.products:
        for number, record in enumerate(catalogue.human.get(product.asin, ())):
            if not record["instruction_attributes"]:
                continue  # as in the public code: there would be nothing to match
            options = record["instruction_options"]
            bound, text = _bounded(product, seed, f"human {number}")
            yield _goal(
                product,
                record["instruction"].strip(".") + text,
                tuple(record["instruction_attributes"]),
                tuple(options.items()) if isinstance(options, dict) else tuple(options),
                bound,
            )


def _synthetic(catalogue: Catalogue, seed: int) -> Iterator[Goal]:
    for product in catalogue.products:
        found = catalogue.synthetic.get(product.asin)
        if found is None:
            continue
        instruction, attributes = found
        bound, text = _bounded(product, seed, "synthetic")
        axes = [[(name, value) for value in values] for name, values in sorted(product.options)]
        for options in itertools.product(*axes):
            wish = ", and ".join(f"{name}: {value}" for name, value in options)
            yield _goal(
                product, instruction + (f" with {wish}" if wish else "") + text, attributes, options, bound
            )


def _bounded(product: Product, seed: int, label: str) -> tuple[float, str]:
    bound = price_bound(price_of(product, seed), random.Random(f"bound|{seed}|{product.asin}|{label}"))
    return (NO_BOUND, "") if bound is None else (bound, f", and price lower than {bound:.2f} dollars")


def _goal(
    product: Product,
    instruction: str,
    attributes: tuple[str, ...],
    options: tuple[str | tuple[str, str], ...],
    bound: float,
) -> Goal:
    return Goal(
        asin=product.asin,
        category=product.category,
        query=product.query,
        product_category=product.product_category,
        title=product.title,
        instruction=instruction,
        attributes=attributes,
        options=options,
        price_upper=bound,
    )
