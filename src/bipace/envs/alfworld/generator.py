"""Make games offline, in the official file format: six families, seeded, each with a plan that solves it.

Rooms (receptacles and classes of objects of 120 scenes), what fits where and what can be done to what are
read from `data/tables.json`, derived from the alfworld wheel (MIT); domain and grammar are the wheel's own
files. Where an object lies is drawn uniformly from the places that can hold it, with closed places less
likely, as in the benchmark; objects of the goal's class never begin where they have to go. Unlike in the
benchmark nothing begins cool.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from bipace.envs.alfworld.engine import Game
from bipace.envs.alfworld.planner import FAMILIES, plan

__all__ = ["MAX_COPIES", "MOST_RECEPTACLES", "generate", "generate_game"]

MAX_COPIES = 3
MOST_RECEPTACLES = 20  # of a small room
_OPENABLE = ("Cabinet", "Drawer", "Fridge", "Microwave", "Safe")
_MOVABLE = ("Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot")
_CLOSED_WEIGHT = 0.5
_SHARED_SPOT = 0.12
# Classes that the domain's actions name.
_RTYPES = ("FridgeType", "MicrowaveType", "SinkBasinType", "SinkType")
_OTYPES = ("ButterKnifeType", "KnifeType")
_KINDS = {
    "pick_and_place_simple": ("kitchen", "living room", "bedroom", "bathroom"),
    "look_at_obj_in_light": ("living room", "bedroom"),
    "pick_clean_then_place_in_recep": ("kitchen", "bathroom"),
    "pick_heat_then_place_in_recep": ("kitchen",),
    "pick_cool_then_place_in_recep": ("kitchen",),
    "pick_two_obj_and_place": ("kitchen", "living room", "bedroom", "bathroom"),
}
_WORDS = {
    "pick_and_place_simple": ("put a {obj} in {recep}", "put some {obj} on {recep}"),
    "look_at_obj_in_light": ("look at {obj} under the {recep}", "examine the {obj} with the {recep}"),
    "pick_clean_then_place_in_recep": (
        "put a clean {obj} in {recep}",
        "clean some {obj} and put it in {recep}",
    ),
    "pick_heat_then_place_in_recep": ("put a hot {obj} in {recep}", "heat some {obj} and put it in {recep}"),
    "pick_cool_then_place_in_recep": ("put a cool {obj} in {recep}", "cool some {obj} and put it in {recep}"),
    "pick_two_obj_and_place": ("put two {obj} in {recep}", "find two {obj} and put them in {recep}"),
}
# family -> property of the object, goal predicate, receptacle that does it
_TREATED = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot", "Microwave"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool", "Fridge"),
}
_LAMP_PLACES = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable", "DiningTable")
_OLDER = (
    ("You arrive at {r.name}.", "You arrive at {lend.name}."),
    ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
    ('"move {o} to {r}"', '"put {o} in/on {r}"'),
)


@lru_cache(maxsize=1)
def _data() -> tuple[dict[str, Any], str, str]:
    folder = files("bipace.envs.alfworld") / "data"
    tables, domain, grammar = (
        (folder / name).read_text(encoding="utf-8") for name in ("tables.json", "alfred.pddl", "alfred.twl2")
    )
    return json.loads(tables), domain, grammar


def _id(kind: str, rng: random.Random) -> str:
    """An id of the benchmark's form, with random coordinates.

    A basin's id ends in its class, as the names need it.
    """
    numbers = [f"{'_plus_' if rng.random() < 0.5 else '_minus_'}{rng.random() * 4:05.2f}" for _ in range(3)]
    at = "_bar_".join(number.replace(".", "_dot_") for number in numbers)
    if kind.endswith("Basin"):
        return f"{kind.removesuffix('Basin')}_bar_{at}_bar_{kind}"
    return f"{kind}_bar_{at}"


class _Room:
    """Receptacles with their spots, and what lies in them."""

    def __init__(
        self, table: Mapping[str, Any], fits: Mapping[str, Sequence[str]], rng: random.Random
    ) -> None:
        self.rng, self.fits = rng, fits
        self.receptacles: dict[str, str] = {}
        self.spot: dict[str, str] = {}
        self.inside: dict[str, tuple[str, str]] = {}
        for kind, count in table["receptacles"].items():
            last = None
            for _ in range(count):
                name = _id(kind, rng)
                self.receptacles[name] = kind
                self.spot[name] = last if last and rng.random() < _SHARED_SPOT else self._spot()
                last = self.spot[name]
        self.start = self._spot()

    def _spot(self) -> str:
        while True:
            x, y = (self.rng.randrange(-12, 13) for _ in range(2))
            turn, tilt = self.rng.randrange(4), self.rng.choice((15, 30, 45, 60))
            parts = [f"_minus_{-n}" if n < 0 else str(n) for n in (x, y, turn, tilt)]
            spot = "_bar_".join(("loc", *parts))
            if spot not in self.spot.values():
                return spot

    def places(self, kind: str, but_not: str | None = None) -> list[str]:
        """Receptacles that can hold an object of this class."""
        allowed = (
            _LAMP_PLACES if kind == "DeskLamp" else [r for r, things in self.fits.items() if kind in things]
        )
        return [name for name, r in self.receptacles.items() if r in allowed and r != but_not]

    def place(self, kind: str, count: int, but_not: str | None = None) -> int:
        """Put `count` objects of a class somewhere; how many found a place."""
        places = self.places(kind, but_not)
        if not places:
            return 0
        weights = [_CLOSED_WEIGHT if self.receptacles[name] in _OPENABLE else 1.0 for name in places]
        for _ in range(count):
            self.inside[_id(kind, self.rng)] = (kind, self.rng.choices(places, weights)[0])
        return count


def _choices(
    family: str, room: _Room, present: Sequence[str], able: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Pairs (class of object, class of target) that make a sensible goal in this room."""
    kinds = sorted(set(room.receptacles.values()))
    wanted, _, machine = _TREATED.get(family, ("", "", ""))
    if machine and machine not in kinds:
        return
    for thing in present:
        if wanted and thing not in able[wanted]:
            continue
        if family == "look_at_obj_in_light":
            if "DeskLamp" in present and room.places("DeskLamp") and thing != "DeskLamp":
                yield thing, "DeskLamp"
            continue
        for target in kinds:
            if thing in room.fits[target] and target != machine and room.places(thing, but_not=target):
                yield thing, target


