"""The report's main table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

__all__ = ["print_report"]


def print_report(found: Mapping[str, Any], console: Console) -> None:
    """A row a method and environment: best and last validation, and improvement over the baseline."""
    names = ("environment", "method", "seeds", "val@max", "interquartile mean", "last",
             f"P(better than {escape(found['baseline'])})")  # fmt: skip
    table = Table(*(Column(name, overflow="fold") for name in names))  # narrow screens lose no letter
    for place, environment in found["environments"].items():
        for method, entry in environment["methods"].items():
            if "val_at_max" not in entry:
                continue
            peak, better = (
                entry["val_at_max"],
                environment["improvement"].get(method, {}).get(found["baseline"]),
            )
            table.add_row(
                escape(place),
                escape(method),
                str(len(entry["seeds"])),
                _mean(peak),
                f"{peak['iqm']:.1%}{_span(peak['interval'])}",
                _mean(entry["last"]),
                "" if better is None else f"{better['value']:.0%}{_span(better['interval'])}",
            )
    console.print(table)
    for note in found["notes"]:
        console.print(note, markup=False, highlight=False)


def _mean(entry: Mapping[str, Any]) -> str:
    return f"{entry['mean']:.1%}" + ("" if entry["std"] is None else f" ± {100 * entry['std']:.1f}")


def _span(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f" ({100 * pair[0]:.0f}-{100 * pair[1]:.0f})"
