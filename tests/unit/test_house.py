"""Small files, small functions, small classes: what is larger says why, in a comment where it begins.

The limits: 300 lines a file, 60 a function, 150 a class, docstrings counted. `# long: REASON` among the first
lines of a file, or on the line before a function or class (above its decorators), excuses it.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")
FILE, FUNCTION, CLASS = 300, 60, 150
EXCUSE = "# long: "


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