def _goal(family: str, thing: str, target: str) -> str:
    if family == "look_at_obj_in_light":
        lit = f"(and (objectType ?ot {target}Type) (toggleable ?ot) (isToggled ?ot) "
        lit += "(receptacleAtLocation ?r ?l)"
        return f"""(exists (?ot - object ?r - receptacle ?a - agent ?l - location)
                {lit}
                     (atLocation ?a ?l) (inReceptacle ?ot ?r)))
            (exists (?o - object ?a - agent) (and (objectType ?o {thing}Type) (holds ?a ?o)))"""
    if family == "pick_two_obj_and_place":
        return f"""(exists (?r - receptacle) (exists (?o1 - object)
                (and (objectType ?o1 {thing}Type) (receptacleType ?r {target}Type) (inReceptacle ?o1 ?r)
                     (exists (?o2 - object)
                        (and (not (= ?o1 ?o2)) (objectType ?o2 {thing}Type) (receptacleType ?r {target}Type)
                             (inReceptacle ?o2 ?r))))))"""
    able, done, _ = _TREATED.get(family, ("", "", ""))
    extra = f"({able} ?o) ({done} ?o) " if able else ""
    kinds = f"(objectType ?o {thing}Type) (receptacleType ?r {target}Type)"
    return f"""(exists (?r - receptacle) (exists (?o - object)
                (and {extra}(inReceptacle ?o ?r) {kinds})))"""


