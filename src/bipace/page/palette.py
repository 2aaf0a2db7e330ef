"""Colours of series: the pages and the pictures share them, so that a method has one colour everywhere.

Chosen to stay apart for the three common forms of colour blindness; a test simulates them. Lines also differ in dash
and symbol, because eight colours cannot all stay apart for everybody.
"""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "styles"]

LIGHT = ("#0068ad", "#c84c00", "#008c68", "#a3336f", "#8a6d00", "#3f3f46", "#5b8fd6", "#d08770")
"""On white and near-white paper."""

DARK = ("#58b0f0", "#ff9152", "#35c9a0", "#e48bbf", "#d9b84a", "#c9ccd1", "#8fb4ea", "#efb9a5")
"""The same hues on a dark page."""


def styles() -> str:
    """The colours as CSS variables --c0 to --c7, for both themes."""
    light, dark = (" ".join(f"--c{i}: {c};" for i, c in enumerate(colours)) for colours in (LIGHT, DARK))
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )
