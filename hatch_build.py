"""README.md as the wheel's description.

An index page has no repository beside it, so no relative link may stay.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")


def for_an_index(text: str, repository: str | None) -> str:
    """The text with absolute links; without a repository address images become nothing and links their words.

    Args:
        text: README.md.
        repository: `project.urls.Repository`, e.g. https://example.org/owner/name, or None where there is
            none yet.
    """

    def absolute(match: re.Match[str]) -> str:
        image, words, target = match.groups()
        if repository is None:
            return "" if image else words
        kind = "raw" if image else "blob"
        return f"{image}[{words}]({repository.rstrip('/')}/{kind}/main/{target})"

    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(absolute, text))


class ReadmeHook(MetadataHookInterface):
    """Fills the dynamic field `readme`."""

    def update(self, metadata: dict) -> None:
        """Set the description. Raises OSError where README.md is missing."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        urls = metadata.get("urls", {})
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": for_an_index(text, urls.get("Repository")),
        }
