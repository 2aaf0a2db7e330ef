"""Facts kept in indexed tables, and conjunctive queries over them.

Entities are integers, numbered in the order of their ids, so sorting integers sorts ids. A table holds the
facts of one predicate keyed by the arguments that a query already knows; its values are sorted tuples of the
other arguments. Queries are compiled once per game to a few list comprehensions over partial rows, so that a
step of the game costs some dictionary look-ups and no search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from bipace.envs.alfworld.pddl import Literal

__all__ = ["Layout", "Query", "Row", "Table", "Tables", "add_fact", "discard_fact", "join", "planned"]

Row = tuple[int, ...]
Table = dict[Any, tuple[Row, ...]]
Tables = list[Table]
_Step = Callable[[Tables, list[Row]], list[Row]]


def _picker(positions: Sequence[int]) -> Callable[[Row], Any]:
    """Key of a row: the value itself for one position, a tuple for more, the empty tuple for none."""
    return itemgetter(*positions) if positions else lambda _row: ()


def _rest(positions: Sequence[int]) -> Callable[[Row], Row]:
    """The values at `positions`, always a tuple."""
    if len(positions) == 1:
        only = positions[0]
        return lambda row: (row[only],)
    return itemgetter(*positions) if positions else lambda _row: ()


@dataclass
class Layout:
    """Which tables a game needs: one per predicate and set of known argument positions."""

    numbers: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    access: dict[str, list[tuple[int, Callable[[Row], Any], Callable[[Row], Row]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def table(self, predicate: str, known: tuple[int, ...], arity: int) -> int:
        """Number of the table of `predicate` keyed by the argument positions `known`."""
        if (predicate, known) not in self.numbers:
            self.numbers[predicate, known] = len(self.numbers)
            unknown = [i for i in range(arity) if i not in known]
            self.access[predicate].append((self.numbers[predicate, known], _picker(known), _rest(unknown)))
        return self.numbers[predicate, known]

    def build(self, facts: Mapping[str, Iterable[Row]]) -> Tables:
        """Fill every table of this layout."""
        tables: Tables = [{} for _ in self.numbers]
        for predicate, access in self.access.items():
            rows = sorted(set(facts.get(predicate, ())))
            for number, key, rest in access:
                grouped: dict[Any, list[Row]] = defaultdict(list)
                for row in rows:
                    grouped[key(row)].append(rest(row))
                tables[number] = {k: tuple(v) for k, v in grouped.items()}
        return tables


def add_fact(layout: Layout, tables: Tables, predicate: str, fact: Row) -> None:
    """Make a fact true in every table of its predicate; nothing happens when it is true already."""
    for number, key, rest in layout.access[predicate]:
        table, at, value = tables[number], key(fact), rest(fact)
        old = table.get(at, ())
        if value in old:
            return
        table[at] = tuple(sorted((*old, value)))


def discard_fact(layout: Layout, tables: Tables, predicate: str, fact: Row) -> None:
    """Make a fact false in every table of its predicate; nothing happens when it is false already."""
    for number, key, rest in layout.access[predicate]:
        table, at, value = tables[number], key(fact), rest(fact)
        old = table.get(at, ())
        if value not in old:
            return
        if len(old) == 1:
            del table[at]
        else:
            table[at] = tuple(row for row in old if row != value)


@dataclass(frozen=True, slots=True)
class Query:
    """A compiled conjunction. `slots` says where in a result row each variable (and constant) stands."""

    steps: tuple[_Step, ...]
    slots: Mapping[Any, int]
    predicates: frozenset[str]

    def rows(self, tables: Tables, row: Row) -> list[Row]:
        """All extensions of `row` that satisfy the conjunction, in the order of loops over sorted facts."""
        rows = [row]
        for step in self.steps:
            rows = step(tables, rows)
            if not rows:
                break
        return rows


def _expand(number: int, key: Callable[[Row], Any], distinct: bool) -> _Step:
    if distinct:
        return lambda tables, rows: [
            row + new for row in rows for new in tables[number].get(key(row), ()) if not set(new) & set(row)
        ]
    return lambda tables, rows: [row + new for row in rows for new in tables[number].get(key(row), ())]


def _check(number: int, key: Callable[[Row], Any], positive: bool) -> _Step:
    if positive:
        return lambda tables, rows: [row for row in rows if key(row) in tables[number]]
    return lambda tables, rows: [row for row in rows if key(row) not in tables[number]]


def _compare(left: int, right: int, equal: bool) -> _Step:
    return lambda _tables, rows: [row for row in rows if (row[left] == row[right]) is equal]


def join(
    literals: Sequence[Literal], slots: Mapping[Any, int], layout: Layout, distinct: bool = False
) -> Query:
    """Compile literals, in the order given, starting from rows whose `slots` are filled.

    Args:
        literals: positive ones may bind new arguments; negative ones and equalities need theirs bound.
        slots: position in the row of each argument that is known from the start.
        layout: registers the tables needed.
        distinct: different arguments must stand for different entities (the rule of the benchmark's text
            grammar).
    """
    slots = dict(slots)
    width = max(slots.values(), default=-1) + 1
    steps: list[_Step] = []
    for literal in literals:
        arity = len(literal.args)
        if literal.predicate == "=":
            steps.append(_compare(slots[literal.args[0]], slots[literal.args[1]], literal.positive))
            continue
        known = tuple(i for i, arg in enumerate(literal.args) if arg in slots)
        new = [arg for arg in literal.args if arg not in slots]
        if len(set(new)) != len(new) or (new and not literal.positive):
            raise ValueError(f"unsupported use of predicate '{literal.predicate}'")
        key = _picker([slots[literal.args[i]] for i in known])
        number = layout.table(literal.predicate, known, arity)
        steps.append(_expand(number, key, distinct) if new else _check(number, key, literal.positive))
        for arg in new:
            slots[arg] = width
            width += 1
    return Query(tuple(steps), slots, frozenset(literal.predicate for literal in literals))


def planned(
    literals: Iterable[Literal], bound: Iterable[str], types: Mapping[str, str], sizes: Mapping[str, int]
) -> list[Literal]:
    """The literals in an order that keeps intermediate results small.

    Checks come first; then literals about the agent, of which there is one; then those with the fewest
    unknown and the most known arguments; then predicates with few facts. Ties keep the order of the file.

    Args:
        literals: a conjunction.
        bound: arguments that are known from the start.
        types: type of each variable.
        sizes: number of facts of each predicate at the start of the game.
    """
    left, known, order = list(literals), set(bound), []

    def cost(literal: Literal) -> tuple[bool, bool, int, int, int]:
        unknown = sum(arg not in known for arg in literal.args)
        waits = unknown > 0 and (not literal.positive or literal.predicate == "=")
        about_agent = any(
            types.get(arg) == "agent" for arg in literal.args
        ) and not literal.predicate.startswith("type@")
        return (
            waits,
            unknown > 0 and not about_agent,
            unknown,
            unknown - len(literal.args),
            sizes.get(literal.predicate, 0),
        )

    while left:
        best = min(left, key=cost)
        left.remove(best)
        order.append(best)
        known |= set(best.args)
    return order
