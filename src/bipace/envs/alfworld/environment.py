"""The game behind two interfaces: Gymnasium's five-tuple with text, and bipace's own `Environment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bipace.envs.alfworld.engine import NOTHING_HAPPENS, Game, State, load_game
from bipace.envs.alfworld.planner import plan
from bipace.envs.base import Environment, Turn

__all__ = ["AlfworldEnvironment", "AlfworldGame"]


class AlfworldGame:
    """One game with the methods of a Gymnasium environment, in text.

    It needs neither Gymnasium nor bipace's trainer.

    `info` holds `admissible_commands` (sorted, the stock order), `won`, and `valid` (False when nothing
    happened). The reward is the stock one: 1 on every step after which the game is won, else 0. Any text may
    be given as a command. There is no horizon, so `truncated` is always False. Use an instance in one thread
    at a time; instances of one game share what never changes.

    Args:
        source: a `game.tw-pddl` file, its content as a mapping, or a compiled `Game`.

    Raises:
        GameFileError: malformed or unsupported game; the message names the file and the predicate, action or
            rule.
    """

    def __init__(self, source: str | Path | Mapping[str, Any] | Game) -> None:
        self.game = source if isinstance(source, Game) else load_game(source)
        self.state: State | None = None

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """First observation and info.

        The game is deterministic: `seed` and `options` are accepted and not used.
        """
        del seed, options
        observation, self.state = self.game.reset()
        return observation, self._info(self.state, valid=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, info. Raises RuntimeError before the first reset."""
        if self.state is None:
            raise RuntimeError("call reset() before step()")
        feedback = self.game.step(self.state, action)
        won = self.state.won
        observation = NOTHING_HAPPENS if feedback is None else feedback
        return observation, float(won), won, False, self._info(self.state, valid=feedback is not None)

    def copy(self) -> AlfworldGame:
        """An independent game in the same state."""
        other = AlfworldGame(self.game)
        other.state = self.state and self.game.copy(self.state)
        return other

    def expert(self) -> tuple[str, ...] | None:
        """A shortest plan from the present state, or None when the planner's errands cannot win from here."""
        return plan(self.game, self.state)

    @staticmethod
    def _info(state: State, valid: bool) -> dict[str, Any]:
        return {"admissible_commands": list(state.admissible), "won": state.won, "valid": valid}


class AlfworldEnvironment:
    """Plays the tasks of a suite; see `bipace.envs.base.Environment`.

    `help`, which only lists commands, is executed as in the stock stack but not offered (as in verl-agent's
    prompts).

    Args:
        load: gives the compiled game of a task id; raises UnknownTask.
    """

    def __init__(self, load: Callable[[str], Game]) -> None:
        self._load = load
        self._game: Game | None = None
        self._state: State | None = None

    def reset(self, task: str) -> Turn:
        """Begin the task with this id. Raises UnknownTask."""
        self._game = self._load(task)
        observation, self._state = self._game.reset()
        return Turn(observation, won=self._state.won, admissible=_offered(self._state), unlisted=True)

    def step(self, action: str) -> Turn:
        """Apply one command; what does not apply is answered with `Nothing happens.` and valid=False."""
        if self._game is None or self._state is None:
            raise RuntimeError("call reset(task) before step()")
        feedback = self._game.step(self._state, action)
        won = self._state.won
        observation = NOTHING_HAPPENS if feedback is None else feedback
        executed = None if feedback is None else action.strip()
        offered = _offered(self._state)
        return Turn(observation, float(won), won, won, feedback is not None, offered, executed, unlisted=True)

    def copy(self) -> Environment:
        """An independent environment in the same state; microseconds."""
        other = AlfworldEnvironment(self._load)
        other._game = self._game
        other._state = self._game.copy(self._state) if self._game and self._state else None
        return other


def _offered(state: State) -> tuple[str, ...]:
    return tuple([command for command in state.admissible if command != "help"])
