"""The expert: a shortest plan for the six families of goals, with full knowledge of the state.

A goal names a class of object, a class of receptacle and at most one treatment, so a plan is a fixed sequence
of errands (fetch, treat, put; twice for two objects; fetch and switch on for a lamp). All choices of object,
appliance and receptacle are tried and the shortest plan is kept; ties go to the first in the order of ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import permutations, product

from bipace.envs.alfworld.engine import Game, State
from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.goals import FAMILIES, TREATMENTS, Goal, goal_of
from bipace.envs.alfworld.relations import Row

__all__ = ["FAMILIES", "Goal", "goal_of", "pairs", "plan", "shortest", "visit"]

_PREDICATES = (
    "atlocation", "holds", "opened", "openable", "receptacleatlocation", "inreceptacle", "pickupable",
    "objecttype",
    "receptacletype", "cancontain", "istoggled", *TREATMENTS, *(able for _, _, able,
    _ in TREATMENTS.values()),
)  # fmt: skip


def pairs(rows: Iterable[Row]) -> dict[int, int]:
    """Facts of two arguments as a table from the first to the second."""
    return {row[0]: row[1] for row in rows}


class _Situation:
    """The facts a plan depends on, as plain dictionaries; where a thing outside `known` lies is left out."""

    def __init__(self, game: Game, state: State, known: Collection[int] | None = None) -> None:
        facts = {name: game.true_facts(state, name) for name in _PREDICATES}
        if len(facts["atlocation"]) != 1:
            raise GameFileError("predicate 'atlocation': the expert needs to know where the agent is")
        self.game, self.state, self.facts = game, state, facts
        self.agent, self.place = facts["atlocation"][0]
        self.held = next((thing for _, thing in facts["holds"]), None)
        self.opened = {r for (r,) in facts["opened"]}
        self.closed = {r for (r,) in facts["openable"]} - self.opened
        self.location = pairs(facts["receptacleatlocation"])
        # The benchmark places some things in two receptacles at once (a mug on the counter and in the coffee
        # machine).
        self.inside: dict[int, list[int]] = defaultdict(list)
        for thing, r in facts["inreceptacle"]:
            if r in self.location and (known is None or thing in known):
                self.inside[thing].append(r)
        self.pickable = {thing for (thing,) in facts["pickupable"]}
        self.kind = pairs(facts["objecttype"])
        self.receptacle_kind = pairs(facts["receptacletype"])
        self.fits = set(facts["cancontain"])

    def sources(self, thing: int) -> list[int | None]:
        """Receptacles from which a thing can be taken; [None] for the thing in the hand."""
        if thing == self.held:
            return [None]
        return list(self.inside[thing]) if thing in self.pickable else []

    def of_type(self, table: dict[int, int], names: Iterable[str | None]) -> list[int]:
        wanted = {self.game.number.get(name or "") for name in names}
        return [entity for entity, kind in sorted(table.items()) if kind in wanted]

    def places_for(self, thing: int) -> list[int]:
        kind = self.kind.get(thing)
        return [
            r
            for r, rt in sorted(self.receptacle_kind.items())
            if (rt, kind) in self.fits and r in self.location
        ]


class _Plan:
    """A plan under construction: where the agent is, what is open, what has been done."""

    def __init__(self, situation: _Situation) -> None:
        self.s, self.place, self.opened = situation, situation.place, set(situation.opened)
        self.steps: list[tuple[str, dict[str, int]]] = []

    def do(self, action: str, **args: int) -> None:
        self.steps.append((action, {"a": self.s.agent, "l": self.place, **args}))

    def go(self, receptacle: int) -> None:
        there = self.s.location[receptacle]
        if there != self.place:
            self.do("gotolocation", lstart=self.place, lend=there, r=receptacle)
            self.place = there

    def open(self, receptacle: int) -> None:
        if receptacle in self.s.closed and receptacle not in self.opened:
            self.do("openobject", r=receptacle)
            self.opened.add(receptacle)

    def fetch(self, thing: int, receptacle: int | None) -> None:
        if receptacle is None:
            return
        self.go(receptacle)
        self.open(receptacle)
        self.do("pickupobject", o=thing, r=receptacle)

    def put(self, thing: int, receptacle: int) -> None:
        self.go(receptacle)
        self.open(receptacle)
        self.do(
            "putobject", o=thing, r=receptacle, ot=self.s.kind[thing], rt=self.s.receptacle_kind[receptacle]
        )

    def commands(self) -> tuple[str, ...]:
        actions = {action.schema.name: action for action in self.s.game.actions}
        result = []
        for name, bound in self.steps:
            action = actions.get(name)
            if (
                action is None
                or not {parameter.strip("?") for parameter in action.parameters} <= bound.keys()
            ):
                raise GameFileError(
                    f"action '{name}': the expert needs it with the benchmark's own parameters"
                )
            args: Row = tuple(bound[parameter.strip("?")] for parameter in action.parameters)
            result.append(action.template(self.s.state.tables, args))
        return tuple(result)


def _with_free_hand(situation: _Situation, wanted: tuple[int, ...]) -> Iterator[_Plan]:
    """Plans that begin by putting away what is in the hand, unless it is wanted first."""
    held = situation.held
    if held is None or wanted[:1] == (held,):
        yield _Plan(situation)
        return
    for receptacle in situation.places_for(held):
        plan = _Plan(situation)
        plan.put(held, receptacle)
        yield plan


def _placements(situation: _Situation, goal: Goal) -> Iterator[_Plan]:
    things = situation.of_type(situation.kind, [goal.object_type])
    for target in situation.of_type(situation.receptacle_kind, [goal.target_type]):
        if target not in situation.location:
            continue
        there = [thing for thing in things if target in situation.inside[thing]]
        missing = max(goal.count - len(there), 0)
        movable = [thing for thing in things if thing not in there and target in situation.places_for(thing)]
        for chosen in permutations(movable, missing):
            for sources in product(*map(situation.sources, chosen)):
                for plan in _with_free_hand(situation, chosen):
                    for thing, source in zip(chosen, sources, strict=True):
                        plan.fetch(thing, source)
                        plan.put(thing, target)
                    yield plan


def _treated(situation: _Situation, goal: Goal, treatment: str) -> Iterator[_Plan]:
    _, action, able, appliances = TREATMENTS[treatment]
    done = {thing for (thing,) in situation.facts[treatment]}
    treatable = {thing for (thing,) in situation.facts[able]}
    things = [t for t in situation.of_type(situation.kind, [goal.object_type]) if t in treatable]
    targets = [
        r for r in situation.of_type(situation.receptacle_kind, [goal.target_type]) if r in situation.location
    ]
    machines = [
        r for r in situation.of_type(situation.receptacle_kind, appliances) if r in situation.location
    ]
    for thing, target in product(things, targets):
        if thing in done and target in situation.inside[thing]:
            yield _Plan(situation)
            continue
        for source, machine in product(situation.sources(thing), [None] if thing in done else machines):
            stays = target in situation.inside[thing] and target != source
            if not stays and target not in situation.places_for(thing):
                continue
            for plan in _with_free_hand(situation, (thing,)):
                plan.fetch(thing, source)
                if machine is not None:
                    plan.go(machine)
                    plan.do(action, o=thing, r=machine)
                if not stays:
                    plan.put(thing, target)
                yield plan


def _under_lamp(situation: _Situation, goal: Goal) -> Iterator[_Plan]:
    toggled = {thing for (thing,) in situation.facts["istoggled"]}
    lamps = [
        (t, r) for t in situation.of_type(situation.kind, [goal.target_type]) for r in situation.inside[t]
    ]
    things = situation.of_type(situation.kind, [goal.object_type])
    for thing, (lamp, at) in product(things, lamps):
        for source in situation.sources(thing):
            for plan in _with_free_hand(situation, (thing,)):
                plan.fetch(thing, source)
                plan.go(at)
                if lamp not in toggled:
                    plan.do("toggleobject", o=lamp, r=at)
                yield plan


def _held(situation: _Situation, goal: Goal) -> Iterator[_Plan]:
    for thing in situation.of_type(situation.kind, [goal.object_type]):
        for source in situation.sources(thing):
            for plan in _with_free_hand(situation, (thing,)):
                plan.fetch(thing, source)
                yield plan


def plan(game: Game, state: State | None = None) -> tuple[str, ...] | None:
    """A shortest plan from `state` (default: the initial one); None when these errands cannot reach the goal.

    Raises:
        GameFileError: the goal is not of the six families.
    """
    return shortest(game, state or game.start, goal_of(game))


def shortest(
    game: Game, state: State, goal: Goal, known: Collection[int] | None = None
) -> tuple[str, ...] | None:
    """A shortest plan for a goal from a state; None when there is none.

    Args:
        game: the game.
        state: where the plan begins.
        goal: the game's own, or a part of it.
        known: things whose place may be used; default: all.
    """
    situation = _Situation(game, state, known)
    if goal.target_type is None:
        plans = _held(situation, goal)
    elif goal.family == "look_at_obj_in_light":
        plans = _under_lamp(situation, goal)
    elif goal.treatment:
        plans = _treated(situation, goal, goal.treatment)
    else:
        plans = _placements(situation, goal)
    best = min(plans, key=lambda candidate: len(candidate.steps), default=None)
    return best.commands() if best else None


def visit(game: Game, state: State, receptacle: int) -> tuple[str, ...]:
    """Commands that show what is in a receptacle."""
    plan = _Plan(_Situation(game, state))
    plan.go(receptacle)
    plan.open(receptacle)
    if not plan.steps:
        plan.do("examinereceptacle", r=receptacle)
    return plan.commands()
