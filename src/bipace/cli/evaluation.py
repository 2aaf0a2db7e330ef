"""`bipace eval` behind its options: a bar a panel, a table, and every episode in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import TaskID

from bipace.cli.session import progress_bar
from bipace.cli.tables import show_table
from bipace.files import write_text
from bipace.train.config import Config
from bipace.train.evaluation import evaluate_actor
from bipace.train.places import actor_folder, mismatch

__all__ = ["evaluate_and_report"]


def evaluate_and_report(
    actor: str, settings: Config, panels: Sequence[str] | None, out: Path | None, quiet: bool
) -> dict[str, Any]:
    """Evaluate an actor on panels and print a table.

    Args:
        actor: a run folder, checkpoint, model folder or shipped name.
        settings: environment, prompt and panels.
        panels: names; default the config's panel and held-out panels.
        out: JSONL file for all episodes, or None.
        quiet: print nothing.

    Returns:
        Panel -> success, score, n, 95 % intervals, success by family, and what the data are.
    """
    place = actor_folder(actor)
    console = Console(stderr=True, quiet=quiet)
    if warning := mismatch(place, settings.env.suite):
        console.print(warning, markup=False, highlight=False, soft_wrap=True)
    bars: dict[str, TaskID] = {}
    with progress_bar(console) as progress:

        def show(panel: str, episodes: int, tasks: int) -> None:
            if panel not in bars:
                bars[panel] = progress.add_task(panel, total=tasks, note="")
            progress.update(bars[panel], completed=episodes)

        results = evaluate_actor(place, settings, panels, show)
    if out is not None:
        lines = ({"panel": name, **t.to_json()} for name, r in results.items() for t in r.trajectories)
        write_text(out, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    summaries = {name: result.summary() for name, result in results.items()}
    if not quiet:
        _print_panels(Console(), summaries)
    return summaries


def _print_panels(console: Console, summaries: dict[str, Any]) -> None:
    rows: list[list[str]] = []
    for name, p in summaries.items():
        low, high = p["ci95"]
        families = ", ".join(f"{k} {v['success']:.1%}" for k, v in p["family"].items())
        score = f"{100 * p['score']:.1f}"
        rows.append([name, str(p["n"]), f"{p['success']:.1%}", f"{low:.1%}-{high:.1%}", score, families])
    show_table(["panel", "tasks", "success", "95 % interval", "score", "by family"], rows, console)
    for data in sorted({p["data"] for p in summaries.values() if p["data"]}):
        console.print(f"data: {data}", markup=False)
