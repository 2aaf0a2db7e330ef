"""Which goals can be reached, at what depth, and by which commands.

Reachability is a fixed point over the rules of the engine: depth 0 is what `get` finds, and an item is one
deeper than the deepest input of its shallowest recipe. What the fixed point does not contain cannot be
crafted by any commands. Plans are short, not proven shortest: the cheapest recipe per item is chosen first,
then all demands are added up so that one batch of planks serves every recipe that wants some.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from bipace.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook, spoken_name

__all__ = ["depths", "plan", "unreachable"]

REVISIONS = (
    3  # a plan's demand decides which recipe is cheapest, and the recipes decide the demand: settled in three
)


@cache
def depths(book: RecipeBook) -> Mapping[str, int]:
    """Minimum recipe depth of every item that commands can obtain: 0 for `get`, d for a craft of depth d."""
    found = dict.fromkeys(sorted(book.gettable), 0)
    depth = 0
    while True:
        depth += 1
        fresh = [
            item
            for item in sorted(book.by_item)
            if item not in found
            and item not in book.tags
            and any(_obtainable(book, recipe, found) for recipe in book.by_item[item])
        ]
        if not fresh:
            return MappingProxyType(found)
        found.update(dict.fromkeys(fresh, depth))


@cache
def unreachable(book: RecipeBook) -> Mapping[str, str]:
    """The craftable items that no commands can obtain, each with the reason, in sorted order."""
    known = depths(book)
    return MappingProxyType(
        {item: _reason(book, item, known) for item in sorted(book.by_item) if item not in known}
    )


@cache
def plan(book: RecipeBook, goal: str) -> tuple[str, ...]:
    """Commands that craft the goal from an empty inventory: every `get` first, then the crafts.

    Raises:
        ValueError: the goal cannot be crafted.
    """
    if not depths(book).get(goal):
        reason = unreachable(book).get(goal, "no recipe makes it")
        raise ValueError(f"no plan for {goal!r}: {reason}")
    demand: dict[str, int] = {}
    shortest: tuple[str, ...] = ()
    for _ in range(REVISIONS):
        commands, demand = _draft(book, goal, demand)
        if not shortest or len(commands) < len(shortest):
            shortest = commands
    return shortest


def _draft(
    book: RecipeBook, goal: str, expected: Mapping[str, int]
) -> tuple[tuple[str, ...], dict[str, int]]:
    """A plan with recipes chosen for the expected demand (1 where unknown), and the demand it has."""
    chosen: dict[str, Recipe] = {}
    order: list[str] = []
    _choose(book, goal, expected, chosen, order)
    demand = {goal: 1}
    gets: list[str] = []
    crafts: list[str] = []
    for item in reversed(order):
        recipe = chosen.get(item)
        if recipe is None:
            gets.insert(0, f"get {demand[item]} {spoken_name(item)}")
            continue
        times = math.ceil(demand[item] / recipe.count)
        parts = [(_cheapest(book, part, expected), part.count) for part in recipe.inputs]
        for name, count in parts:
            demand[name] = demand.get(name, 0) + count * times
        named = ", ".join(f"{count} {spoken_name(name)}" for name, count in parts)
        crafts[:0] = [f"craft {recipe.count} {spoken_name(item)} using {named}"] * times
    return (*gets, *crafts), demand


def _obtainable(book: RecipeBook, recipe: Recipe, found: Mapping[str, int]) -> bool:
    return all(any(item in found for item in _candidates(book, part)) for part in recipe.inputs)


def _candidates(book: RecipeBook, part: Ingredient) -> tuple[str, ...]:
    return book.carriers(part.name) if part.is_tag else (part.name,)


def _choose(
    book: RecipeBook, item: str, expected: Mapping[str, int], chosen: dict[str, Recipe], order: list[str]
) -> None:
    """Fill `chosen` with a recipe per crafted item and `order` with all items, inputs before outputs."""
    if item in order:
        return
    if depths(book)[item]:
        recipe = chosen[item] = _cheapest_recipe(book, item, expected.get(item, 1), frozenset())[1]
        for part in recipe.inputs:
            _choose(book, _cheapest(book, part, expected), expected, chosen, order)
    order.append(item)


def _cheapest(book: RecipeBook, part: Ingredient, expected: Mapping[str, int]) -> str:
    """The item that a command names for this input.

    The one that takes the fewest commands, then the first by name.
    """
    candidates = [item for item in _candidates(book, part) if item in depths(book)]
    return min(
        candidates,
        key=lambda item: (_commands(book, item, expected.get(item, part.count), frozenset()), item),
    )


def _commands(book: RecipeBook, item: str, count: int, above: frozenset[str]) -> float:
    """Commands needed for `count` of the item, shared work counted twice.

    Infinite where the item needs itself.
    """
    depth = depths(book).get(item)
    if depth is None or item in above:
        return math.inf
    return 1 if depth == 0 else _cheapest_recipe(book, item, count, above)[0]


def _cheapest_recipe(book: RecipeBook, item: str, count: int, above: frozenset[str]) -> tuple[float, Recipe]:
    above = above | {item}
    costs = []
    for place, recipe in enumerate(book.by_item[item]):
        times = math.ceil(count / recipe.count)
        inputs = (
            min(
                (_commands(book, name, part.count * times, above) for name in _candidates(book, part)),
                default=math.inf,
            )
            for part in recipe.inputs
        )
        costs.append((times + sum(inputs), place))
    cost, place = min(costs)
    return cost, book.by_item[item][place]


def _reason(book: RecipeBook, item: str, known: Mapping[str, int]) -> str:
    if item in book.tags:
        return "its name is also a tag, and a command that names a tag names no item"
    missing = sorted(
        {
            spoken_name(part.name)
            for recipe in book.by_item[item]
            for part in recipe.inputs
            if not any(name in known for name in _candidates(book, part))
        }
    )
    return f"no command obtains {', '.join(missing)}"
