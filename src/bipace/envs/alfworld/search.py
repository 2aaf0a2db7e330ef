"""Demonstrations an agent can follow: things are looked for, their places are not known beforehand.

`planner.plan` knows the whole state. Who imitates it must guess where things lie, and never sees what to do
when the guess was wrong. Here a plan may use only what has come into view; while there is none, the next
receptacle is looked into.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from bipace.envs.alfworld.engine import Game
from bipace.envs.alfworld.planner import Goal, goal_of, pairs, shortest, visit

__all__ = ["search"]

_NAME = re.compile(r"[a-z]+ \d+")


def search(game: Game, seed: int) -> tuple[str, ...] | None:
    """Commands that solve a game from its start without knowing where things lie.

    Receptacles are looked into class by class: the classes in a random order, those that cannot hold what is
    missing last; within a class in the order of the room's description. A first object is delivered before a
    second one is looked for, and one to be looked at is in the hand before its lamp is looked for.

    Args:
        game: of one of the six families.
        seed: of the order of the classes; the same seed gives the same commands in any process.

    Returns:
        The commands, or None when everything has been looked into and there is no plan.

    Raises:
        GameFileError: the goal is not of the six families.
    """
    seeker = _Seeker(game, seed)
    if all(map(seeker.reach, _stages(goal_of(game)))) and seeker.state.won:
        return tuple(seeker.commands)
    return None


def _stages(goal: Goal) -> tuple[Goal, ...]:
    if goal.family == "look_at_obj_in_light":
        return replace(goal, target_type=None), goal
    return (*(replace(goal, count=n) for n in range(1, goal.count)), goal)


class _Seeker:
    """One game being played: its state, the commands so far, what came into view, what was looked into."""

    def __init__(self, game: Game, seed: int) -> None:
        self.game = game
        self.commands: list[str] = []
        self.seen: set[int] = set()
        self.named = {
            game.names[entity]: number for entity, number in game.number.items() if entity in game.names
        }
        _, self.state = game.reset()
        kinds = pairs(game.true_facts(self.state, "receptacletype"))
        order = sorted(set(kinds.values()))
        random.Random(f"bipace-alfworld-search/{seed}").shuffle(order)
        reachable = sorted(r for r, _ in game.true_facts(self.state, "receptacleatlocation") if r in kinds)
        # Entities are numbered in the order in which the room's description lists them.
        self.unseen = sorted(reachable, key=lambda r: order.index(kinds[r]))
        self.kinds, self.fits = kinds, set(game.true_facts(self.state, "cancontain"))
        self.thing_kinds = pairs(game.true_facts(self.state, "objecttype"))

    def reach(self, goal: Goal) -> bool:
        """Play until the goal is reached; False when nothing is left to look into."""
        while (commands := shortest(self.game, self.state, goal, self.seen)) is None:
            if not self.unseen:
                return False
            receptacle = self._next(goal)
            self.unseen.remove(receptacle)
            self._play(visit(self.game, self.state, receptacle))
        self._play(commands)
        return True

    def _next(self, goal: Goal) -> int:
        """The next receptacle that can hold what is missing, or else the next one."""
        found = {self.thing_kinds.get(thing) for thing in self.seen}
        number = self.game.number
        missing = (
            goal.object_type
            if goal.count > 1 or number.get(goal.object_type) not in found
            else goal.target_type
        )
        wanted = number.get(missing or "")
        return next((r for r in self.unseen if (self.kinds[r], wanted) in self.fits), self.unseen[0])

    def _play(self, commands: tuple[str, ...]) -> None:
        for command in commands:
            text = self.game.step(self.state, command) or ""
            self.commands.append(command)
            if "you see" in text:
                shown = {self.named[name] for name in _NAME.findall(text) if name in self.named}
                shut = {r for (r,) in self.game.true_facts(self.state, "openable")}
                shut -= {r for (r,) in self.game.true_facts(self.state, "opened")}
                self.unseen = [r for r in self.unseen if r not in shown or r in shut]
                self.seen |= shown & set(self.thing_kinds)
