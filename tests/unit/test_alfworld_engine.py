"""The ALFWorld engine against recorded answers of the stock stack, and on its own terms."""

from __future__ import annotations

import hashlib
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bipace.envs.alfworld import FAMILIES, AlfworldGame, generate, generate_game
from samples import extract

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
GENERATED = json.loads((GOLDEN / "alfworld_generated.json").read_text(encoding="utf-8"))
OFFICIAL = json.loads((GOLDEN / "alfworld_official.json").read_text(encoding="utf-8"))


def digest(observation, admissible, reward, won, done):
    turn = [observation, admissible, int(reward), won, done]
    return hashlib.sha256(json.dumps(turn, ensure_ascii=False).encode()).hexdigest()[:12]


def replay(game, commands):
    observation, info = game.reset()
    turns = [digest(observation, info["admissible_commands"], 0, info["won"], False)]
    for command in commands:
        observation, reward, done, truncated, info = game.step(command)
        assert not truncated
        turns.append(digest(observation, info["admissible_commands"], reward, info["won"], done))
    return turns


def first_difference(ours, recorded, commands):
    for i, (a, b) in enumerate(zip(ours, recorded, strict=True)):
        if a != b:
            return f"turn {i} after {commands[i - 1]!r}" if i else "reset"
    return None


@pytest.mark.parametrize(
    "game", GENERATED, ids=lambda g: f"{g['family']}-{g['seed']}{'-older' if g['older'] else ''}"
)
def test_generated_games_answer_as_the_stock_stack_did(game):
    made = AlfworldGame(generate(game["family"], game["seed"], game["held_out"], game["older"]))
    for episode in game["episodes"]:
        turns = replay(made, episode["commands"])
        assert first_difference(turns, episode["digests"], episode["commands"]) is None


@pytest.mark.parametrize("split", ["valid_seen", "valid_unseen"])
def test_official_games_answer_as_the_stock_stack_did(split, tmp_path):
    folder = extract(split, tmp_path) / "json_2.1.1"
    games = [game for game in OFFICIAL if game["task"].startswith(split + "/")]
    assert {game["task"].split("/")[1].split("-")[0] for game in games} == set(FAMILIES)
    for game in games:
        played = AlfworldGame(folder / game["task"] / "game.tw-pddl")
        for episode in game["episodes"]:
            turns = replay(played, episode["commands"])
            assert first_difference(turns, episode["digests"], episode["commands"]) is None, game["task"]


def random_episode(game, seed, steps=60):
    rng = random.Random(seed)
    observation, info = game.reset()
    seen = [(observation, tuple(info["admissible_commands"]))]
    for _ in range(steps):
        observation, _, _, _, info = game.step(rng.choice(info["admissible_commands"]))
        seen.append((observation, tuple(info["admissible_commands"])))
    return seen


def test_a_command_that_does_not_apply_changes_nothing():
    game = AlfworldGame(generate("pick_and_place_simple", 3))
    _, before = game.reset()
    for command in ("", "go to the moon", "GO TO", "open", "take x from y", "\x00", "é" * 5000):
        observation, reward, done, _, info = game.step(command)
        assert (observation, reward, done, info["valid"]) == ("Nothing happens.", 0.0, False, False)
        assert info["admissible_commands"] == before["admissible_commands"]


def test_every_admissible_command_is_valid_and_the_list_is_sorted():
    game = AlfworldGame(generate("pick_heat_then_place_in_recep", 1))
    rng = random.Random(0)
    _, info = game.reset()
    for _ in range(40):
        commands = info["admissible_commands"]
        assert commands == sorted(set(commands))
        assert all(game.copy().step(command)[4]["valid"] for command in commands)
        info = game.step(rng.choice(commands))[4]


def test_space_around_a_command_is_ignored():
    game = AlfworldGame(generate("pick_and_place_simple", 0))
    game.reset()
    assert game.copy().step("  look \n") == game.copy().step("look")


def test_a_copy_and_its_original_go_separate_ways():
    game = AlfworldGame(generate("pick_two_obj_and_place", 5))
    expert = game.expert()
    game.reset()
    for command in expert[:-1]:
        game.step(command)
    copy = game.copy()
    assert copy.step(expert[-1])[2]
    assert not game.step("look")[2]
    assert "You are carrying: a" in game.step("inventory")[0]
    assert copy.step("inventory")[0] == "You are not carrying anything."


def test_the_reward_is_one_on_every_step_after_which_the_game_is_won():
    game = AlfworldGame(generate("pick_clean_then_place_in_recep", 2))
    expert = game.expert()
    game.reset()
    rewards = [game.step(command)[1] for command in (*expert, "look")]
    assert rewards == [0.0] * (len(expert) - 1) + [1.0, 1.0]


def test_threads_that_share_a_game_see_what_one_thread_sees():
    _, shared = generate_game("pick_cool_then_place_in_recep", 4)
    alone = [
        random_episode(AlfworldGame(generate("pick_cool_then_place_in_recep", 4)), seed) for seed in range(8)
    ]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: random_episode(AlfworldGame(shared), seed), range(8)))
    assert together == alone


def test_going_where_one_is_is_not_offered():
    game = AlfworldGame(generate("pick_and_place_simple", 7))
    _, info = game.reset()
    for command in info["admissible_commands"]:
        if command.startswith("go to"):
            arrived = game.copy()
            assert command not in arrived.step(command)[4]["admissible_commands"]


def test_a_step_before_the_first_reset_says_so():
    with pytest.raises(RuntimeError, match="reset"):
        AlfworldGame(generate("pick_and_place_simple", 0)).step("look")
