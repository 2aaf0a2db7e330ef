"""A tabular process as an environment: the same text in, text out, but every value of it can be known.

`TextMDPSuite(world("grid"))` plays a process of `bipace.theory` wherever TextCraft plays. The process is
known here by its shape alone (`Process`), so that environments and theory stay apart.

A task is a start state and a number, "3#17": under it the process is deterministic, as every environment here
is. The draws of transitions and phrasings are a hash of the task and of all actions so far, so trajectories
of one task that have acted differently are independent, and those that have not are the same. Where
transitions are deterministic, exact values of the process are exact for every task; otherwise they hold on
average over numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bipace.envs.base import Turn, UnknownTask

__all__ = ["Process", "TextMDPEnvironment", "TextMDPSuite"]

_TASK = re.compile(r"([0-9]{1,9})#([0-9]{1,9})")


class Process(Protocol):
    """What is read of a process; `bipace.theory.mdp.TextMDP` has it (S states, A actions)."""

    @property
    def transition(self) -> NDArray[np.float64]:
        """[S, A, S]."""
        ...

    @property
    def reward(self) -> NDArray[np.float64]:
        """[S, A]."""
        ...

    @property
    def start(self) -> NDArray[np.float64]:
        """[S]."""
        ...

    @property
    def terminal(self) -> NDArray[np.bool_]:
        """[S]."""
        ...

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """Per state, the texts it may show."""
        ...

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions: the admissible commands of every state."""
        ...

    @property
    def gamma(self) -> float:
        """Discount."""
        ...


class TextMDPEnvironment:
    """Plays one process. An `Environment` of `bipace.envs.base`.

    Commands are the action names, letter case and surrounding space aside. Anything else leaves the state and
    the text as they are (valid=False). `won` is a positive reward on entering a terminal state; after that
    nothing changes.

    Attributes:
        state: the state the process is in: the key to its exact values.

    Examples:
        >>> from bipace.envs.text_mdp import TextMDPSuite
        >>> from bipace.theory.textworlds import corridor
        >>> suite = TextMDPSuite(corridor(3))
        >>> turn = suite.make().reset(suite.splits[next(iter(suite.splits))][0])
        >>> len(turn.admissible)
        5
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._commands = {name.strip().lower(): k for k, name in enumerate(process.actions)}
        self._odds = process.transition.cumsum(axis=2)
        self._history = b""
        self._text = ""
        self.state = -1

    def reset(self, task: str) -> Turn:
        """Begin at the task's start state.

        Raises:
            UnknownTask: an id that is not "state#number" with a state that may start an episode.
        """
        self.state = start_state(self._process, task)
        self._history = _digest(b"", task)
        self._text = self._say()
        return Turn(self._text, admissible=self._process.actions)

    def step(self, action: str) -> Turn:
        """Apply a command.

        Raises:
            RuntimeError: no `reset` came before.
        """
        if self.state < 0:
            raise RuntimeError("step before reset: begin a task first")
        command = action.strip().lower()
        self._history = _digest(self._history, command)
        chosen = self._commands.get(command)
        over = bool(self._process.terminal[self.state])
        if chosen is None or over:
            understood = None if chosen is None else self._process.actions[chosen]
            return Turn(self._text, 0.0, over, False, chosen is not None, self._process.actions, understood)
        reward = float(self._process.reward[self.state, chosen])
        odds = self._odds[self.state, chosen]
        self.state = int(np.searchsorted(odds, _uniform(self._history[:8]) * odds[-1], side="right"))
        self._text = self._say()
        ended = bool(self._process.terminal[self.state])
        won, names = ended and reward > 0, self._process.actions
        return Turn(self._text, reward, ended, won, admissible=names, executed=names[chosen])

    def copy(self) -> TextMDPEnvironment:
        """An independent environment in the same state, with the same draws to come for the same actions."""
        return copy(self)

    def _say(self) -> str:
        forms = self._process.texts[self.state]
        return forms[int(_uniform(self._history[8:]) * len(forms))]


@dataclass(frozen=True)
class TextMDPSuite:
    """A process as a `Suite` of `bipace.envs.base`.

    Attributes:
        process: what is played.
        name: short name for configs and reports.
        max_steps: horizon.
        instructions: rules given to the agent once.
        numbers: task numbers per start state in each split; "train" and "test" share no number.
        splits: made from `numbers`: for each number in turn, one task from every state that may start an
            episode.

    Raises:
        ValueError: max_steps or numbers below 1; a start in a terminal state.

    Examples:
        >>> from bipace.envs.text_mdp import TextMDPSuite
        >>> from bipace.theory.textworlds import corridor
        >>> suite = TextMDPSuite(corridor(3))
        >>> list(suite.splits)
        ['train', 'test']
    """

    process: Process
    name: str = "text-mdp"
    max_steps: int = 12
    instructions: str = "Reach the goal. Answer with one of the admissible actions, word for word."
    numbers: int = 16
    splits: Mapping[str, Sequence[str]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("max_steps", "numbers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)}, expected >= 1")
        if self.process.start[self.process.terminal].sum() > 0:
            raise ValueError("process: starts in a terminal state; an episode must have a first step")
        starts: list[int] = np.flatnonzero(self.process.start > 0).tolist()
        halves = {"train": range(self.numbers), "test": range(self.numbers, 2 * self.numbers)}
        tasks = {split: tuple(f"{s}#{n}" for n in half for s in starts) for split, half in halves.items()}
        object.__setattr__(self, "splits", tasks)

    def make(self) -> TextMDPEnvironment:
        """A fresh environment; `reset` begins an episode."""
        return TextMDPEnvironment(self.process)

    def family(self, task: str) -> str:
        """The start state, as "start-3". Raises UnknownTask."""
        return f"start-{start_state(self.process, task)}"

    def expert(self, task: str) -> tuple[str, ...]:
        """The best policy's commands over `max_steps` steps, as this task's draws let it play, to the end.

        They solve the task where the process has a goal and chance allows it. Raises UnknownTask.
        """
        best = _best_actions(self.process, self.max_steps)
        environment = self.make()
        environment.reset(task)
        commands: list[str] = []
        for left in range(self.max_steps, 0, -1):
            commands.append(self.process.actions[int(best[left][environment.state])])
            if environment.step(commands[-1]).terminated:
                break
        return tuple(commands)


def start_state(process: Process, task: str) -> int:
    """The state a task begins in. Raises UnknownTask."""
    match = _TASK.fullmatch(task)
    state = int(match[1]) if match else -1
    if match is None or state >= len(process.start) or process.start[state] <= 0:
        example = int(np.argmax(process.start > 0))
        raise UnknownTask(f"task: {task!r}, expected a start state and a number such as '{example}#0'")
    return state


def _best_actions(process: Process, horizon: int) -> dict[int, Any]:
    """Per number of steps left, [S] the optimal action; ties go to the lowest."""
    values = np.zeros(len(process.start))
    best: dict[int, Any] = {}
    for left in range(1, horizon + 1):
        acting = process.reward + process.gamma * process.transition @ values
        best[left], values = acting.argmax(axis=1), acting.max(axis=1)
    return best


def _digest(history: bytes, text: str) -> bytes:
    return blake2b(history + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _uniform(eight_bytes: bytes) -> float:
    """A number in [0, 1) from the first 53 of 64 bits, so that it never rounds up to 1."""
    return (int.from_bytes(eight_bytes, "big") >> 11) / 2**53
