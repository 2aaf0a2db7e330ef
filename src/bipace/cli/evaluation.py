"""`bipace eval` behind its options: play fixed panels, print a table, write the episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bipace.cli.session import progress_bar
from bipace.cli.tables import show_table
from bipace.envs.registry import get_suite
from bipace.rollout.panel import choose_panels, evaluate, panel_tasks
from bipace.train.actors import make_collector, open_actor
from bipace.train.config import Config
from bipace.train.files import write_text
from bipace.train.loop import refuse_aborted
from bipace.train.places import actor_folder, mismatch
from bipace.train.threads import use_threads

__all__ = ["evaluate_actor"]


def evaluate_actor(
    actor: str, settings: Config, panels: Sequence[str] | None, out: Path | None, quiet: bool
) -> dict[str, Any]:
    """Evaluate a folder on panels and print a table.

    Args:
        actor: a run folder, checkpoint, model folder or shipped name.
        settings: environment, prompt and panels.
        panels: names; default the config's panel and held-out panels.
        out: JSONL file for all episodes, or None.
        quiet: print nothing.

    Returns:
        Panel -> success, score, n, 95 % intervals, success by family, and what the data are.
    """
    suite = get_suite(settings.env.suite)
    place = actor_folder(actor)
    model = open_actor(place, device=settings.actor.device)
    use_threads(model, settings.actor.threads)
    collector = make_collector(settings, suite)
    chosen = choose_panels(suite, settings.env.split, settings.env.panel, settings.env.held_out)
    names = panels or [chosen.panel, *chosen.held_out]
    tasks = {name: panel_tasks(suite, name) for name in names}
    found: dict[str, Any] = {}
    lines: list[str] = []
    console = Console(stderr=True, quiet=quiet)
    if warning := mismatch(place, settings.env.suite):
        console.print(warning, markup=False, highlight=False, soft_wrap=True)
    with progress_bar(console) as progress:
        for name in names:
            bar = progress.add_task(name, total=len(tasks[name]), note="")
            result = evaluate(
                model,
                collector,
                tasks[name],
                temperature=settings.run.validation_temperature,
                generator=torch.Generator(device=model.device).manual_seed(settings.run.seed),
                progress=lambda episodes, bar=bar: progress.update(bar, completed=episodes),
            )
            refuse_aborted(result.trajectories, f"on {name}", "Mend the environment and evaluate again")
            found[name] = result.summary()
            lines += [
                json.dumps({"panel": name, **t.to_json()}, ensure_ascii=False) for t in result.trajectories
            ]
    if out is not None:
        write_text(out, "".join(line + "\n" for line in lines))
    if not quiet:
        _print_panels(Console(), found)
    return found


def _print_panels(console: Console, found: dict[str, Any]) -> None:
    rows: list[list[str]] = []
    for name, p in found.items():
        low, high = p["ci95"]
        families = ", ".join(f"{k} {v['success']:.1%}" for k, v in p["family"].items())
        score = f"{100 * p['score']:.1f}"
        rows.append([name, str(p["n"]), f"{p['success']:.1%}", f"{low:.1%}-{high:.1%}", score, families])
    show_table(["panel", "tasks", "success", "95 % interval", "score", "by family"], rows, console)
    for data in sorted({p["data"] for p in found.values() if p["data"]}):
        console.print(f"data: {data}", markup=False)
