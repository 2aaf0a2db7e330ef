"""Actions of one game: which ground instances apply, how they are commanded and answered, what they change.

An instance is applicable exactly when the planner behind the stock stack has an applicable operator for it.
The planner drops operators whose every effect is among their own preconditions, such as going where one
already is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bipace.envs.alfworld import pddl
from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.grammar import parse_query, parse_symbols
from bipace.envs.alfworld.relations import Query, Row, Tables
from bipace.envs.alfworld.rendering import Renderer

if TYPE_CHECKING:
    from bipace.envs.alfworld.engine import Game

__all__ = ["Commands", "CompiledAction", "CompiledEffect"]

Commands = Mapping[str, tuple["CompiledAction", Row]]


class CompiledEffect(NamedTuple):
    """A fact that an action makes true or false, when the guard (if any) holds before the action."""

    guard: Query | None
    predicate: str
    positive: bool
    constants: Row
    places: tuple[int, ...]

    def is_due(self, tables: Tables, args: Row) -> bool:
        """Whether the effect takes place."""
        return self.guard is None or bool(self.guard.rows(tables, args + self.constants))

    def fact(self, args: Row) -> Row:
        """The fact itself."""
        row = args + self.constants
        return tuple([row[i] for i in self.places])


class CompiledAction:
    """One action schema of one game: which ground instances apply, their commands, effects and feedback."""

    def __init__(self, game: Game, schema: pddl.Action, renderer: Renderer) -> None:
        self.schema = schema
        self.parameters = tuple(name for name, _ in schema.parameters)
        where = f"action '{schema.name}'"
        text = game.grammar.actions.get(schema.name)
        if text is None:
            raise GameFileError(f"{where}: the grammar has no template and feedback for it")
        self.queries = [game.conjunction(part, schema.parameters, where) for part in schema.precondition]
        scope = {f"{name.strip('?')}:{kind}": slot for slot, (name, kind) in enumerate(schema.parameters)}
        self.template = renderer.text(text.template, scope, f"template of {where}")
        self.feedback = renderer.text(text.feedback, scope, f"feedback of {where}")
        self.effects = [self._effect(game, effect) for effect in schema.effects]
        # A template that reads what changes gives different commands in different states: nothing is
        # remembered.
        symbols = parse_symbols(text.template)
        asked = {x.predicate.removeprefix("not_") for s in symbols if s.query for x in parse_query(s.query)}
        self.fixed = not asked & game.fluents and all(symbol.kind != "rule" for symbol in symbols)
        conditions = frozenset().union(*(query.predicates for query, _ in self.queries))
        self.reads = conditions & game.fluents if self.fixed else frozenset(game.fluents)
        literals = [literal for part in schema.precondition for literal in part.literals]
        _, self.constants = game.slots((), [*literals, *(effect.literal for effect in schema.effects)])
        self.number = game.number
        self.idle_when_distinct = self._covers(self.parameters)
        self.known: dict[Row, str] = {}
        self.memo: dict[Any, Commands] | None = {} if self.fixed and self.reads <= game.singletons else None
        memoised = sorted(self.reads) if self.memo is not None else []
        self.memo_tables = [
            game.layout.table(name, (), len(game.domain.predicates[name])) for name in memoised
        ]

    def _effect(self, game: Game, effect: pddl.Effect) -> CompiledEffect:
        slots, constants = game.slots(self.parameters, [effect.literal, *effect.condition])
        where = f"effect of action '{self.schema.name}'"
        guard = game.join(effect.condition, slots, where) if effect.condition else None
        places = [slots[arg] for arg in effect.literal.args]
        return CompiledEffect(
            guard, effect.literal.predicate, effect.literal.positive, constants, tuple(places)
        )

    def is_idle(self, args: Row) -> bool:
        """Whether every effect of this instance is among its preconditions; the planner drops such operators.

        Instances with pairwise different arguments are all alike in this, so only the others are looked at.
        """
        row = args + self.constants
        return self.idle_when_distinct if len(set(row)) == len(row) else self._covers(args)

    def _covers(self, args: Sequence[Any]) -> bool:
        named = dict(zip(self.parameters, args, strict=True))

        def ground(literal: pddl.Literal) -> tuple[str, tuple[Any, ...], bool]:
            return (
                literal.predicate,
                tuple(named.get(arg, self.number.get(arg, arg)) for arg in literal.args),
                literal.positive,
            )

        effects = {ground(effect.literal) for effect in self.schema.effects}
        effects = {e for e in effects if e[2] or (e[0], e[1], True) not in effects}
        return any(
            effects <= {ground(literal) for literal in part.literals} for part in self.schema.precondition
        )

    def commands(self, tables: Tables) -> Commands:
        """Command -> (this action, arguments), for every instance that applies."""
        if self.memo is None:
            return self._find(tables)
        key = tuple(tables[number].get(()) for number in self.memo_tables)
        if key not in self.memo:
            self.memo[key] = self._find(tables)
        return self.memo[key]

    def _find(self, tables: Tables) -> Commands:
        found: dict[str, tuple[CompiledAction, Row]] = {}
        known = self.known if self.fixed else {}
        for query, (start, project) in self.queries:
            for row in query.rows(tables, start):
                args = project(row)
                if args not in known:
                    known[args] = "" if self.is_idle(args) else self.template(tables, args)
                command = known[args]
                if command:
                    found.setdefault(command, (self, args))
        return found
