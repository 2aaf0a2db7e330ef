"""Read a game's text grammar (.twl2).

One command template and one feedback rule per action, and production rules.

A right-hand side is a sequence of terminals, `#rule#` references, `{expression}` or `{expression | query}`
and lists `[{... | query}]`. Blank space at the beginning of a line is dropped, as the stock reader does.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache

from bipace.envs.alfworld.errors import GameFileError
from bipace.envs.alfworld.pddl import Literal

__all__ = ["ActionText", "Grammar", "Production", "Symbol", "parse_grammar", "parse_query", "parse_symbols"]

_STRING = r'"[^"]*"'
_ITEM = re.compile(
    rf'\s*(?:#[^\n]*|(?P<block>grammar\s*::\s*"""(?P<code>.*?)"""\s*;)'
    rf"|action\s+(?P<action>[\w/-]+)\s*\{{|(?P<key>template|feedback)\s*::\s*(?P<value>{_STRING})\s*;|(?P<close>\}}))",
    re.DOTALL,
)
_LINE_START = re.compile(r"(?:(?<=\n)|\A)(?://[^\n]*|\s*)\n?")
_TERMINAL = re.compile(r'[^;|"<>\[\]#{}]*')
_QUOTED = re.compile(f'"({_TERMINAL.pattern})"')
_REFERENCE = re.compile(r"#([\w()/!<>\-\s,.]+)#")
_CONDITIONAL = re.compile(r"\{(?:#([\w()/!<>\-\s,.]+)#|([^|\[\]{}\n<>]+))(?:\s*\|\s*([^;|{}\n\[\]#]+))?\}")
_PREDICATE = re.compile(r"\s*([\w'-]+)\s*\(([^()]*)\)\s*")


@dataclass(frozen=True, slots=True)
class Symbol:
    """One part of a right-hand side.

    Attributes:
        kind: "text", "rule" or "expression".
        value: the text, the name of the rule, or the expression.
        query: condition that binds further entities, or "".
        is_list: True when the results of the query are written as a list with separators.
    """

    kind: str
    value: str
    query: str = ""
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Production:
    """One alternative of a rule; used when `condition` has an answer (or is empty)."""

    condition: str
    rhs: str


@dataclass(frozen=True, slots=True)
class ActionText:
    """How an action is commanded and how it is answered."""

    template: str
    feedback: str


@dataclass(frozen=True, slots=True)
class Grammar:
    """Production rules by name, and texts by lower-case action name."""

    rules: dict[str, tuple[Production, ...]]
    actions: dict[str, ActionText]


@lru_cache(maxsize=4096)
def parse_symbols(text: str) -> tuple[Symbol, ...]:
    """The symbols of a right-hand side.

    As in the stock reader, text after a character it cannot read is left out.
    """
    symbols: list[Symbol] = []
    at = 0
    while True:
        at = _skip_blank(text, at)
        symbol, end = _symbol(text, at)
        if end == at:
            return tuple(symbols)
        symbols.append(symbol)
        at = end


def _skip_blank(text: str, at: int) -> int:
    before = -1
    while before != at:
        before = at
        while at < len(text) and text[at] == "\t":
            at += 1
        line = _LINE_START.match(text, at)
        at = line.end() if line else at
    return at


def _symbol(text: str, at: int) -> tuple[Symbol, int]:
    is_list = text.startswith("[", at)
    conditional = _CONDITIONAL.match(text, at + is_list)
    if conditional and (not is_list or text.startswith("]", conditional.end())):
        rule, expression, query = conditional.groups()
        kind = "rule" if rule else "expression"
        return Symbol(kind, rule or expression, (query or "").strip(), is_list), conditional.end() + is_list
    reference = _REFERENCE.match(text, at)
    if reference:
        return Symbol("rule", reference[1]), reference.end()
    quoted = _QUOTED.match(text, at)
    if quoted:
        return Symbol("text", quoted[1].replace("\\n", "\n")), quoted.end()
    terminal = _TERMINAL.match(text, at)
    assert terminal is not None
    return Symbol("text", terminal[0].replace("\\n", "\n")), terminal.end()


@lru_cache(maxsize=1024)
def parse_query(text: str) -> tuple[Literal, ...]:
    """`p(x:t, y:u) & not_q(x:t)` as literals whose arguments read "x:t". Raises GameFileError."""
    literals = []
    for part in text.split("&"):
        match = _PREDICATE.fullmatch(part)
        if not match:
            raise GameFileError(f"grammar: cannot read the condition '{text}'")
        args = [
            ":".join(piece.strip() for piece in arg.split(":")) for arg in match[2].split(",") if arg.strip()
        ]
        literals.append(Literal(match[1], tuple(arg if ":" in arg else f"{arg}:{arg}" for arg in args)))
    return tuple(literals)


def _rules(code: str, where: str) -> dict[str, tuple[Production, ...]]:
    try:
        data = json.loads(code)
        return {
            name: tuple(Production(rule.get("condition", ""), rule["rhs"]) for rule in rules)
            for name, rules in data.items()
        }
    except json.JSONDecodeError as error:
        raise GameFileError(f"{where}: not valid JSON: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise GameFileError(
            f"{where}: a rule must be a list of objects with a text 'rhs': {error!r}"
        ) from error


def parse_grammar(text: str) -> Grammar:
    """The grammar in `text`. Raises GameFileError naming the action or block."""
    rules: dict[str, tuple[Production, ...]] = {}
    actions: dict[str, ActionText] = {}
    current: str | None = None
    parts: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        item = _ITEM.match(text, at)
        if not item:
            raise GameFileError(f"grammar: cannot read near {text[at:].strip()[:60]!r}")
        at = item.end()
        if item["block"]:
            code = item["code"]
            if current is not None:
                lines = textwrap.dedent(code).split("\n")
                code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
            rules.update(_rules(code, f"grammar of action '{current}'" if current else "grammar"))
        elif item["action"]:
            current, parts = item["action"].lower(), {}
        elif item["key"]:
            parts[item["key"]] = item["value"][1:-1]
        elif item["close"]:
            if current is None or "template" not in parts or "feedback" not in parts:
                raise GameFileError(f"grammar: action '{current}' needs a template and a feedback")
            actions[current] = ActionText(parts["template"], parts["feedback"])
            current = None
    return Grammar(rules, actions)
