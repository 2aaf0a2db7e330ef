"""Tasks, their first observation, and the fixed splits.

A task id is "<goal item id>/<distractor seed>", e.g. "minecraft:stick/3". Everything random about a task is
an order by hash of its id, so it is the same in any process, on any Python.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import MappingProxyType

from bipace.envs.base import Turn, UnknownTask
from bipace.envs.textcraft.planner import depths
from bipace.envs.textcraft.recipes import Recipe, RecipeBook, load_recipe_book, spoken_name

__all__ = ["goal_of", "goals", "open_task", "splits"]

DISTRACTORS = 10  # shown recipes that the goal does not need, at most; also the most that one input brings in
HELD_OUT_GOALS = {1: 20, 2: 44}  # goals per depth that no training split contains
SPLIT_SEEDS = range(100)
PANEL_SEEDS = range(1000, 1004)  # disjoint from SPLIT_SEEDS: no panel task is ever trained on
TRAIN_PANEL = 256
DEMO_GOALS = 64

TASK = re.compile(r"(minecraft:[a-z0-9_]+)/(0|[1-9][0-9]{0,8})")


def goals(depth: int) -> tuple[str, ...]:
    """The reachable goals of this depth, in a fixed order without meaning."""
    known = depths(load_recipe_book())
    return tuple(_shuffled((item for item, level in known.items() if level == depth), "goals"))


def goal_of(task: str) -> str:
    """The item that a task asks for. Raises UnknownTask."""
    match = TASK.fullmatch(task)
    if match is None or not depths(load_recipe_book()).get(match[1]):
        raise UnknownTask(
            f"TextCraft has no task {task!r}: a task id is a craftable item and a seed, e.g. "
            "'minecraft:stick/3'"
        )
    return match[1]


@lru_cache(maxsize=4096)
def open_task(task: str) -> tuple[str, Turn]:
    """A task's goal and its first Turn: the recipes it may need among some it does not, and the goal.

    Raises:
        UnknownTask: the id names no reachable goal.
    """
    goal = goal_of(task)
    needed, uses = _shown(goal)
    pool: set[str] = set()
    for lines in uses:
        pool.update(_shuffled(lines, f"{task}|input")[:DISTRACTORS])
    distractors = _shuffled(pool.difference(needed), f"{task}|distractors")[:DISTRACTORS]
    commands = "\n".join(_shuffled((*needed, *distractors), f"{task}|order"))
    return goal, Turn(f"Crafting commands:\n{commands}\n\nGoal: craft {spoken_name(goal)}.")


@cache
def splits() -> Mapping[str, tuple[str, ...]]:
    """Split name -> task ids in a fixed order.

    train, heldout: depth 1-2, disjoint goals. depth3, depth4: transfer, no goal trained on. demo: a sixth of
    train's goals in train's depth mix, few enough to be visited often in minutes. depth2: train's goals of
    depth 2, where the original begins; its panel holds the held-out goals of that depth. Each comes with a
    small fixed panel whose distractor seeds appear in no split.
    """
    by_depth = {depth: goals(depth) for depth in (1, 2, 3, 4)}
    heldout = [goal for depth, count in HELD_OUT_GOALS.items() for goal in by_depth[depth][:count]]
    train = {depth: by_depth[depth][count:] for depth, count in HELD_OUT_GOALS.items()}
    share = len(train[1]) / (len(train[1]) + len(train[2]))
    shallow = round(TRAIN_PANEL * share)
    panel = (*train[1][:shallow], *train[2][: TRAIN_PANEL - shallow])
    shallow = round(DEMO_GOALS * share)
    demo = (*train[1][:shallow], *train[2][: DEMO_GOALS - shallow])
    return MappingProxyType(
        {
            "train": _grid((*train[1], *train[2]), SPLIT_SEEDS),
            "heldout": _grid(heldout, SPLIT_SEEDS),
            "depth3": _grid(by_depth[3], SPLIT_SEEDS),
            "depth4": _grid(by_depth[4], SPLIT_SEEDS),
            "demo": _grid(demo, SPLIT_SEEDS),
            "train-panel": _grid(panel, PANEL_SEEDS[:1]),
            "heldout-panel": _grid(heldout, PANEL_SEEDS[:2]),
            "depth3-panel": _grid(by_depth[3], PANEL_SEEDS[:1]),
            "depth4-panel": _grid(by_depth[4], PANEL_SEEDS),
            "demo-panel": _grid(demo, PANEL_SEEDS),
            "depth2": _grid(train[2], SPLIT_SEEDS),
            "depth2-heldout-panel": _grid(by_depth[2][: HELD_OUT_GOALS[2]], PANEL_SEEDS[:3]),
        }
    )


def _grid(goals: Iterable[str], seeds: range) -> tuple[str, ...]:
    """Every goal with the first seed, in mixed order, then every goal with the next."""
    mixed = _shuffled(goals, "grid")
    return tuple(f"{goal}/{seed}" for seed in seeds for goal in mixed)


@cache
def _shown(goal: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The lines of all recipes on any way to the goal, and for each of their inputs those of its uses."""
    book = load_recipe_book()
    recipes: dict[str, Recipe] = {}
    names = [goal]
    for name in names:
        for recipe in book.making(name):
            recipes[recipe.line] = recipe
            names.extend(part.name for part in recipe.inputs if part.name not in names)
    inputs = dict.fromkeys(part.name for recipe in recipes.values() for part in recipe.inputs)
    uses = _uses(book)
    return tuple(recipes), tuple(uses[name] for name in inputs)


@cache
def _uses(book: RecipeBook) -> Mapping[str, tuple[str, ...]]:
    uses: dict[str, dict[str, None]] = {}
    for recipes in book.by_item.values():
        for recipe in recipes:
            for part in recipe.inputs:
                uses.setdefault(part.name, {})[recipe.line] = None
    return MappingProxyType({name: tuple(lines) for name, lines in uses.items()})


def _shuffled(texts: Iterable[str], salt: str) -> list[str]:
    """The texts in an order that depends on them and the salt alone."""
    return sorted(texts, key=lambda text: hashlib.blake2b(f"{salt}|{text}".encode(), digest_size=8).digest())
