"""The analysis as JSON-able values: what the page embeds and `--json` prints.

Texts are pooled and long columns shared, so that a page of 10,000 steps stays small. Numbers carry ten significant
digits. Large inputs are sampled by prompt group, evenly over the file, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bipace.analyze.credit import Arithmetic, Credit
from bipace.analyze.messages import as_text
from bipace.core.advantages import Blend
from bipace.core.features import on_host
from bipace.core.steps import Ints

if TYPE_CHECKING:
    from bipace.analyze.analysis import Analysis, Sweep

__all__ = ["MAX_TEXT", "payload"]

MAX_TEXT = 6000
_VERSION = 1


class _Pool:
    """Equal things stored once; `add` returns the index."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._index: dict[Any, int] = {}

    def add(self, key: Any, value: Any) -> int:
        if key not in self._index:
            self._index[key] = len(self.items)
            self.items.append(value)
        return self._index[key]

    def text(self, value: str) -> int:
        if len(value) > MAX_TEXT:
            value = f"{value[:MAX_TEXT]}\n[... {len(value) - MAX_TEXT} more characters]"
        return self.add(value, value)

    def column(self, values: NDArray[Any]) -> int:
        if np.issubdtype(values.dtype, np.floating):
            values = np.asarray(values, np.float64) + 0.0  # no negative zero
            return self.add(values.tobytes(), [_short(v) for v in values.tolist()])
        return self.add((values.dtype.str, values.tobytes()), values.tolist())


def payload(analysis: Analysis) -> dict[str, Any]:
    """Everything the page shows."""
    from bipace import __version__

    table = analysis.table
    groups = _sample(analysis)
    rows = np.flatnonzero(np.isin(table.batch.task, groups))
    columns, texts = _Pool(), _Pool()
    return {
        "version": _VERSION,
        "bipace": __version__,
        "files": [_file(reading) for reading in analysis.readings],
        "options": {k: getattr(analysis.options, k) for k in ("gamma", "w", "mode", "eps", "action_key")},
        "features": {"kind": analysis.feature_kind, "label": analysis.feature_label},
        "numbers": _finite(analysis.health.numbers),
        "findings": analysis.findings_json(),
        "agreement": analysis.agreement(),
        "recipes": {name: _recipe(credit) for name, credit in analysis.credits.items()},
        "sizes": {name: _sizes(analysis.credits[name]) for name in ("gigpo", "bipace")},
        "sweep": [_radius(radius) for radius in analysis.sweep],
        "best_eps": analysis.best_eps(),
        "sampled": None
        if len(rows) == len(table.batch)
        else {"groups": len(groups), "of": len(table.tasks), "steps": len(rows), "of_steps": len(table.batch)},
        "groups": _groups(analysis, groups, texts),
        "steps": _steps(analysis, rows, texts),
        "map": _map(analysis, groups),
        "credit": {name: _credit(c, rows, columns) for name, c in analysis.credits.items()},
        "credit_by_eps": [
            {
                "eps": s.eps,
                "cluster": columns.column(s.labels[rows]),
                "credit": {name: _credit(c, rows, columns) for name, c in s.credits.items()},
            }
            for s in analysis.sweep
        ],
        "columns": columns.items,
        "texts": texts.items,
    }


def _radius(radius: Sweep) -> dict[str, Any]:
    recipes = {name: _finite(credit.diagnostics) for name, credit in radius.credits.items()}
    return {"eps": radius.eps, "prediction_error": _short(radius.error), **recipes}


def _short(value: float) -> float:
    return float(f"{value:.10g}")


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    return {name: _short(value) for name, value in numbers.items()}


def _sample(analysis: Analysis) -> Ints:
    """Prompt groups that fit into the page, evenly spread; always at least one."""
    sizes = np.bincount(analysis.table.batch.task)
    limit = analysis.options.page_steps
    if sizes.sum() <= limit:
        return np.arange(len(sizes))
    wanted = max(int(len(sizes) * limit / sizes.sum()), 1)
    chosen = np.unique(np.linspace(0, len(sizes) - 1, wanted).astype(np.int64))
    fits = np.cumsum(sizes[chosen]) <= limit
    fits[0] = True
    return chosen[fits]


def _file(reading: Any) -> dict[str, Any]:
    return {
        "file": reading.file,
        "format": reading.format,
        "trajectories": len(reading.trajectories),
        "skipped": reading.skipped,
        "problems": [{"where": p.where, "why": p.why} for p in reading.problems],
        "notes": reading.notes,
    }


