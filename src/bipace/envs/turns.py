"""An environment's answer is not trusted: it is a turn that can be used, or an error that says why not."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from bipace.envs.base import Turn

__all__ = ["checked_turn", "readable"]


def checked_turn(turn: Any) -> Turn:
    """The turn in plain Python types.

    numpy's numbers and truth values become Python's, a list of commands a tuple, and half a surrogate pair,
    which no file or tokenizer can hold, the replacement character.

    Raises:
        TypeError: no Turn; an observation, a command or an admissible command that is not text; a flag that
            is neither True nor False; a reward that is no number.
        ValueError: a reward that is not finite.
    """
    if not isinstance(turn, Turn):
        raise TypeError(f"the environment answered with a {type(turn).__name__}, not a Turn")
    if not isinstance(turn.observation, str):
        raise TypeError(f"the observation is a {type(turn.observation).__name__}, not text")
    if not (turn.executed is None or isinstance(turn.executed, str)):
        raise TypeError(f"Turn.executed is a {type(turn.executed).__name__}, not text")
    if isinstance(turn.reward, (bool, np.bool_)) or not isinstance(turn.reward, (Real, np.number)):
        raise TypeError(f"the reward is a {type(turn.reward).__name__}, not a number")
    reward = float(turn.reward)
    if not math.isfinite(reward):
        raise ValueError(f"the reward is {reward}, not a finite number")
    if not isinstance(turn.admissible, (tuple, list)):
        raise TypeError(f"Turn.admissible is a {type(turn.admissible).__name__}, not a tuple of commands")
    wrong = next((command for command in turn.admissible if not isinstance(command, str)), None)
    if wrong is not None or None in turn.admissible:
        raise TypeError(f"Turn.admissible holds a {type(wrong).__name__}, not text")
    return replace(
        turn,
        observation=readable(turn.observation),
        reward=reward,
        admissible=tuple(readable(command) for command in turn.admissible),
        executed=None if turn.executed is None else readable(turn.executed),
        **{name: _flag(name, getattr(turn, name)) for name in ("terminated", "won", "valid", "unlisted")},
    )


def readable(text: str) -> str:
    """The text with every lone surrogate replaced.

    A pair of them becomes the character that it stands for.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"Turn.{name} is a {type(value).__name__}, expected True or False")
    return bool(value)
