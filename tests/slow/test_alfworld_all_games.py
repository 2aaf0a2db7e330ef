"""Every official game: it loads, its walkthrough wins, and the expert's plan wins and is not longer."""

from __future__ import annotations

import pytest

from bipace.envs.alfworld import FAMILIES, AlfworldGame, AlfworldSuite
from samples import extract

pytestmark = pytest.mark.slow
SIZES = {
    "train": (790, 308, 650, 459, 533, 813),
    "valid_seen": (35, 13, 27, 16, 25, 24),
    "valid_unseen": (24, 18, 31, 23, 21, 17),
}


def won_after(game, commands):
    game.reset()
    turns = [game.step(command) for command in commands]
    return (
        all(info["valid"] for *_, info in turns)
        and [won for _, _, won, _, _ in turns].index(True) == len(turns) - 1
    )


@pytest.mark.parametrize("split", SIZES)
def test_every_game_is_won_by_its_walkthrough_and_by_the_expert(split, tmp_path):
    suite = AlfworldSuite(extract(split, tmp_path))
    tasks = suite.splits[split]
    sizes = tuple(sum(suite.family(task) == family for task in tasks) for family in FAMILIES)
    assert sizes == SIZES[split]
    for task in tasks:
        game = AlfworldGame(suite.game(task))
        expert = suite.expert(task)
        assert won_after(game, expert), task
        assert won_after(game, game.game.walkthrough), task
        assert len(expert) <= len(game.game.walkthrough), task
