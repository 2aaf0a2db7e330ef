"""Small text worlds with known truth.

What the state says, how it says it, and what that does to text matching.

| world | texts | exact text match |
|---|---|---|
| grid | one for each room, all different | is the state |
| paraphrased | several for each room | splits a state into its surface forms |
| aliased | one for several rooms | merges states with different values |
| random | one for each state, random dynamics | is the state |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bipace.core.steps import Floats
from bipace.theory.mdp import TextMDP

__all__ = ["WORLDS", "aliased", "corridor", "grid", "paraphrased", "random_mdp", "world"]

_COMMANDS = ("go north", "go south", "go west", "go east", "take lamp")
_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
_ROOMS = (
    "attic",
    "bath",
    "cellar",
    "den",
    "entry",
    "forge",
    "gallery",
    "hall",
    "icehouse",
    "jetty",
    "kitchen",
    "loft",
)
_PHRASINGS = (
    "You are in the {room}.",
    "This is the {room}; dust lies on the floor.",
    "Around you: the {room}. Nothing stirs.",
    "The {room} again? It looks like it.",
)
_SUCCESS = 10.0  # the reward of success in the method's own experiments


def grid(width: int = 3, height: int = 3, slip: float = 0.0, gamma: float = 0.95) -> TextMDP:
    """Rooms on a grid, each with a text of its own; taking the lamp in the far corner earns 10 and ends it.

    Walls stop a move. Taking where no lamp lies does nothing. Starts are uniform over the rooms without the
    lamp.

    Args:
        width: rooms from west to east.
        height: rooms from north to south.
        slip: probability that a move goes in a uniformly drawn direction instead.
        gamma: discount.

    Raises:
        ValueError: fewer than two rooms; slip outside [0, 1].

    Examples:
        >>> from bipace.theory.textworlds import grid
        >>> grid(2, 2).n_states, grid(2, 2).n_actions
        (5, 5)
    """
    return _rooms(
        width, height, slip, gamma, tuple((_PHRASINGS[0].format(room=r),) for r in _names(width * height))
    )


def corridor(length: int = 5, slip: float = 0.0, gamma: float = 0.95) -> TextMDP:
    """A grid one room high: the lamp lies at the east end.

    Examples:
        >>> from bipace.theory.textworlds import corridor
        >>> corridor(3).n_states
        4
    """
    return grid(length, 1, slip, gamma)


def paraphrased(
    width: int = 3, height: int = 3, forms: int = 4, slip: float = 0.0, gamma: float = 0.95
) -> TextMDP:
    """The grid, each room speaking in one of `forms` phrasings drawn at every visit.

    Raises:
        ValueError: forms outside 1..4; what `grid` refuses.

    Examples:
        >>> from bipace.theory.textworlds import paraphrased
        >>> paraphrased(2, 2, forms=3).n_states
        5
    """
    if not 1 <= forms <= len(_PHRASINGS):
        raise ValueError(f"forms: {forms}, expected 1..{len(_PHRASINGS)} phrasings")
    texts = (tuple(p.format(room=r) for p in _PHRASINGS[:forms]) for r in _names(width * height))
    return _rooms(width, height, slip, gamma, tuple(texts))


def aliased(
    width: int = 3, height: int = 3, looks: int = 3, slip: float = 0.0, gamma: float = 0.95
) -> TextMDP:
    """The grid in which rooms share `looks` texts: room k looks like room k mod looks.

    Raises:
        ValueError: looks below 1; what `grid` refuses.

    Examples:
        >>> from bipace.theory.textworlds import aliased
        >>> aliased(2, 2, looks=2).n_states
        5
    """
    if looks < 1:
        raise ValueError(f"looks: {looks}, expected >= 1 different texts")
    names = _names(width * height)
    texts = tuple((_PHRASINGS[0].format(room=names[k % looks]),) for k in range(len(names)))
    return _rooms(width, height, slip, gamma, texts)


def random_mdp(
    states: int = 6,
    actions: int = 3,
    seed: int = 0,
    *,
    branching: int = 3,
    ending: float = 0.1,
    gamma: float = 0.95,
) -> TextMDP:
    """Random dynamics (Garnet): each state-action leads to `branching` states with random odds.

    Args:
        states: states outside the one terminal state, which comes last.
        actions: actions of every state.
        seed: fixes everything.
        branching: successors of a state-action, at most `states`; 1 is deterministic.
        ending: probability of ending at every step; rewards are standard normal.
        gamma: discount.

    Raises:
        ValueError: states or actions below 1; branching outside 1..states; ending outside [0, 1].

    Examples:
        >>> from bipace.theory.textworlds import random_mdp
        >>> random_mdp(states=4).n_states
        5
    """
    if states < 1 or actions < 1:
        raise ValueError(f"states, actions: {states}, {actions}, expected >= 1 each")
    if not 1 <= branching <= states:
        raise ValueError(f"branching: {branching}, expected 1..{states} (states)")
    _require_probability("ending", ending)
    rng = np.random.default_rng(seed)
    transition = np.zeros((states + 1, actions, states + 1))
    for s in range(states):
        for a in range(actions):
            odds = rng.dirichlet(np.ones(branching))
            transition[s, a, rng.choice(states, branching, replace=False)] = (1 - ending) * odds
    transition[:, :, states] += ending
    transition[states, :, :] = np.eye(states + 1)[states]
    terminal = np.arange(states + 1) == states
    return TextMDP(
        transition=transition,
        reward=rng.standard_normal((states + 1, actions)),
        start=np.where(terminal, 0.0, 1.0 / states),
        terminal=terminal,
        texts=(*((f"The dial reads {s}.",) for s in range(states)), ("The dial stops.",)),
        actions=tuple(f"press {a}" for a in range(actions)),
        gamma=gamma,
    )


WORLDS: dict[str, Callable[..., TextMDP]] = {
    "grid": grid,
    "corridor": corridor,
    "paraphrased": paraphrased,
    "aliased": aliased,
    "random": random_mdp,
}


def world(name: str, **options: Any) -> TextMDP:
    """A world by name.

    Args:
        name: a key of WORLDS.
        options: keyword arguments of that world's function.

    Raises:
        ValueError: an unknown name, listing the known ones.

    Examples:
        >>> from bipace.theory.textworlds import world
        >>> world("paraphrased").n_states
        10
    """
    if name not in WORLDS:
        raise ValueError(f"world: unknown {name!r}; known: {', '.join(WORLDS)}")
    return WORLDS[name](**options)


def _rooms(width: int, height: int, slip: float, gamma: float, texts: tuple[tuple[str, ...], ...]) -> TextMDP:
    rooms = width * height
    if width < 1 or height < 1 or rooms < 2:
        raise ValueError(f"width, height: {width}, {height}, expected at least two rooms")
    _require_probability("slip", slip)
    lamp, end = rooms - 1, rooms
    transition = np.zeros((rooms + 1, len(_COMMANDS), rooms + 1))
    moves = _moves(width, height)
    transition[:rooms, : len(_MOVES), :rooms] = (1 - slip) * moves + slip * moves.mean(axis=1, keepdims=True)
    transition[np.arange(rooms), -1, np.arange(rooms)] = 1.0
    transition[lamp, -1] = np.eye(rooms + 1)[end]
    transition[end, :, end] = 1.0
    reward = np.zeros((rooms + 1, len(_COMMANDS)))
    reward[lamp, -1] = _SUCCESS
    start = np.zeros(rooms + 1)
    start[:lamp] = 1.0 / lamp
    return TextMDP(
        transition=transition,
        reward=reward,
        start=start,
        terminal=np.arange(rooms + 1) == end,
        texts=(*texts, ("The lamp is yours.",)),
        actions=_COMMANDS,
        gamma=gamma,
    )


def _moves(width: int, height: int) -> Floats:
    """[rooms, 4, rooms] where each move leads without a slip."""
    moves = np.zeros((width * height, len(_MOVES), width * height))
    for y in range(height):
        for x in range(width):
            for k, (dx, dy) in enumerate(_MOVES):
                to_x, to_y = min(max(x + dx, 0), width - 1), min(max(y + dy, 0), height - 1)
                moves[y * width + x, k, to_y * width + to_x] = 1.0
    return moves


def _names(count: int) -> list[str]:
    """Distinct room names, plain ones first."""
    return [
        _ROOMS[k] if k < len(_ROOMS) else f"{_ROOMS[k % len(_ROOMS)]} {k // len(_ROOMS)}"
        for k in range(count)
    ]


def _require_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}: {value}, expected a probability in [0, 1]")
