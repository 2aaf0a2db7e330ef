"""ALFWorld at the speed of a game: the stock stack's text, byte for byte, without the stock stack.

    from bipace.envs.alfworld import AlfworldGame
    game = AlfworldGame("json_2.1.1/valid_seen/<task>/<trial>/game.tw-pddl")
    observation, info = game.reset()
    observation, reward, terminated, truncated, info = game.step(info["admissible_commands"][0])

`AlfworldSuite` names the tasks, `generate` makes games offline, `plan` solves them. Reading order: `pddl`,
`relations`, `grammar`, `rendering`, `actions`, `engine`. Only the standard library is used. Without official
games: `AlfworldGame(generate("pick_and_place_simple", 0))`.
"""

from bipace.envs.alfworld.engine import Game, State, load_game
from bipace.envs.alfworld.environment import AlfworldEnvironment, AlfworldGame
from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.generator import generate, generate_game
from bipace.envs.alfworld.planner import FAMILIES, plan
from bipace.envs.alfworld.suite import HOW_TO_GET_GAMES, AlfworldSuite, official_folder, suite

__all__ = [
    "FAMILIES",
    "HOW_TO_GET_GAMES",
    "AlfworldEnvironment",
    "AlfworldGame",
    "AlfworldSuite",
    "Game",
    "GameFileError",
    "State",
    "generate",
    "generate_game",
    "load_game",
    "official_folder",
    "plan",
    "suite",
]
