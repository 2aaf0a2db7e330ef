"""The game itself: compiled from the domain, grammar and problem of one official game file.

`Game` is immutable in play and may be shared by threads; `State` is the part that changes, and copies in
microseconds. A ground action is applicable exactly when the planner behind the stock stack has an operator for it
that is applicable: actions without any effect in their own precondition's terms (going where one is) are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bipace.envs.alfworld import pddl
from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.grammar import Grammar, parse_grammar
from bipace.envs.alfworld.names import display_names
from bipace.envs.alfworld.relations import Layout, Query, Row, Tables, add_fact, discard_fact, join, planned
from bipace.envs.alfworld.rendering import Entities, Renderer

__all__ = ["NOTHING_HAPPENS", "Game", "State", "load_game"]

NOTHING_HAPPENS = "Nothing happens."

Commands = Mapping[str, tuple["CompiledAction", Row]]


class State:
    """What changes in play. `tables` belongs to this state alone; `commands` are per action, never changed in place."""

    __slots__ = ("_admissible", "commands", "tables", "won")

    def __init__(self, tables: Tables, commands: list[Commands], won: bool) -> None:
        self.tables, self.commands, self.won = tables, commands, won
        self._admissible: tuple[str, ...] | None = None

    @property
    def admissible(self) -> tuple[str, ...]:
        """The commands that apply, sorted and without duplicates: the stock order."""
        if self._admissible is None:
            self._admissible = tuple(sorted(set().union(*self.commands)))
        return self._admissible


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
        self.reads = frozenset().union(*(query.predicates for query, _ in self.queries)) & game.fluents
        literals = [literal for part in schema.precondition for literal in part.literals]
        _, self.constants = game.slots((), [*literals, *(effect.literal for effect in schema.effects)])
        self.number = game.number
        self.idle_when_distinct = self._covers(self.parameters)
        self.known: dict[Row, str] = {}
        self.memo: dict[Any, Commands] | None = {} if self.reads <= game.singletons else None
        memoised = sorted(self.reads) if self.memo is not None else []
        self.memo_tables = [game.layout.table(name, (), len(game.domain.predicates[name])) for name in memoised]

    def _effect(self, game: Game, effect: pddl.Effect) -> CompiledEffect:
        slots, constants = game.slots(self.parameters, [effect.literal, *effect.condition])
        where = f"effect of action '{self.schema.name}'"
        guard = game.join(effect.condition, slots, where) if effect.condition else None
        places = [slots[arg] for arg in effect.literal.args]
        return CompiledEffect(guard, effect.literal.predicate, effect.literal.positive, constants, tuple(places))

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
        return any(effects <= {ground(literal) for literal in part.literals} for part in self.schema.precondition)

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
        known = self.known
        for query, (start, project) in self.queries:
            for row in query.rows(tables, start):
                args = project(row)
                if args not in known:
                    known[args] = "" if self.is_idle(args) else self.template(tables, args)
                command = known[args]
                if command:
                    found.setdefault(command, (self, args))
        return found


class Game:
    """One game file, compiled. `walkthrough` is the file's own solution; `task` its goal in words."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        for field in ("pddl_domain", "grammar", "pddl_problem"):
            if not isinstance(data.get(field), str):
                raise GameFileError(f"the field '{field}' is missing or not a text")
        self.domain = pddl.parse_domain(data["pddl_domain"])
        self.problem = pddl.parse_problem(data["pddl_problem"], self.domain)
        self.grammar: Grammar = parse_grammar(data["grammar"])
        self.walkthrough: tuple[str, ...] = tuple(data.get("walkthrough") or ())
        self.fluents = {e.literal.predicate for a in self.domain.actions.values() for e in a.effects}
        self.layout = Layout()
        self._number_entities()
        entities = Entities(self.entities, self.names, self.problem.objects)
        renderer = Renderer(self.grammar, self.domain, self.layout, entities)
        self.actions = [CompiledAction(self, schema, renderer) for schema in self.domain.actions.values()]
        self.intro = renderer.text("#intro#", {}, "grammar rule 'intro'")
        self.goal = [self.conjunction(part, (), "goal") for part in self.problem.goal]
        self._index_changes()
        self.start = self._initial_state()

    def _number_entities(self) -> None:
        self.entities = sorted(self.problem.objects)
        self.number = {entity: i for i, entity in enumerate(self.entities)}
        self.names = display_names({arg for fact in self.problem.facts for arg in fact[1:]})
        self.facts: dict[str, list[Row]] = {}
        for predicate, *args in self.problem.facts:
            self.facts.setdefault(predicate, []).append(tuple(self.number[arg] for arg in args))
        self.sizes = {name: len(rows) for name, rows in self.facts.items()}
        for entity, kind in self.problem.objects.items():
            if kind not in self.domain.types:
                raise GameFileError(f"pddl_problem :objects: '{entity}' has the unknown type '{kind}'")
            for name in self.domain.types:
                if self.domain.is_a(kind, name):
                    self.facts.setdefault(f"type@{name}", []).append((self.number[entity],))
        # Memoised on: predicates with one fact that every action keeps at one (where the agent is).
        self.singletons = {
            name
            for name in self.fluents
            if len(self.facts.get(name, ())) == 1
            and all(
                sum((1 if e.literal.positive else -1) for e in action.effects if e.literal.predicate == name) == 0
                for action in self.domain.actions.values()
            )
        }

    def slots(self, parameters: tuple[str, ...], literals: Any) -> tuple[dict[str, int], Row]:
        """Row positions of the parameters, then of the constants in the literals; and the constants' numbers."""
        names = dict.fromkeys(arg for literal in literals for arg in literal.args if not arg.startswith("?"))
        slots = {name: i for i, name in enumerate((*parameters, *names))}
        return slots, tuple(self.number.get(name, -1) for name in names)

    def join(self, literals: Any, slots: Mapping[str, int], where: str) -> Query:
        """`relations.join` with the error of this package."""
        try:
            return join(literals, slots, self.layout)
        except (KeyError, ValueError) as error:
            raise GameFileError(f"{where}: {error}") from error

    def conjunction(
        self, part: pddl.Conjunction, parameters: tuple[tuple[str, str], ...], where: str
    ) -> tuple[Query, tuple[Row, Callable[[Row], Row]]]:
        """Compile one conjunction; also its start row (constants) and the projection of a result to the parameters."""
        types = {**dict(part.types), **dict(parameters)}
        literals = [*part.literals, *self._type_checks(part, types)]
        slots, constants = self.slots((), literals)
        query = self.join(planned(literals, slots, types, self.sizes), slots, where)
        places = [query.slots[name] for name, _ in parameters]
        if len(places) == 1:
            only = places[0]
            return query, (constants, lambda row: (row[only],))
        return query, (constants, lambda row: tuple([row[i] for i in places]))

    def _type_checks(self, part: pddl.Conjunction, types: Mapping[str, str]) -> Iterator[pddl.Literal]:
        """A check for every variable whose type no positive literal guarantees (facts keep their declared types)."""
        for name, kind in types.items():
            guaranteed = any(
                self.domain.is_a(declared, kind)
                for literal in part.literals
                if literal.positive and literal.predicate != "="
                for arg, declared in zip(literal.args, self.domain.predicates[literal.predicate], strict=True)
                if arg == name
            )
            if not guaranteed:
                yield pddl.Literal(f"type@{kind}", (name,))

    def _index_changes(self) -> None:
        self.goal_reads = {name for query, _ in self.goal for name in query.predicates} & self.fluents
        self.readers = {
            name: [i for i, action in enumerate(self.actions) if name in action.reads] for name in self.fluents
        }
        for name in list(self.fluents):
            arity = len(self.domain.predicates[name])
            if name in self.layout.access:
                self.layout.table(name, tuple(range(arity)), arity)
        negated = {name for name in self.layout.access if name.startswith("not_")}
        self.tracked_negations = {name.removeprefix("not_") for name in negated}
        self.changing = [
            number for name in (*self.fluents, *negated) for number, _, _ in self.layout.access.get(name, ())
        ]

    def _initial_state(self) -> State:
        tables = self.layout.build(self.facts)
        return State(tables, [action.commands(tables) for action in self.actions], self._won(tables))

    def _won(self, tables: Tables) -> bool:
        return any(query.rows(tables, start) for query, (start, _) in self.goal)

    def true_facts(self, state: State, predicate: str) -> list[Row]:
        """The facts of a predicate that hold in `state`, sorted (of a changing predicate: if anything reads it)."""
        if predicate not in self.fluents:
            return sorted(self.facts.get(predicate, ()))
        arity = len(self.domain.predicates[predicate])
        number = self.layout.numbers.get((predicate, tuple(range(arity))))
        if number is None:
            return []
        return sorted((key,) if arity == 1 else key for key in state.tables[number])

    def copy(self, state: State) -> State:
        """An independent copy of a state of this game; facts that never change are shared."""
        tables = state.tables.copy()
        for number in self.changing:
            tables[number] = tables[number].copy()
        copied = State(tables, state.commands.copy(), state.won)
        copied._admissible = state._admissible
        return copied

    def reset(self) -> tuple[str, State]:
        """First observation and a fresh initial state."""
        state = self.copy(self.start)
        return self.intro(state.tables, ()), state

    def step(self, state: State, command: str) -> str | None:
        """Apply a command to `state` in place; the feedback, or None when the command does not apply."""
        command = command.strip()
        for commands in state.commands:
            if command in commands:
                action, args = commands[command]
                break
        else:
            return None
        changed = self._apply(state.tables, action, args)
        if changed:
            for i in sorted({reader for name in changed for reader in self.readers[name]}):
                state.commands[i] = self.actions[i].commands(state.tables)
                state._admissible = None
            if changed & self.goal_reads:
                state.won = self._won(state.tables)
        return action.feedback(state.tables, args)

    def _apply(self, tables: Tables, action: CompiledAction, args: Row) -> set[str]:
        due = [
            (effect.predicate, effect.fact(args), effect.positive)
            for effect in action.effects
            if effect.predicate in self.layout.access and effect.is_due(tables, args)
        ]
        for name, fact, positive in due:
            if not positive:
                discard_fact(self.layout, tables, name, fact)
                if name in self.tracked_negations:
                    add_fact(self.layout, tables, "not_" + name, fact)
        for name, fact, positive in due:
            if positive:
                add_fact(self.layout, tables, name, fact)
                if name in self.tracked_negations:
                    discard_fact(self.layout, tables, "not_" + name, fact)
        return {name for name, _, _ in due}


def load_game(source: str | Path | Mapping[str, Any]) -> Game:
    """The game in an official `game.tw-pddl` file (or its parsed content).

    Raises:
        GameFileError: malformed or unsupported; the message names the file and the predicate, action or rule.
        OSError: the file cannot be read.
    """
    where = "game" if isinstance(source, Mapping) else str(source)
    try:
        data = source if isinstance(source, Mapping) else json.loads(Path(source).read_text(encoding="utf-8"))
        if not isinstance(data, Mapping):
            raise GameFileError("expected a JSON object")
        return Game(data)
    except (GameFileError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise GameFileError(f"{where}: {error}") from error
    except RecursionError as error:
        raise GameFileError(f"{where}: nested too deeply") from error
