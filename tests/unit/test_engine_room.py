"""The engine room: no module of `policies` needs itself, and the page's picture is what its script draws."""

import ast
import runpy
from graphlib import TopologicalSorter
from pathlib import Path

import bipace

POLICIES = Path(bipace.__file__).parent / "policies"
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def imports(path):
    """Modules of `policies` that a file names in any import, also where it is only for types."""
    names = [
        n.module for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom) and n.module
    ]
    return {name.rsplit(".", 1)[-1] for name in names if name.startswith("bipace.policies.")}


def test_imports_run_one_way_and_the_language_model_is_a_leaf():
    graph = {path.stem: imports(path) for path in POLICIES.glob("*.py")}
    assert graph["language_model"] == set()
    assert {"language_model", "cached_forward"} <= graph["session"]
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError where there is a circle
    assert order.index("language_model") < order.index("session") < order.index("hf")


def test_the_picture_is_the_one_its_script_draws():
    made = runpy.run_path(str(IMAGES / "engine_room.py"))
    assert (IMAGES / "engine-room.svg").read_text(encoding="utf-8") == made["draw"]()


def test_the_page_names_every_module_and_no_other():
    page = (IMAGES.parent / "engine-room.md").read_text(encoding="utf-8")
    told = {line.split("|")[1] for line in page.splitlines() if line.startswith("| `")}
    named = {name.strip(" `") for cell in told for name in cell.split(",")}
    elsewhere = {
        "__init__.py",
        "chat_states.py",
        "device_features.py",
        "gradients.py",
        "lora.py",
        "naive.py",
        "pretrained.py",
    }
    assert named | elsewhere | {"responses.py"} == {path.name for path in POLICIES.glob("*.py")}
