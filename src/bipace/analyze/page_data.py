"""The page's data: a head for the first view, and blocks of prompt groups, unpacked when they are seen.

Texts are cut so that the page stays near the size asked for; numbers are never cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bipace.analyze.compare import compare_files
from bipace.analyze.credit import Credit
from bipace.analyze.payload import block, head, members_of, sample
from bipace.analyze.pools import MAX_TEXT, short
from bipace.core.steps import Ints
from bipace.page.html import packed_size

if TYPE_CHECKING:
    from bipace.analyze.analysis import Analysis

__all__ = ["page_data"]

BLOCK_STEPS = 250
TITLE = 300
CUTS = (MAX_TEXT, 3000, 1500, 700, 300)
_PROBES = 8
_FRAME = 200_000  # bytes of the page that are neither head nor block: styles and scripts


def page_data(analysis: Analysis) -> tuple[dict[str, Any], dict[str, Any]]:
    """The head; and the blocks: the index of the groups shown, and "0", "1", ...

    with their steps in that order.
    """
    groups = sample(analysis)
    batches = list(_batches(analysis, groups))
    made = head(analysis, groups)
    index = [_group(analysis, int(g), i) for i, batch in enumerate(batches) for g in batch]
    made["findings"] = [{k: v for k, v in f.items() if k != "groups"} for f in made["findings"]]
    made["files"] = [{k: v for k, v in f.items() if k != "file"} for f in made["files"]]  # nobody's folders
    made |= {
        "limits": {name: _limits(analysis, name, credit) for name, credit in analysis.credits.items()},
        "compare": compare_files(analysis),
        "blocks": len(batches),
    }
    most = _cut(
        analysis,
        batches,
        analysis.options.page_mb * 1e6 - _FRAME - packed_size(made) * 3 - packed_size(index),
    )
    blocks = {str(i): block(analysis, batch, most) for i, batch in enumerate(batches)}
    return {**made, "text_limit": most}, {"index": index, **blocks}


def _batches(analysis: Analysis, groups: Ints) -> Iterator[Ints]:
    """Neighbouring groups until they hold BLOCK_STEPS steps."""
    sizes = np.bincount(analysis.table.batch.task)
    waiting: list[int] = []
    for group in groups.tolist():
        waiting.append(group)
        if sizes[waiting].sum() >= BLOCK_STEPS:
            yield np.array(waiting)
            waiting = []
    if waiting:
        yield np.array(waiting)


def _cut(analysis: Analysis, batches: list[Ints], budget: float) -> int:
    """The most characters a text may keep so that the blocks fit, judged on a few of them.

    The least cut at worst.
    """
    probes = [batches[i] for i in np.unique(np.linspace(0, len(batches) - 1, _PROBES).astype(int))]
    for most in CUTS:
        size = sum(packed_size(block(analysis, batch, most)) for batch in probes) * len(batches) / len(probes)
        if size <= budget:
            return most
    return CUTS[-1]


def _group(analysis: Analysis, group: int, at: int) -> dict[str, Any]:
    table, health = analysis.table, analysis.health
    members = members_of(analysis, group)
    first, last = np.searchsorted(table.batch.task, [group, group + 1])
    difference = analysis.credits["grpo"].values[first:last] - analysis.credits["bipace"].values[first:last]
    name = table.tasks[group]
    return {
        "task": name if len(name) <= TITLE else f"{name[:TITLE]}…",
        "id": group,
        "block": at,
        "flat": bool(health.flat[group]),
        "lone": bool(health.lone[group]),
        "loop": bool(health.looping[first:last].any()),
        "differ": float(f"{np.abs(difference).mean():.4g}"),
        "trajectories": [
            [table.trajectories[i].name[:TITLE], short(float(table.outcome[i])),
            len(table.trajectories[i].steps),
             int(health.duplicate[i]), int(table.source[i])]
            for i in members
        ],
    }  # fmt: skip


def _limits(analysis: Analysis, name: str, credit: Credit) -> list[float]:
    """The size of an advantage that gets the full colour (98 of 100 are smaller), at each radius."""
    return [_limit(s.credits.get(name, credit)) for s in analysis.sweep]


def _limit(credit: Credit) -> float:
    sizes = np.abs(credit.values[credit.values != 0])
    return float(f"{np.quantile(sizes, 0.98, method='lower'):.4g}") if len(sizes) else 1.0
