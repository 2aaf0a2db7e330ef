"""Small files, small functions, small classes (what is larger says why); no sentence torn by its indentation.

The limits: 300 lines a file, 60 a function, 150 a class, docstrings counted. `# long: REASON` among the first
lines of a file, or on the line before a function or class (above its decorators), excuses it.
"""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")
FILE, FUNCTION, CLASS = 300, 60, 150
EXCUSE = "# long: "
# What may stand before and after a deeper line: `name: text`, `name, other (unit): text`, a list's entry, a
# table's row, an example. Code, and what ends in a colon, has its block below it.
ENTRY = re.compile(r"\*{0,2}[\w.`\"'/|-]+(, [\w.`\"'/*|-]+)*( \([^)]*\))?:( |$)|[-*+|] |\d+\. |>>>|\.\.\.")
OPEN = (":", "(", "[", "{", "\\")


def too_long(text):
    """What is over a limit and has no reason written beside it."""
    lines = text.splitlines()
    if len(lines) > FILE and not any(line.startswith(EXCUSE) for line in lines[:12]):
        yield f"file of {len(lines)} lines"
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        begins = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        size = node.end_lineno - node.lineno + 1
        limit = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
        if size > limit and EXCUSE not in lines[begins - 2]:
            yield f"{node.name} of {size} lines"


def test_nothing_is_too_long_without_a_reason():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    found = {str(p.relative_to(ROOT)): list(too_long(p.read_text(encoding="utf-8"))) for p in files}
    assert {name: what for name, what in found.items() if what} == {}


def docstrings(text):
    """Lines of each docstring, attributes' among them, as they stand in the file."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)  # a lambda's is no list
        for said in body if isinstance(body, list) else ():
            value = said.value if isinstance(said, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield lines[value.lineno - 1 : value.end_lineno]


def torn(text):
    """Lines of docstrings that go on deeper in mid-sentence, as a careless re-wrapping leaves them."""
    for lines in docstrings(text):
        margins = [len(line) - len(line.lstrip()) for line in lines]
        for i, (before, line) in enumerate(pairwise(lines), 1):
            if not before.strip() or margins[i] <= margins[i - 1] or before.endswith(OPEN):
                continue
            deeper = (k for k in range(i, len(lines)) if margins[k] <= margins[i - 1] or not lines[k].strip())
            after = lines[next(deeper, -1)].strip()
            goes_on = after and after != '"""' and not ENTRY.match(after)
            if goes_on or not ENTRY.match(before.strip()):
                yield line.strip()


def test_no_docstring_goes_on_deeper_in_mid_sentence():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(p.relative_to(ROOT)): list(torn(p.read_text(encoding="utf-8"))) for p in files}
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("One.\n\nThe value of lambda\n    and\nthe deviation.", ["and"]),
        ("One.\n\nSource: the value of lambda\n    and\nthe deviation.", ["and"]),
        ("One.\n\nThe value of\n    lambda.", ["lambda."]),
        ("One.\n\nArgs:\n    a: the value of\n        l.\n    b, c: n.\n    d (m): one\n        more.", []),
        ("One.\n\n- the value of\n  lambda\n- another", []),
        ("One.\n\nThis way:\n    f(x)\nand so on.", []),
        ("One.\n\n    run --this \\\\\n      --that\n    run", []),
        ("One.\n\nThe value of\nlambda.", []),
    ],
)  # fmt: skip
def test_the_check_of_sentences(body, expected):
    inside = body.replace("\n", "\n    ")
    assert list(torn(f'"""{body}\n"""\n')) == expected
    assert list(torn(f'def f():\n    """{inside}\n    """\n')) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n" * 301, ["file of 301 lines"]),
        ("# long: a table\n" + "x = 1\n" * 300, []),
        ("x = 1\n" * 300, []),
        ("def f():\n" + "    x = 1\n" * 60, ["f of 61 lines"]),
        ("# long: one list\n@a\ndef f():\n" + "    x = 1\n" * 60, []),
        ("class A:\n" + "    x = 1\n" * 150, ["A of 151 lines"]),
        ("class A:\n" + "    x = 1\n" * 149, []),
    ],
)
def test_the_check_itself(text, expected):
    assert list(too_long(text)) == expected
