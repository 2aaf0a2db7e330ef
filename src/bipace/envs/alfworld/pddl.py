"""Read the PDDL of a game: domain (types, predicates, actions) and problem (objects, facts, goal).

Names are lower case throughout, as in the planner's own reader. A condition is brought into disjunctive
normal form when it is read: a list of conjunctions of literals, existential variables turned into further
variables. The subset is the one that ALFWorld needs: typing, and, or, not, imply, exists, equality,
conditional effects; universal quantifiers, derived predicates and numeric conditions are refused by name.
Action costs are read over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, product
from typing import Any

from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.sexpr import atom, read_form, show, typed_names

__all__ = ["Action", "Conjunction", "Domain", "Effect", "Literal", "Problem", "parse_domain", "parse_problem"]


@dataclass(frozen=True, slots=True)
class Literal:
    """`predicate(args)` or its negation; an argument that begins with "?" is a variable; "=" is equality."""

    predicate: str
    args: tuple[str, ...]
    positive: bool = True


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Literals that hold together, with the type of every variable in them."""

    literals: tuple[Literal, ...]
    types: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """`literal` becomes true when `condition` holds before the action (an empty conjunction always holds)."""

    condition: tuple[Literal, ...]
    literal: Literal


@dataclass(frozen=True, slots=True)
class Action:
    """An action schema; `precondition` is a disjunction (empty: never applicable)."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    precondition: tuple[Conjunction, ...]
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """Types (name -> name of its parent), predicates (name -> type of each argument) and actions."""

    types: dict[str, str]
    predicates: dict[str, tuple[str, ...]]
    actions: dict[str, Action]

    def is_a(self, kind: str, ancestor: str) -> bool:
        """Whether `kind` is `ancestor` or below it; "object" is above every type."""
        while kind != ancestor and kind in self.types and kind != "object":
            kind = self.types[kind]
        return kind == ancestor


@dataclass(frozen=True, slots=True)
class Problem:
    """Objects (name -> type), the facts of the initial state, the goal as a disjunction of conjunctions."""

    objects: dict[str, str]
    facts: tuple[tuple[str, ...], ...]
    goal: tuple[Conjunction, ...]


_OPERANDS = {"not": 1, "imply": 2, "exists": 2, "forall": 2, "when": 2}
_MOST_CONJUNCTIONS = 256


def _head(form: Any, where: str) -> Any:
    """The operator or predicate of a form; operators must have their number of operands."""
    head = form[0] if isinstance(form, list) and form else form
    if isinstance(head, str) and head in _OPERANDS and len(form) != _OPERANDS[head] + 1:
        raise GameFileError(f"{where}: '{head}' takes {_OPERANDS[head]} operands, found {show(form)}")
    return head


class _Conditions:
    """Brings conditions of an action or goal into disjunctive normal form, a fresh name per quantifier."""

    def __init__(self, types: dict[str, str], predicates: dict[str, tuple[str, ...]], where: str) -> None:
        self.types, self.predicates, self.where = types, predicates, where
        self.variables: dict[str, str] = {}
        self.fresh = count(1)

    def literal(self, form: Any, names: dict[str, str], positive: bool) -> Literal:
        """One atom, checked against the predicates of the domain."""
        words = atom(form, self.where)
        name, args = words[0], tuple(names.get(arg, arg) for arg in words[1:])
        arity = 2 if name == "=" else len(self.predicates[name]) if name in self.predicates else None
        if arity is None:
            raise GameFileError(f"{self.where}: unknown or unsupported predicate '{name}' in {show(form)}")
        if len(args) != arity:
            raise GameFileError(
                f"{self.where}: predicate '{name}' takes {arity} arguments, found {show(form)}"
            )
        for arg in args:
            if arg.startswith("?") and arg not in self.variables:
                raise GameFileError(f"{self.where}: unbound variable '{arg}' in {show(form)}")
        return Literal(name, args, positive)

    def normal_form(
        self, form: Any, names: dict[str, str], positive: bool = True
    ) -> list[tuple[Literal, ...]]:
        """Disjunction (list) of conjunctions (tuples)."""
        if form == [] or form == ["and"]:
            return [()] if positive else []
        head = _head(form, self.where)
        if head == "not":
            return self.normal_form(form[1], names, not positive)
        if head == "imply":
            return self.normal_form(["or", ["not", form[1]], form[2]], names, positive)
        if head in ("and", "or"):
            parts = [self.normal_form(part, names, positive) for part in form[1:]]
            if (head == "and") == positive:
                if math.prod(map(len, parts)) > _MOST_CONJUNCTIONS:
                    raise GameFileError(f"{self.where}: too many alternatives in {show(form)}")
                return [tuple(dict.fromkeys(sum(choice, ()))) for choice in product(*parts)]
            return [conjunction for part in parts for conjunction in part]
        if head == "exists" and positive:
            inner = dict(names)
            for name, kind in typed_names(form[1], self.where):
                inner[name] = name if name not in self.variables else f"{name}@{next(self.fresh)}"
                self.variables[inner[name]] = kind
            return self.normal_form(form[2], inner)
        if head in ("exists", "forall"):
            raise GameFileError(
                f"{self.where}: '{head}' is not supported {'here' if positive else 'under not'}: {show(form)}"
            )
        return [(self.literal(form, names, positive),)]

    def conjunctions(self, form: Any) -> tuple[Conjunction, ...]:
        """The normal form with types.

        A conjunction over a type that the domain lacks can never hold and is left out.

        The benchmark's own domain has such a one: `(?l - location, ?r - receptacle)` names the type
        "location,".
        """
        parts = self.normal_form(form, {name: name for name in self.variables})
        result = []
        for literals in parts:
            used = {arg for literal in literals for arg in literal.args}
            types = tuple((name, self.variables[name]) for name in self.variables if name in used)
            if all(kind == "object" or kind in self.types for _, kind in types):
                result.append(Conjunction(literals, types))
        return tuple(result)


def _effects(form: Any, conditions: _Conditions, guard: tuple[Literal, ...] = ()) -> Iterator[Effect]:
    names = {name: name for name in conditions.variables}
    head = _head(form, conditions.where)
    if head == "and":
        for part in form[1:]:
            yield from _effects(part, conditions, guard)
    elif head == "when":
        for literals in conditions.normal_form(form[1], names):
            yield from _effects(form[2], conditions, guard + literals)
    elif head == "not":
        yield Effect(guard, conditions.literal(form[1], names, positive=False))
    elif head == "forall":
        raise GameFileError(f"{conditions.where}: 'forall' effects are not supported: {show(form)}")
    elif head != "increase":
        yield Effect(guard, conditions.literal(form, names, positive=True))


def _action(form: list[Any], types: dict[str, str], predicates: dict[str, tuple[str, ...]]) -> Action:
    if len(form) < 2 or not isinstance(form[1], str):
        raise GameFileError(f"pddl_domain: an action without a name: {show(form)}")
    where = f"action '{form[1]}'"
    parts = (
        dict(zip(form[2::2], form[3::2], strict=False)) if all(isinstance(x, str) for x in form[2::2]) else {}
    )
    if ":effect" not in parts:
        raise GameFileError(f"{where}: no :effect")
    parameters = tuple(typed_names(parts.get(":parameters", []), where))
    conditions = _Conditions(types, predicates, where)
    conditions.variables.update(parameters)
    effects = tuple(_effects(parts[":effect"], conditions))
    return Action(form[1], parameters, conditions.conjunctions(parts.get(":precondition", [])), effects)


def _types(items: list[Any]) -> dict[str, str]:
    types = {"object": "object", **dict(typed_names(items, "pddl_domain :types"))}
    for kind in types:
        above, left = kind, len(types)
        while above != "object" and above in types:
            above, left = types[above], left - 1
            if not left:
                raise GameFileError(f"pddl_domain :types: '{kind}' is below itself")
    return types


@lru_cache(maxsize=64)
def parse_domain(text: str) -> Domain:
    """The domain in `text`. The result is cached and shared: do not change it. Raises GameFileError."""
    types: dict[str, str] = {"object": "object"}
    predicates: dict[str, tuple[str, ...]] = {}
    actions: dict[str, Action] = {}
    for section in read_form(text, "pddl_domain")[1:]:
        head = section[0] if isinstance(section, list) and section else section
        if head == ":types":
            types = _types(section[1:])
        elif head == ":predicates":
            for form in section[1:]:
                if not isinstance(form, list) or not form or not isinstance(form[0], str):
                    raise GameFileError(f"pddl_domain :predicates: cannot read {show(form)}")
                predicates[form[0]] = tuple(
                    kind for _, kind in typed_names(form[1:], f"predicate '{form[0]}'")
                )
        elif head == ":action":
            action = _action(section, types, predicates)
            actions[action.name] = action
        elif head not in (":requirements", ":functions", "domain") and head is not None:
            raise GameFileError(f"pddl_domain: section '{show(head)}' is not supported")
    return Domain(types, predicates, actions)


def parse_problem(text: str, domain: Domain) -> Problem:
    """The problem in `text`, checked against `domain`. Raises GameFileError."""
    parts = [part for part in read_form(text, "pddl_problem")[1:] if isinstance(part, list) and part]
    sections = {part[0]: part[1:] for part in parts if isinstance(part[0], str)}
    for name in (":objects", ":init", ":goal"):
        if name not in sections:
            raise GameFileError(f"pddl_problem: no {name} section")
    objects = dict(typed_names(sections[":objects"], "pddl_problem :objects"))
    arity = {name: len(kinds) for name, kinds in domain.predicates.items()}
    facts = []
    for form in sections[":init"]:
        if isinstance(form, list) and form[:1] == ["="]:
            continue
        name, *args = atom(form, "pddl_problem :init")
        if name not in arity:
            raise GameFileError(f"pddl_problem :init: unknown predicate in {show(form)}")
        if len(args) != arity[name]:
            raise GameFileError(
                f"pddl_problem :init: predicate '{name}' takes {arity[name]} arguments: {show(form)}"
            )
        for arg in args:
            if arg not in objects:
                raise GameFileError(f"pddl_problem :init: '{arg}' in {show(form)} is not among the :objects")
        facts.append((name, *args))
    if len(sections[":goal"]) != 1:
        raise GameFileError(f"pddl_problem :goal: expected one condition, found {len(sections[':goal'])}")
    goal = _Conditions(domain.types, domain.predicates, "goal").conjunctions(sections[":goal"][0])
    return Problem(objects, tuple(facts), goal)