def _facts(room: _Room, able: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "(= (total-cost) 0)"
    yield f"(atLocation agent1 {room.start})"
    rtypes = sorted(set(room.receptacles.values()))
    otypes = sorted({kind for kind, _ in room.inside.values()})
    for name, kind in room.receptacles.items():
        yield f"(receptacleType {name} {kind}Type)"
        yield f"(receptacleAtLocation {name} {room.spot[name]})"
        if kind in _OPENABLE:
            yield f"(openable {name})"
    for r in rtypes:
        yield from (f"(canContain {r}Type {o}Type)" for o in otypes if o in room.fits[r])
    for name, (kind, receptacle) in room.inside.items():
        yield f"(objectType {name} {kind}Type)"
        yield f"(inReceptacle {name} {receptacle})"
        yield f"(objectAtLocation {name} {room.spot[receptacle]})"
        if kind not in able["toggleable"]:
            yield f"(pickupable {name})"
        if kind in _MOVABLE:
            yield f"(isReceptacleObject {name})"
        yield from (f"({ability} {name})" for ability in sorted(able) if kind in able[ability])


def _problem(room: _Room, able: Mapping[str, Sequence[str]], name: str, goal: str) -> str:
    rtypes = sorted({*_RTYPES, *(f"{kind}Type" for kind in room.receptacles.values())})
    otypes = sorted({*_OTYPES, *(f"{kind}Type" for kind, _ in room.inside.values())})
    objects = [
        "agent1 - agent",
        *(f"{kind} - rtype" for kind in rtypes),
        *(f"{kind} - otype" for kind in otypes),
        *(f"{spot} - location" for spot in sorted({room.start, *room.spot.values()})),
        *(f"{thing} - object" for thing in room.inside),
        *(f"{receptacle} - receptacle" for receptacle in room.receptacles),
    ]
    facts = "\n        ".join(_facts(room, able))
    return (
        f"(define (problem {name})\n    (:domain alfred)\n    (:objects\n        "
        + "\n        ".join(objects)
        + f"\n    )\n    (:init\n        {facts}\n    )\n"
        + f"    (:goal\n        (and\n            {goal}\n        )\n    )\n)\n"
    )


def _rooms(family: str, held_out: bool, small: bool) -> list[dict[str, Any]]:
    rooms = [
        room for kind in _KINDS[family] for room in _data()[0]["rooms"][kind] if room["held_out"] == held_out
    ]
    return [room for room in rooms if not small or sum(room["receptacles"].values()) <= MOST_RECEPTACLES]


def _attempt(
    family: str, rooms: Sequence[dict[str, Any]], name: str, rng: random.Random
) -> tuple[str, str] | None:
    """Problem and task in words, or None when the room drawn has no goal of the family."""
    tables, _, _ = _data()
    able = tables["able"]
    table = rng.choice(rooms)
    room = _Room(table, tables["fits"], rng)
    present = [kind for kind in table["objects"] if kind != "FloorLamp" and room.places(kind)]
    choices = list(_choices(family, room, present, able))
    if not choices:
        return None
    # Classes first, then a target: otherwise whatever fits in many places would be asked for most.
    thing = rng.choice(sorted({choice[0] for choice in choices}))
    target = rng.choice([choice[1] for choice in choices if choice[0] == thing])
    least = 2 if family == "pick_two_obj_and_place" else 1
    room.place(thing, rng.randint(least, MAX_COPIES), but_not=target)
    for kind in present:
        if kind != thing:
            room.place(kind, 1 if kind == "DeskLamp" else rng.choice((1, 1, 1, 2, 2, 3)))
    words = rng.choice(_WORDS[family]).format(obj=thing.lower(), recep=target.lower())
    return _problem(room, able, name, _goal(family, thing, target)), words


def generate_game(
    family: str, seed: int, held_out: bool = False, older: bool = False, small: bool = False
) -> tuple[dict[str, Any], Game]:
    """One game: the content of its file, and the compiled game.

    Args:
        family: one of the six of `planner.FAMILIES`.
        seed: any integer; the same arguments give the same game in any process.
        held_out: draw the room from those kept out of training (the benchmark's test and unseen scenes).
        older: write texts and commands of the older form (`put X in/on Y`, `You arrive at loc 4`).
        small: draw the room from those with at most `MOST_RECEPTACLES` receptacles: shorter texts, shorter
            searches.

    Raises:
        ValueError: unknown family.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; expected one of {', '.join(FAMILIES)}")
    rng = random.Random(f"bipace-alfworld-1/{family}/{seed}/{held_out}" + "/small" * small)
    rooms = _rooms(family, held_out, small)
    _, domain, grammar = _data()
    for new, old in _OLDER if older else ():
        grammar = grammar.replace(new, old)
    while True:
        made = _attempt(family, rooms, f"{family}_{seed}".replace("-", "m"), rng)
        if made is None:
            continue
        problem, words = made
        data: dict[str, Any] = {
            "pddl_domain": domain,
            "grammar": grammar.replace("UNKNOWN GOAL", words),
            "pddl_problem": problem,
            "solvable": True,
        }
        game = Game(data)
        walkthrough = plan(game)
        if walkthrough:
            data["walkthrough"] = list(walkthrough)
            game.walkthrough = walkthrough
            return data, game


def generate(
    family: str, seed: int, held_out: bool = False, older: bool = False, small: bool = False
) -> dict[str, Any]:
    """The content of one game file, ready for `json.dump` to a `game.tw-pddl`.

    Arguments as for `generate_game`.
    """
    return generate_game(family, seed, held_out, older, small)[0]
