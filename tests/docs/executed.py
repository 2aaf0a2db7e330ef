"""A page of the documentation as something that can be followed to the letter.

Fences of a page, in order: one with a file name as its title is that file; `bash` and `python` ones without a
title are run; one whose title has spaces says what it needs ("needs a GPU") and is not. A line `<!-- in CI: A
-> B -->` before a fence makes it smaller: A, which must be in it, is replaced by B.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "blocks", "follow"]

_FENCE = re.compile(
    r"(?:^<!-- in CI: (?P<old>.+?) -> (?P<new>.+?) -->\n)?"
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fence: language, title or None, its text with what CI makes smaller, and the page's line."""

    language: str
    title: str | None
    text: str
    line: int

    @property
    def kind(self) -> str:
        """ "file", "run", or "shown"."""
        if self.title is not None:
            return "shown" if " " in self.title else "file"
        return "run" if self.language in ("bash", "python") else "shown"


def blocks(page: str) -> list[Block]:
    """The fences of a page. Raises ValueError where the text to be replaced is not in the fence."""
    found = []
    for match in _FENCE.finditer(page):
        text, line = match["text"], page.count("\n", 0, match.start()) + 1
        if match["old"] is not None:
            if match["old"] not in text:
                raise ValueError(f"line {line}: {match['old']!r} is not in the fence")
            text = text.replace(match["old"], match["new"])
        found.append(Block(match["language"], match["title"], text, line))
    return found


def follow(page: Path, folder: Path) -> list[Block]:
    """Write the page's files into the folder and run its commands there.

    AssertionError at the first that fails.
    """
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    found = blocks(page.read_text(encoding="utf-8"))
    for block in found:
        if block.kind == "file":
            (folder / str(block.title)).write_text(block.text, encoding="utf-8")
        if block.kind == "run":
            command = (
                ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
            )
            done = subprocess.run(
                [*command, block.text], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=600,
            )  # fmt: skip
            said = (
                f"{page.name} line {block.line}:\n{block.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
            assert done.returncode == 0, said
    return found
