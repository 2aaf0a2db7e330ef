"""What a command of TextCraft is answered, the senseless ones included."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.envs.base import Turn, UnknownTask
from bipace.envs.textcraft import suite


def start(task="minecraft:stick/0"):
    environment = suite().make()
    environment.reset(task)
    return environment


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("get 0 bamboo", "Could not find bamboo"),
        ("get 9999999999 bamboo", "Could not find bamboo"),
        ("get " + "9" * 5000 + " bamboo", "Could not find bamboo"),
        ("get 1 stick", "Could not find stick"),
        ("get 1 planks", "Could not find planks"),
        ("get 1 unobtainium", "Could not find unobtainium"),
        ("get bamboo", "Could not execute get bamboo"),
        ("craft 1 stick using 2 bamboo", "Could not find enough items to craft minecraft:stick"),
        ("craft 4 stick using 2 planks", "Could not find enough items to craft minecraft:stick"),
        ("craft 1 stick using bamboo", "Wrong item format: bamboo"),
        ("craft 1 stick using 2 bamboo,", "Wrong item format: "),
        ("craft 1 stick using " + "9" * 5000 + " bamboo", "Wrong item format: " + "9" * 5000 + " bamboo"),
        ("", "Could not execute "),
        ("Inventory", "Could not execute Inventory"),
    ],
)
def test_bad_command_is_answered_and_changes_nothing(command, answer):
    environment = start()
    assert environment.step(command) == Turn(answer, valid=False)
    assert environment.inventory == {}


def test_craft_with_wrong_counts_or_extra_items_has_no_recipe():
    environment = start()
    environment.step("get 5 bamboo")
    for using in ("3 bamboo", "1 bamboo, 1 bamboo", "2 bamboo, 1 bamboo", "0 bamboo"):
        turn = environment.step(f"craft 1 stick using {using}")
        assert turn.observation.startswith("Could not find a valid recipe for ItemTagWithCount(")
        assert not turn.valid
    assert environment.inventory == {"minecraft:bamboo": 5}


def test_tag_is_served_by_any_item_that_carries_it_and_by_no_other():
    environment = start("minecraft:oak_boat/0")
    for command in ("get 1 birch logs", "craft 4 birch planks using 1 birch logs", "get 2 bamboo"):
        assert environment.step(command).valid
    assert environment.step("craft 4 stick using 2 bamboo").observation == "Crafted 1 minecraft:stick"
    assert not environment.step("craft 4 stick using 2 oak planks").valid
    assert (
        environment.step("  craft 4 stick using 2 birch planks\n").observation == "Crafted 4 minecraft:stick"
    )
    listing = environment.step("inventory").observation
    assert listing == "Inventory: [birch planks] (2) [stick] (5) "


def test_copy_plays_on_alone():
    environment = start()
    environment.step("get 2 bamboo")
    twin = environment.copy()
    assert twin.step("craft 1 stick using 2 bamboo").won
    assert environment.inventory == {"minecraft:bamboo": 2}
    assert environment.step("craft 1 stick using 2 bamboo").won


NO_TASKS = [
    "",
    "minecraft:stick",
    "minecraft:stick/",
    "minecraft:stick/-1",
    "minecraft:stick/01",
    "minecraft:bamboo/0",
]
NO_TASKS += ["stick/0", "minecraft:nothing/0", "minecraft:stick/3\n", "minecraft:stick/\u0663"]


@pytest.mark.parametrize("task", NO_TASKS)
def test_unknown_task_is_refused_by_name_with_one_that_works(task):
    environment = start()
    environment.step("get 1 bamboo")
    for ask in (environment.reset, suite().family, suite().expert):
        with pytest.raises(UnknownTask, match="minecraft:stick/3"):
            ask(task)
    assert environment.inventory == {"minecraft:bamboo": 1}


WORDS = st.one_of(
    st.sampled_from(
        ["craft", "get", "using", "inventory", "stick", "bamboo", "planks", "oak logs", "oak planks", ","]
    ),
    st.sampled_from(
        ["0", "1", "2", "4", "-1", "\u00b2", "999999999999", "minecraft:stick", "{}", "%s", "\n", "\x00"]
    ),
)
COMMANDS = st.one_of(
    st.text(max_size=400),
    st.lists(WORDS, max_size=9).map(" ".join),
    st.sampled_from(["get 4 bamboo", "get 1 oak logs", "craft 4 oak planks using 1 oak logs"])
    | st.sampled_from(["craft 1 stick using 2 bamboo", "craft 4 stick using 2 oak planks"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(COMMANDS, max_size=12))
def test_any_text_is_answered_and_invalid_text_changes_nothing(commands):
    environment = start("minecraft:ladder/0")
    for command in commands:
        before = dict(environment.inventory)
        turn = environment.step(command)
        assert all(count > 0 for count in environment.inventory.values())
        assert turn.admissible == ()
        if not turn.valid:
            assert environment.inventory == before
            assert turn.reward == 0.0
            assert not turn.terminated
