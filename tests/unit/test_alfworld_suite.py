"""Tasks, generated games and the expert."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter

import pytest

from bipace.envs.alfworld import (
    FAMILIES,
    AlfworldSuite,
    GameFileError,
    generate,
    generate_game,
    load_game,
    plan,
)
from bipace.envs.alfworld.generator import MOST_RECEPTACLES
from bipace.envs.alfworld.search import search
from bipace.envs.base import Environment, Suite, UnknownTask
from bipace.rollout.panel import panel_tasks
from samples import extract


@pytest.fixture
def bare(tmp_path):
    return AlfworldSuite(tmp_path)


def test_the_suite_keeps_the_protocols(bare):
    assert isinstance(bare, Suite)
    assert isinstance(bare.make(), Environment)
    assert bare.max_steps == 50


def test_without_official_games_the_generated_ones_remain(bare):
    longer = ["gen-256-panel", "gen-small-512-panel"]
    assert list(bare.splits) == ["gen-train", "gen-panel", "gen-small", "gen-small-panel", *longer]
    for split, panel in (("gen-train", "gen-panel"), ("gen-small", "gen-small-panel")):
        assert (len(bare.splits[split]), len(bare.splits[panel])) == (6000, 128)
        assert not set(bare.splits[split]) & set(bare.splits[panel])
        assert set(Counter(map(bare.family, bare.splits[panel])).values()) == {21, 22}
    for panel, begin, count in (
        ("gen-256-panel", "gen-panel", 256),
        ("gen-small-512-panel", "gen-small-panel", 512),
    ):
        assert len(bare.splits[panel]) == count
        assert bare.splits[panel][:128] == bare.splits[begin]
        assert not set(bare.splits[panel]) & set(bare.splits["gen-small"])


@pytest.mark.parametrize(
    ("digest", "first", "count", "kind"),
    [
        ("fbd6755839928e9c", 0, 128, {"held_out": True}),
        ("ad467cc5329a05f5", 1000, 128, {"small": True}),
        ("a6c5c8c6ecbdb6a2", 0, 256, {"held_out": True}),
        ("ef0c859ad8ab871a", 1000, 512, {"small": True}),
    ],
    ids=["gen-panel", "gen-small-panel", "gen-256-panel", "gen-small-512-panel"],
)
def test_a_panel_never_changes(digest, first, count, kind):
    """Scores on it are compared across versions."""
    panel = [generate(FAMILIES[i % 6], first + i // 6, **kind)["pddl_problem"] for i in range(count)]
    assert hashlib.sha256("".join(panel).encode()).hexdigest()[:16] == digest


def test_small_rooms_are_small(bare):
    for task in bare.splits["gen-small-panel"]:
        places = [r for r, _ in bare.game(task).true_facts(bare.game(task).start, "receptacleatlocation")]
        assert len(places) <= MOST_RECEPTACLES


@pytest.mark.parametrize("family", FAMILIES)
def test_a_demonstration_solves_the_task_and_takes_only_what_it_has_seen(family, bare):
    environment = bare.make()
    for number in range(20):
        task = f"gen/{family}/{number}"
        shown = environment.reset(task).observation
        commands = bare.demonstration(task)
        assert commands == bare.demonstration(task)
        for command in commands:
            if command.startswith(("take", "use")):
                assert re.search(rf"\b{' '.join(command.split()[1:3])}\b", shown), (task, command)
            turn = environment.step(command)
            assert turn.valid, (task, command)
            shown += turn.observation
        assert turn.won


def test_a_demonstration_looks_where_the_expert_knows(bare):
    tasks = bare.splits["gen-train"][:60]
    assert sum(len(bare.demonstration(task)) for task in tasks) > 1.5 * sum(
        len(bare.expert(task)) for task in tasks
    )


def test_a_search_without_a_way_to_win_ends():
    data = generate("pick_heat_then_place_in_recep", 0)
    problem = data["pddl_problem"].replace("MicrowaveType)", "FridgeType)")
    game = load_game({**data, "pddl_problem": problem})
    assert search(game, 0) is None


def test_a_game_is_the_same_in_any_process():
    code = (
        "import hashlib, json; from bipace.envs.alfworld import generate;"
        "print(hashlib.sha256(json.dumps(generate('look_at_obj_in_light', 5)).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    here = hashlib.sha256(json.dumps(generate("look_at_obj_in_light", 5)).encode()).hexdigest()
    assert told.stdout.strip() == here


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expert_solves_generated_games_and_not_before_its_last_step(family, bare):
    for number in range(12):
        task = f"gen/{family}/{number}"
        environment = bare.make()
        turn = environment.reset(task)
        assert not turn.won
        expert = bare.expert(task)
        turns = [environment.step(command) for command in expert]
        assert all(turn.valid for turn in turns)
        assert [turn.won for turn in turns] == [False] * (len(expert) - 1) + [True]
        assert turns[-1].terminated
        assert len(expert) <= bare.max_steps


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expert_finds_its_way_from_any_state(family):
    _, game = generate_game(family, 8)
    rng = random.Random(family)
    for _ in range(10):
        _, state = game.reset()
        for _ in range(rng.randrange(25)):
            game.step(state, rng.choice(state.admissible))
        commands = plan(game, state)
        assert commands is not None
        for command in commands:
            assert game.step(state, command) is not None
        assert state.won


def test_no_shorter_plan_exists_where_the_expert_needs_three_commands():
    """Breadth-first over all commands: nothing of two commands wins."""
    games = (generate_game("look_at_obj_in_light", number)[1] for number in range(12))
    games = [game for game in games if len(game.walkthrough) == 3][:2]
    assert len(games) == 2
    for game in games:
        frontier = [game.reset()[1]]
        for _ in range(2):
            reached = []
            for state in frontier:
                for command in state.admissible:
                    after = game.copy(state)
                    game.step(after, command)
                    assert not after.won
                    reached.append(after)
            frontier = reached


def test_official_games_are_found_sorted_solved_and_no_longer_than_their_walkthrough(tmp_path):
    root = extract("valid_unseen", tmp_path)
    suite = AlfworldSuite(root)
    tasks = suite.splits["valid_unseen"]
    assert list(suite.splits)[-1] == "valid_unseen"
    assert list(tasks) == sorted(tasks)
    assert AlfworldSuite(root / "json_2.1.1").splits["valid_unseen"] == tasks
    assert Counter(map(suite.family, tasks)) == dict(zip(FAMILIES, (24, 18, 31, 23, 21, 17), strict=True))
    environment = suite.make()
    for task in tasks:
        environment.reset(task)
        expert = suite.expert(task)
        assert len(expert) <= len(suite.game(task).walkthrough)
        turns = [environment.step(command) for command in expert]
        assert turns[-1].won


@pytest.mark.parametrize(
    "task",
    ["", "gen", "gen/pick_and_place_simple", "gen/pick_and_place_simple/x", "gen/pick_and_place_simple/-1",
     "gen/pick_and_place_simple/007", f"gen/pick_and_place_simple/{'9' * 5000}",
     "gen/juggle/1", "valid_seen/a/b", "valid_seen/../../etc", "train/../x", "a/b/c"],
)  # fmt: skip
def test_an_unknown_task_is_named_with_one_that_works(task, bare):
    with pytest.raises(UnknownTask, match=r"(?s)unknown alfworld task.*gen/pick_and_place_simple/17"):
        bare.make().reset(task)


def test_asking_for_official_games_that_are_absent_says_how_to_get_them(bare):
    with pytest.raises(
        ValueError, match=r"no split or panel 'valid_unseen'.*alfworld-download.*ALFWORLD_DATA"
    ):
        panel_tasks(bare, "valid_unseen")


def test_an_id_cannot_leave_the_games_folder(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "game.tw-pddl").write_text("{}")
    with pytest.raises(UnknownTask):
        AlfworldSuite(tmp_path).make().reset("train/../.")


def test_an_environment_copy_is_independent(bare):
    environment = bare.make()
    task = "gen/pick_and_place_simple/17"
    environment.reset(task)
    for command in bare.expert(task)[:-1]:
        environment.step(command)
    branch = environment.copy()
    assert branch.step(bare.expert(task)[-1]).won
    assert not environment.step("look").won


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="unknown family 'juggle'"):
        generate("juggle", 0)


def test_a_goal_outside_the_families_is_refused_by_the_planner():
    data = generate("pick_and_place_simple", 0)
    start = data["pddl_problem"].index("(:goal")
    data["pddl_problem"] = data["pddl_problem"][:start] + "(:goal (exists (?r - receptacle) (opened ?r))))"
    with pytest.raises(GameFileError, match="goal: not one of the six families"):
        plan(load_game(data))
