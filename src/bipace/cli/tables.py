"""Tables on the screen: every cell whole at any width, and text shown as it is, brackets too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["show_table"]


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], console: Console | None = None) -> None:
    """Print a table; a cell that does not fit goes on in the next line, and no letter is left out.

    Where the screen is too narrow for columns side by side, each row is a block of `column: cell` lines.
    """
    console, rows = console or Console(), [tuple(row) for row in rows]
    longest = [
        max([len(c), *(len(w) for row in rows for w in row[i].split())]) for i, c in enumerate(columns)
    ]
    if sum(min(n, 24) + 3 for n in longest) + 1 > console.width:
        for row in rows:
            for column, cell in zip(columns, row, strict=True):
                console.print(Text(f"{column}: {cell}"), soft_wrap=True)
            console.print()
        return
    table = Table()
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
