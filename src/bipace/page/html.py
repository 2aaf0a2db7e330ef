"""One HTML file that needs no network: a template, styles, scripts and data put together.

Data and texts are embedded as JSON whose `<` is escaped, so nothing in them can end the script element, and
the scripts put text into the page as text only. A content-security policy names the hash of every script in
the file: a script that came in with the data would not run. Detail that is shown on demand lies compressed in
elements of its own.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from bipace.page.palette import styles

__all__ = ["build_page", "packed_size"]


def build_page(
    package: str,
    title: str,
    scripts: Sequence[str],
    data: dict[str, Any],
    blocks: Mapping[str, Any] | None = None,
) -> str:
    """The page of a package as text.

    Args:
        package: whose folder `assets` holds page.html (what stands in the body), page.css and the scripts;
            base.css, base.js and chart.js come before its own.
        title: of the page; plain words of ours, no text from data.
        scripts: file names, in order.
        data: JSON; the scripts find it as DATA.
        blocks: name -> JSON that is read on demand: it lies gzipped, in base64, in the element `block-NAME`.

    Raises:
        ValueError: a number that is not finite.
    """
    own = [
        *(_asset("bipace.page", name) for name in ("base.js", "chart.js")),
        *(_asset(package, n) for n in scripts),
    ]
    script = "\n".join(own)
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{_digest(script)}'"
    )  # fmt: skip
    parts = {
        "policy": policy,
        "title": title,
        "body": _asset(package, "page.html"),
        "style": styles() + _asset("bipace.page", "base.css") + _asset(package, "page.css"),
        "data": _json(data).replace("<", "\\u003c"),
        "blocks": "\n".join(
            f'<script type="application/gzip" id="block-{name}">{_packed(block)}</script>'
            for name, block in (blocks or {}).items()
        ),
        "scripts": f"<script>{script}</script>",
    }
    return "".join(parts.get(piece, piece) for piece in _asset("bipace.page", "shell.html").split("@@"))


def packed_size(data: Any) -> int:
    """Bytes that a block takes in the page."""
    return len(_packed(data))


def _asset(package: str, name: str) -> str:
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


def _json(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(
        "utf-8", "replace"
    ).decode()  # half a surrogate pair, which some files hold, is no UTF-8


def _packed(data: Any) -> str:
    # No time stamp: equal data give equal pages.
    return base64.b64encode(gzip.compress(_json(data).encode(), 6, mtime=0)).decode()


def _digest(script: str) -> str:
    # A browser hashes the text it parsed, in which every line end is a line feed.
    text = script.replace("\r\n", "\n").replace("\r", "\n")
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
