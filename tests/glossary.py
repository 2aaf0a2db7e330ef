"""The metric names that docs/metrics.md explains."""

from __future__ import annotations

import re
from pathlib import Path

GLOSSARY = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"


def explained() -> set[str]:
    """Every name of the table's first column, abbreviations written out."""
    names = set()
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        if not line.startswith("| `"):
            continue
        first = ""
        for name in re.findall(r"`([^`]+)`", line.split("|")[1]):
            if name.startswith("_"):
                name = first.rsplit("_", 1)[0] + name
            elif name.startswith("/") or "/" not in name:
                name = f"{first.rsplit('/', 1)[0]}/{name.lstrip('/')}"
            names.add(name)
            first = first or name
    return names


def unexplained(logged) -> set[str]:
    """Logged names that the table lacks."""
    plain = {re.sub(r"credit/eps_error/.*", "credit/eps_error/WHITEN/EPS", name) for name in logged}
    plain = {re.sub(r"credit/agreement/.*", "credit/agreement/LAYER/WHITEN/EPS", name) for name in plain}
    return plain - explained()
