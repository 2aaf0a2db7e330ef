"""The analysis as JSON-able values: what `--json` prints, and what the page embeds.

`head` holds what the first view needs, `block` the steps of some prompt groups with their texts and
arithmetic. `--json` is the head with one block of every step shown; the page holds many small blocks and
unpacks each when it is looked at. Large inputs are sampled by prompt group, evenly over the file, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bipace.analyze.credit import Arithmetic, Credit
from bipace.analyze.messages import as_text
from bipace.analyze.pools import MAX_TEXT, Pool, finite, short
from bipace.analyze.table import file_names
from bipace.core.advantages import Blend
from bipace.core.steps import Ints

if TYPE_CHECKING:
    from bipace.analyze.analysis import Analysis, Sweep

__all__ = ["block", "head", "members_of", "payload", "sample"]

_VERSION = 2


def payload(analysis: Analysis) -> dict[str, Any]:
    """Everything the page shows, in one piece."""
    groups = sample(analysis)
    return {**head(analysis, groups), **block(analysis, groups)}


def head(analysis: Analysis, groups: Ints) -> dict[str, Any]:
    """What is known of the whole input; `groups` are the ones whose steps are shown."""
    from bipace import __version__

    table = analysis.table
    names = file_names([reading.file for reading in analysis.readings])
    shown = int(np.isin(table.batch.task, groups).sum())
    return {
        "version": _VERSION,
        "bipace": __version__,
        "files": [_file(r, name) for r, name in zip(analysis.readings, names, strict=True)],
        "options": {k: getattr(analysis.options, k) for k in ("gamma", "w", "mode", "eps", "action_key")},
        "features": {"kind": analysis.feature_kind, "label": analysis.feature_label},
        "numbers": finite(analysis.health.numbers),
        "findings": analysis.findings_json(),
        "agreement": analysis.agreement(),
        "recipes": {name: _recipe(credit) for name, credit in analysis.credits.items()},
        "sizes": {name: _sizes(analysis.credits[name]) for name in ("gigpo", "bipace")},
        "sweep": [_radius(radius) for radius in analysis.sweep],
        "best_eps": analysis.best_eps(),
        "sampled": None
        if shown == len(table.batch)
        else {"groups": len(groups), "of": len(table.tasks), "steps": shown, "of_steps": len(table.batch)},
    }


def block(analysis: Analysis, groups: Ints, most: int = MAX_TEXT) -> dict[str, Any]:
    """Some prompt groups with their steps, texts, and the arithmetic of every recipe and radius.

    Args:
        analysis: what was found.
        groups: which.
        most: characters kept of each text.
    """
    rows = np.flatnonzero(np.isin(analysis.table.batch.task, groups))
    columns, texts = Pool(), Pool(most)
    return {
        "groups": _groups(analysis, groups, texts),
        "steps": _steps(analysis, rows, texts),
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


def sample(analysis: Analysis) -> Ints:
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


def members_of(analysis: Analysis, group: int) -> list[int]:
    """The trajectories of a prompt group, in table order."""
    batch = analysis.table.batch
    # the table is in (task, trajectory, t) order
    first, last = np.searchsorted(batch.task, [group, group + 1])
    return np.unique(batch.trajectory[first:last]).tolist()


def _radius(radius: Sweep) -> dict[str, Any]:
    recipes = {name: finite(credit.diagnostics) for name, credit in radius.credits.items()}
    return {"eps": radius.eps, "prediction_error": short(radius.error), **recipes}


def _file(reading: Any, name: str) -> dict[str, Any]:
    return {
        "file": reading.file,
        "name": name,
        "format": reading.format,
        "trajectories": len(reading.trajectories),
        "skipped": reading.skipped,
        "problems": [{"where": p.where, "why": p.why} for p in reading.problems],
        "notes": reading.notes,
    }


def _recipe(credit: Credit) -> dict[str, Any]:
    return {"summary": credit.summary, "diagnostics": finite(credit.diagnostics)}


def _sizes(credit: Credit) -> list[list[int]]:
    """[size, number of clusters] of the step term."""
    term = next(term for term in credit.terms if term.unit == "step")
    sizes, counts = np.unique(np.bincount(term.cluster), return_counts=True)
    return np.stack([sizes, counts], axis=1).tolist()


def _groups(analysis: Analysis, groups: Ints, texts: Pool) -> list[dict[str, Any]]:
    table, health = analysis.table, analysis.health
    return [
        {
            "task": texts.text(table.tasks[group]),
            "id": int(group),
            "flat": bool(health.flat[group]),
            "lone": bool(health.lone[group]),
            "trajectories": [_trajectory(analysis, i, texts) for i in members_of(analysis, int(group))],
        }
        for group in groups
    ]


def _trajectory(analysis: Analysis, index: int, texts: Pool) -> dict[str, Any]:
    trajectory = analysis.table.trajectories[index]
    return {
        "name": texts.text(trajectory.name),
        "context": texts.text(trajectory.context),
        "where": trajectory.where,
        "outcome": short(float(analysis.table.outcome[index])),
        "steps": len(trajectory.steps),
        "duplicate": bool(analysis.health.duplicate[index]),
    }


def _steps(analysis: Analysis, rows: Ints, texts: Pool) -> dict[str, Any]:
    table = analysis.table
    steps = [table.steps[row] for row in rows.tolist()]
    return {
        "observation": [texts.text(as_text(step.observation)) for step in steps],
        "response": [texts.text(step.response) for step in steps],
        "action": [texts.text(step.action) for step in steps],
        "action_label": table.batch.action[rows].tolist(),
        "reward": [short(float(step.reward or 0.0)) for step in steps],
        "loop": np.flatnonzero(analysis.health.looping[rows]).tolist(),
        "unparsed": [] if table.parsed is None else np.flatnonzero(~table.parsed[rows]).tolist(),
    }


def _credit(credit: Credit, rows: Ints, columns: Pool) -> dict[str, Any]:
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


def _term(term: Arithmetic, rows: Ints, columns: Pool) -> dict[str, Any]:
    fields: Iterable[str] = ("returns", "q", "v", "scale", "branch", "value", "cluster")
    stored = {name: columns.column(getattr(term, name)[rows]) for name in fields}
    return {"name": term.name, "unit": term.unit, "weight": term.weight, **stored}