def _recipe(credit: Credit) -> dict[str, Any]:
    return {"summary": credit.summary, "diagnostics": _finite(credit.diagnostics)}


def _sizes(credit: Credit) -> list[list[int]]:
    """[size, number of clusters] of the step term."""
    term = next(term for term in credit.terms if term.unit == "step")
    sizes, counts = np.unique(np.bincount(term.cluster), return_counts=True)
    return np.stack([sizes, counts], axis=1).tolist()


def _groups(analysis: Analysis, groups: Ints, texts: _Pool) -> list[dict[str, Any]]:
    table, health = analysis.table, analysis.health
    members: dict[int, list[int]] = {}
    starts = np.flatnonzero(np.diff(table.batch.trajectory, prepend=-1))
    for trajectory, row in enumerate(starts.tolist()):
        members.setdefault(int(table.batch.task[row]), []).append(trajectory)
    return [
        {
            "task": texts.text(table.tasks[group]),
            "id": int(group),
            "flat": bool(health.flat[group]),
            "lone": bool(health.lone[group]),
            "trajectories": [_trajectory(analysis, i, texts) for i in members[int(group)]],
        }
        for group in groups
    ]


def _trajectory(analysis: Analysis, index: int, texts: _Pool) -> dict[str, Any]:
    trajectory = analysis.table.trajectories[index]
    return {
        "name": texts.text(trajectory.name),
        "context": texts.text(trajectory.context),
        "where": trajectory.where,
        "outcome": _short(float(analysis.table.outcome[index])),
        "steps": len(trajectory.steps),
        "duplicate": bool(analysis.health.duplicate[index]),
    }


def _steps(analysis: Analysis, rows: Ints, texts: _Pool) -> dict[str, Any]:
    table = analysis.table
    steps = [table.steps[row] for row in rows.tolist()]
    return {
        "observation": [texts.text(as_text(step.observation)) for step in steps],
        "response": [texts.text(step.response) for step in steps],
        "action": [texts.text(step.action) for step in steps],
        "action_label": table.batch.action[rows].tolist(),
        "reward": [_short(float(step.reward or 0.0)) for step in steps],
        "loop": np.flatnonzero(analysis.health.looping[rows]).tolist(),
        "unparsed": [] if table.parsed is None else np.flatnonzero(~table.parsed[rows]).tolist(),
    }


def _map(analysis: Analysis, groups: Ints) -> dict[str, list[float]]:
    """Two principal coordinates of each prompt group's unit features, in row order."""
    batch = analysis.table.batch
    assert batch.features is not None
    x, y = [], []
    for group in groups:
        first, last = np.searchsorted(batch.task, [group, group + 1])
        plane = _plane(on_host(batch.features)[first:last])
        x += [float(f"{v:.4g}") for v in plane[:, 0].tolist()]
        y += [float(f"{v:.4g}") for v in plane[:, 1].tolist()]
    return {"x": x, "y": y}


def _plane(features: NDArray[np.float32]) -> NDArray[np.float64]:
    norm = np.linalg.norm(features, axis=1, keepdims=True)
    vectors = (features / np.where(norm > 0, norm, 1)).astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    # eigh of the smaller of the two squares: groups are small beside the width, or the other way round.
    if len(centred) <= centred.shape[1]:
        value, vector = np.linalg.eigh(centred @ centred.T)
        plane = vector[:, ::-1][:, :2] * np.sqrt(np.maximum(value[::-1][:2], 0))
    else:
        plane = centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :2]
    return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))


def _credit(credit: Credit, rows: Ints, columns: _Pool) -> dict[str, Any]:
    parts, used = [], 0
    for part in credit.recipe.parts:
        n = len(part.terms) if isinstance(part, Blend) else 1
        weights = list(part.weights) if isinstance(part, Blend) else None
        parts.append({"terms": list(range(used, used + n)), "blend": weights, "weight": part.weight})
        used += n
    return {
        "value": columns.column(credit.values[rows]),
        "parts": parts,
        "terms": [_term(term, rows, columns) for term in credit.terms],
    }


def _term(term: Arithmetic, rows: Ints, columns: _Pool) -> dict[str, Any]:
    fields: Iterable[str] = ("returns", "q", "v", "scale", "branch", "value", "cluster")
    stored = {name: columns.column(getattr(term, name)[rows]) for name in fields}
    return {"name": term.name, "unit": term.unit, "weight": term.weight, **stored}
