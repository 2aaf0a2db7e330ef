"""The house in numbers, before and after: sizes, settings, import circles, and places that sniff.

    PYTHONPATH=src python benchmarks/house.py            # compares commit dd2f367 with the working tree
    PYTHONPATH=src python benchmarks/house.py --before X

Counts are of the sources under src/ alone; functions and classes include their docstrings. A circle is a set
of modules of which each imports the others, directly or not; imports inside functions count, `with_types`
adds those for type checkers alone. Sniffing sites are lines in which a part, a suite or a decoder is
recognised instead of saying what it is: by looking into a partial, by attributes that may be there, by lists
of recipes, by whichever decoder is not None.
Writes benchmarks/results/house.json.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bipace.files import write_json

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "house.json"
BEFORE = "dd2f367"  # the last commit before the review
SNIFFING = re.compile(
    r"\bneeds_features\b|\b_automatic\b|\b_reads\b|\b_with_returns\b|\b_with_labels\b|\bhas_step_term\b"
    r"|\bBY_FEATURES\b|\.func\b|\bvllm or self\.actor\b"
    r"|\b(getattr|hasattr)\([^)]*\"(data_label|provenance|demonstration|marks|panels|copy|sync)\""
)


def functions_and_classes(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """(kind, name, lines) of everything that is defined in a module."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield kind, node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def _runs(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but what stands under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _runs(child)


def imports(tree: ast.Module, modules: set[str], types: bool) -> set[str]:
    """Modules of ours that a module imports, `package.name` for `from package import name` where it is
    one.
    """
    found: set[str] = set()
    for node in ast.walk(tree) if types else _runs(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else node.module)
    return found & modules


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected sets of two modules or more (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = stack.index(module)
            members = sorted(stack[place:])
            del stack[place:]
            if len(members) > 1:
                out.append(members)

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return out


def settings(folder: Path) -> int:
    """Keys of the configuration, as the sources' own `config_schema` (or the schema's sections) lists
    them.
    """
    code = (
        "from bipace.train.config import Config\n"
        "def count(kind):\n"
        "    return sum(count(f.annotation) if hasattr(f.annotation, 'model_fields') else 1\n"
        "               for f in kind.model_fields.values())\n"
        "print(count(Config))"
    )
    done = subprocess.run(
        ["python", "-c", code], env={"PYTHONPATH": str(folder),
        "PATH": str(Path(subprocess.sys.executable).parent)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


def count(source: Path) -> dict[str, Any]:
    """The numbers of a folder `src`."""
    files = sorted((source / "bipace").rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    names = {path: module_name(path.relative_to(source)) for path in files}
    sizes = {str(path.relative_to(source)): len(text.splitlines()) for path, text in texts.items()}
    defined = [
        (kind, f"{names[path]}.{name}", lines)
        for path, tree in trees.items()
        for kind, name, lines in functions_and_classes(tree)
    ]
    modules = set(names.values())
    graphs = [
        {names[path]: imports(tree, modules, types) - {names[path]} for path, tree in trees.items()}
        for types in (False, True)
    ]
    sniffing = [
        f"{path.relative_to(source)}:{number}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if SNIFFING.search(line) and not line.lstrip().startswith("#")
    ]
    return {
        "files": len(files),
        "lines": sum(sizes.values()),
        "longest_file": longest(sizes.items()),
        "longest_function": longest((name, lines) for kind, name, lines in defined if kind == "function"),
        "longest_class": longest((name, lines) for kind, name, lines in defined if kind == "class"),
        "files_over_300": sum(size > 300 for size in sizes.values()),
        "functions_over_60": sum(kind == "function" and lines > 60 for kind, _, lines in defined),
        "classes_over_150": sum(kind == "class" and lines > 150 for kind, _, lines in defined),
        "settings": settings(source),
        "import_circles": circles(graphs[0]),
        "import_circles_with_types": circles(graphs[1]),
        "sniffing_sites": len(sniffing),
        "sniffing": sniffing,
    }


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def longest(sizes: Any) -> dict[str, Any]:
    name, lines = max(sizes, key=lambda entry: entry[1])
    return {"name": name, "lines": lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default=BEFORE, help="commit to compare with")
    before = parser.parse_args().before
    packed = subprocess.run(
        ["git", "archive", before, "src"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(scratch, filter="data")
        numbers = {"before": count(Path(scratch) / "src"), "after": count(ROOT / "src")}
    result = {
        "commit_before": before,
        **numbers,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "PYTHONPATH=src python benchmarks/house.py",
    }
    write_json(RESULT, result)
    for name in numbers["after"]:
        if name != "sniffing":
            print(
                f"{name:20} {json.dumps(numbers['before'][name])}  ->  {json.dumps(numbers['after'][name])}"
            )


if __name__ == "__main__":
    main()
