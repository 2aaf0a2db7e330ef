"""The page: one HTML file that needs no network.

Data and texts are embedded as JSON whose `<` is escaped, so nothing in a trajectory can end the script element, and the
scripts put text into the page as text only. A content-security policy names the hash of every script in the file: a
script that came in with the data would not run. Charts: Plotly.js (MIT), taken from the installed `plotly` wheel.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

__all__ = ["page_html", "write_page"]

_SCRIPTS = ("data.js", "charts.js", "overview.js", "detail.js", "groups.js", "main.js")
_NOTICE = "/* Plotly.js, copyright Plotly Technologies Inc., MIT licence: https://github.com/plotly/plotly.js */\n"


def page_html(data: dict[str, Any]) -> str:
    """The page as text.

    Raises:
        ValueError: the package plotly is missing.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise ValueError("the page needs Plotly: pip install 'bipace[analyze]'; --json works without") from error
    scripts = [_NOTICE + get_plotlyjs(), "\n".join(_asset(name) for name in _SCRIPTS)]
    embedded = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src "
        + " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    )  # fmt: skip
    parts = {
        "policy": policy,
        "style": _asset("page.css"),
        "data": embedded,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    out: list[str] = []
    for piece in _asset("page.html").split("@@"):
        out.append(parts.get(piece, piece))
    return "".join(out)


def write_page(data: dict[str, Any], path: Path) -> None:
    """Write the page; a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page_html(data)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _asset(name: str) -> str:
    return (files("bipace.analyze") / "assets" / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    # A browser hashes the text it parsed, in which every line end is a line feed.
    text = script.replace("\r\n", "\n").replace("\r", "\n")
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
