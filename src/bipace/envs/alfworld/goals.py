"""What a game asks for: one of six families of goals, read from the goal's conditions."""

from __future__ import annotations

from dataclasses import dataclass

from bipace.envs.alfworld.engine import Game
from bipace.envs.alfworld.errors import GameFileError

__all__ = ["FAMILIES", "TREATMENTS", "Goal", "goal_of"]

FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
# goal predicate -> family, action, property that allows it, classes of receptacle that do it
TREATMENTS = {
    "isclean": ("pick_clean_then_place_in_recep", "cleanobject", "cleanable", ("sinktype", "sinkbasintype")),
    "ishot": ("pick_heat_then_place_in_recep", "heatobject", "heatable", ("microwavetype",)),
    "iscool": ("pick_cool_then_place_in_recep", "coolobject", "coolable", ("fridgetype",)),
}


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked: `count` objects of a class in one receptacle of a class, or one held under a lamp.

    Without a target one object has to be held, no more.
    """

    family: str
    object_type: str
    target_type: str | None
    treatment: str | None = None
    count: int = 1


def goal_of(game: Game) -> Goal:
    """Read the goal. Raises GameFileError when it is not of the six families."""
    if len(game.problem.goal) != 1:
        raise GameFileError("goal: not one of the six families")
    literals = game.problem.goal[0].literals
    kinds = {x.args[0]: x.args[1] for x in literals if x.predicate in ("objecttype", "receptacletype")}
    placed = [x.args for x in literals if x.predicate == "inreceptacle"]
    held = [x.args[1] for x in literals if x.predicate == "holds"]
    treatments = [x.predicate for x in literals if x.predicate in TREATMENTS]
    lamps = [x.args[0] for x in literals if x.predicate == "istoggled"]
    try:
        if lamps and held:
            return Goal("look_at_obj_in_light", kinds[held[0]], kinds[lamps[0]])
        thing, target = kinds[placed[0][0]], kinds[placed[0][1]]
    except (IndexError, KeyError) as error:
        raise GameFileError("goal: not one of the six families") from error
    if treatments:
        return Goal(TREATMENTS[treatments[0]][0], thing, target, treatments[0])
    if len(placed) == 2:
        return Goal("pick_two_obj_and_place", thing, target, count=2)
    return Goal("pick_and_place_simple", thing, target)
