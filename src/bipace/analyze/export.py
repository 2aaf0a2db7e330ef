"""Every step with every recipe's advantage, as a table for one's own plots.

`bipace analyze --export steps.parquet`.

Columns: `file`, `task`, `group`, `trajectory`, `t`, `reward`, `outcome`, `observation`, `response`, `action`;
of each recipe `NAME.advantage`; of each of its terms `NAME.TERM.cluster`, `.q`, `.v`, `.scale`, `.returns`,
`.value` and `.branch` (0 alone, 1 leave-one-out, 2 compared), TERM being `trajectory` or `step` (`step_2`,
... where a recipe has several); and `eps_X.cluster`, the clusters by features at each radius of the sweep.
value = weight (q - v) / scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bipace.analyze.messages import as_text
from bipace.analyze.table import file_names
from bipace.files import whole

if TYPE_CHECKING:
    from bipace.analyze.analysis import Analysis

__all__ = ["SUFFIXES", "check_export", "columns_of", "export_steps"]

SUFFIXES = (".parquet", ".csv")
_FIELDS = ("cluster", "returns", "q", "v", "scale", "branch", "value")


def check_export(path: Path) -> None:
    """Refuse before any work what could not be written after it.

    Raises:
        ValueError: a suffix other than those of SUFFIXES.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"--export {path}: expected a file that ends in {' or '.join(SUFFIXES)}")


def export_steps(analysis: Analysis, path: Path) -> None:
    """Write the table, N rows in (group, trajectory, t) order; a reader never sees half of it.

    Raises:
        ValueError: see `check_export`.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    check_export(path)
    table = pyarrow.table(columns_of(analysis))
    write: Callable[[Any, str], None] = (
        pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.csv.write_csv
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as temporary:
        write(table, str(temporary))


def columns_of(analysis: Analysis) -> dict[str, Any]:
    """The columns by name, each of N values."""
    table, batch = analysis.table, analysis.table.batch
    files = file_names([reading.file for reading in analysis.readings])
    of = batch.trajectory.tolist()
    columns: dict[str, Any] = {
        "file": [files[table.source[i]] for i in of],
        "task": [_text(table.tasks[g]) for g in batch.task.tolist()],
        "group": batch.task,
        "trajectory": [_text(table.trajectories[i].name) for i in of],
        "t": batch.t,
        "reward": batch.reward,
        "outcome": table.outcome[batch.trajectory],
        "observation": [_text(as_text(step.observation)) for step in table.steps],
        "response": [_text(step.response) for step in table.steps],
        "action": [_text(step.action) for step in table.steps],
    }
    for name, credit in analysis.credits.items():
        columns[f"{name}.advantage"] = credit.values
        seen: Counter[str] = Counter()
        for term in credit.terms:
            seen[term.unit] += 1
            key = term.unit if seen[term.unit] == 1 else f"{term.unit}_{seen[term.unit]}"
            columns |= {f"{name}.{key}.{field}": getattr(term, field) for field in _FIELDS}
    return columns | {f"eps_{s.eps:g}.cluster": s.labels for s in analysis.sweep}


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()  # half a surrogate pair is no UTF-8
