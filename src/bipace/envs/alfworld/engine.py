"""The game itself: compiled from the domain, grammar and problem of one official game file.

`Game` never changes in play, but for caches that only grow, and may be shared by threads; `State` is the part
that changes, and copies in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bipace.envs.alfworld import pddl
from bipace.envs.alfworld.actions import Commands, CompiledAction
from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.grammar import Grammar, parse_grammar
from bipace.envs.alfworld.names import display_names
from bipace.envs.alfworld.relations import Layout, Query, Row, Tables, add_fact, discard_fact, join, planned
from bipace.envs.alfworld.rendering import Entities, Renderer

__all__ = ["NOTHING_HAPPENS", "Game", "State", "load_game"]

NOTHING_HAPPENS = "Nothing happens."


class State:
    """What changes in play.

    `tables` belongs to this state alone; `commands` are per action, never changed in place.
    """

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


# long: one game's compiled facts and rules; taken apart, every step would look them up in two objects
class Game:
    """One game file, compiled. `walkthrough` is the file's own solution; `task` its goal in words."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        for field in ("pddl_domain", "grammar", "pddl_problem"):
            if not isinstance(data.get(field), str):
                raise GameFileError(f"the field '{field}' is missing or not a text")
        self.domain = pddl.parse_domain(data["pddl_domain"])
        self.problem = pddl.parse_problem(data["pddl_problem"], self.domain)
        self.grammar: Grammar = parse_grammar(data["grammar"])
        solution = data.get("walkthrough") or ()
        if not isinstance(solution, Sequence) or not all(isinstance(command, str) for command in solution):
            raise GameFileError("the field 'walkthrough' is not a list of commands")
        self.walkthrough: tuple[str, ...] = tuple(solution)
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
                sum((1 if e.literal.positive else -1) for e in action.effects if e.literal.predicate == name)
                == 0
                for action in self.domain.actions.values()
            )
        }

    def slots(self, parameters: tuple[str, ...], literals: Any) -> tuple[dict[str, int], Row]:
        """Row positions of the parameters and of the constants in the literals; the constants' numbers."""
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
        """Compile one conjunction; also its start row (constants) and how a result becomes parameters."""
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
        """A check for every variable whose type no positive literal guarantees: facts keep their types."""
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
            name: [i for i, action in enumerate(self.actions) if name in action.reads]
            for name in self.fluents
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
        """The facts of a predicate that hold in `state`, sorted; of a changing one, if anything reads it."""
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
