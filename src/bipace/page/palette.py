"""Colours of series: the pages and the pictures share them, so that a method has one colour everywhere.

Chosen to stay apart for the three common forms of colour blindness; a test simulates them. Lines also differ
in dash and symbol, because eight colours cannot all stay apart for everybody.
"""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "styles"]

LIGHT = ("#0068ad", "#c84c00", "#29a36f", "#6b1a4f", "#665000", "#2a2a30", "#8f6fd6", "#8c8c8c")
"""On white and near-white paper."""

DARK = ("#58b0f0", "#ff9152", "#a6f0c0", "#c94fa6", "#e6d36a", "#e8eaed", "#8d76e8", "#9aa1a8")
"""The same hues on a dark page."""


def styles() -> str:
    """The colours as CSS variables --c0 to --c7, for both themes."""
    light, dark = (" ".join(f"--c{i}: {c};" for i, c in enumerate(colours)) for colours in (LIGHT, DARK))
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )
