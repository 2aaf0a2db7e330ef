"""Compile a game's text grammar to closures: (tables, row) -> text.

A *scope* is the set of placeholders ("r:receptacle") that are bound when a rule is used, with their places in
the row. Scopes are known at load, so every query, expression and rule reference is resolved then and nothing
is parsed in play.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.grammar import Grammar, Symbol, parse_query, parse_symbols
from bipace.envs.alfworld.pddl import Domain
from bipace.envs.alfworld.relations import Layout, Query, Row, Tables, join

__all__ = ["Entities", "Render", "Renderer"]

Render = Callable[[Tables, Row], str]
Scope = Mapping[str, int]


class Entities:
    """What expressions may say about an entity: name, id, type, definite and indefinite article."""

    def __init__(self, ids: Sequence[str], names: Mapping[str, str], types: Mapping[str, str]) -> None:
        self.attributes: dict[str, list[str]] = {
            "name": [names.get(entity, entity) for entity in ids],
            "id": list(ids),
            "type": [types[entity] for entity in ids],
            "definite": ["the"] * len(ids),
            "indefinite": ["a"] * len(ids),
        }


class _Memo(dict[int, str]):
    """Text of an expression for each entity, computed when first asked for."""

    def __init__(self, text: Callable[[int], str]) -> None:
        super().__init__()
        self.text = text

    def __missing__(self, entity: int) -> str:
        self[entity] = self.text(entity)
        return self[entity]


class Renderer:
    """Compiles texts of one game. Texts and rules that the game can never use are not looked at.

    Raises GameFileError, naming the rule, for an unknown rule, attribute, predicate or type and for a rule
    that refers to itself.
    """

    def __init__(self, grammar: Grammar, domain: Domain, layout: Layout, entities: Entities) -> None:
        self.grammar, self.domain, self.layout, self.entities = grammar, domain, layout, entities
        self.rules: dict[tuple[str, tuple[tuple[str, int], ...]], Render | None] = {}

    def text(self, rhs: str, scope: Scope, where: str) -> Render:
        """Compile a right-hand side, used where `scope` is bound; `where` names it in errors."""
        return self._sequence(parse_symbols(rhs), scope, where)

    def _sequence(self, symbols: Sequence[Symbol], scope: Scope, where: str) -> Render:
        parts = [self._symbol(symbol, scope, where) for symbol in symbols]
        if len(parts) == 1:
            return parts[0]
        return lambda tables, row: "".join([part(tables, row) for part in parts])

    def _symbol(self, symbol: Symbol, scope: Scope, where: str) -> Render:
        if symbol.kind == "text":
            value = symbol.value
            return lambda _tables, _row: value
        query = self._query(symbol.query, scope, where) if symbol.query else None
        inner = query.slots if query else scope
        one = (
            self._rule(symbol.value, inner)
            if symbol.kind == "rule"
            else self._expression(symbol.value, inner, where)
        )
        if query is None:
            return one
        if not symbol.is_list:
            return lambda tables, row: "".join([one(tables, found) for found in query.rows(tables, row)])
        return self._list(query, one, scope)

    def _list(self, query: Query, one: Render, scope: Scope) -> Render:
        empty, separator, last = (
            self._rule(name, scope) for name in ("list_empty", "list_separator", "list_last_separator")
        )

        def render(tables: Tables, row: Row) -> str:
            items = [one(tables, found) for found in query.rows(tables, row)]
            if not items:
                return empty(tables, row)
            if len(items) == 1:
                return items[0]
            return separator(tables, row).join(items[:-1]) + last(tables, row) + items[-1]

        return render

    def _query(self, text: str, scope: Scope, where: str) -> Query:
        literals = parse_query(text)
        for literal in literals:
            declared = self.domain.predicates.get(literal.predicate.removeprefix("not_"))
            if declared is None or len(declared) != len(literal.args):
                raise GameFileError(f"{where}: unknown predicate or wrong arity in the condition '{text}'")
            for arg in literal.args:
                kind = arg.rpartition(":")[2]
                if kind not in self.domain.types:
                    raise GameFileError(f"{where}: unknown type '{kind}' in the condition '{text}'")
        try:
            return join(literals, scope, self.layout, distinct=True)
        except ValueError as error:
            raise GameFileError(f"{where}: {error} in the condition '{text}'") from error

    def _rule(self, name: str, scope: Scope) -> Render:
        key = (name, tuple(sorted(scope.items())))
        if key in self.rules:
            known = self.rules[key]
            if known is None:
                raise GameFileError(f"grammar rule '{name}' refers to itself")
            return known
        if not self.grammar.rules.get(name):
            raise GameFileError(f"grammar rule '{name}' is used but not defined")
        self.rules[key] = None
        where = f"grammar rule '{name}'"
        alternatives: list[tuple[Query | None, Render]] = []
        for production in self.grammar.rules[name]:
            query = self._query(production.condition, scope, where) if production.condition else None
            alternatives.append((query, self.text(production.rhs, scope, where)))
        self.rules[key] = compiled = _first_applicable(alternatives, where)
        return compiled

    def _expression(self, source: str, scope: Scope, where: str) -> Render:
        """`x`, `x.attribute`, text literals, `+` and `or`."""
        try:
            tree = ast.parse(source.strip(), mode="eval").body
        except SyntaxError as error:
            raise GameFileError(f"{where}: cannot read the expression '{source}'") from error
        places = {name.rpartition(":")[0]: slot for name, slot in scope.items()}
        used = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
        missing = [name for name in used if name not in places]
        if missing:
            raise GameFileError(f"{where}: '{missing[0]}' is not bound in the expression '{source}'")
        value = self._value(tree, f"{where}: unsupported expression '{source}'")
        if len(used) == 1:
            only, slot = used[0], places[used[0]]
            memo = _Memo(lambda entity: value({only: entity}))
            return lambda _tables, row: memo[row[slot]]
        return lambda _tables, row: value({name: row[places[name]] for name in used})

    def _value(self, node: ast.expr, problem: str) -> Callable[[Mapping[str, int]], str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            return lambda _bound: text
        if isinstance(node, ast.Name):
            name, values = node.id, self.entities.attributes["name"]
            return lambda bound: values[bound[name]]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr not in self.entities.attributes:
                raise GameFileError(f"{problem}: no attribute '{node.attr}'")
            name, values = node.value.id, self.entities.attributes[node.attr]
            return lambda bound: values[bound[name]]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._value(node.left, problem), self._value(node.right, problem)
            return lambda bound: left(bound) + right(bound)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            parts = [self._value(part, problem) for part in node.values]
            return lambda bound: (
                next((text for text in (part(bound) for part in parts[:-1]) if text), "") or parts[-1](bound)
            )
        raise GameFileError(problem)


def _first_applicable(alternatives: Sequence[tuple[Query | None, Render]], where: str) -> Render:
    if alternatives[0][0] is None:
        return alternatives[0][1]

    def render(tables: Tables, row: Row) -> str:
        for query, text in alternatives:
            if query is None or query.rows(tables, row):
                return text(tables, row)
        raise GameFileError(f"{where}: no alternative applies in this state")

    return render
