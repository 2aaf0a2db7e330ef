"""What the command line runs: a training run with progress, table, picture and summary; an evaluation; a new actor."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bipace.envs.base import offers_of
from bipace.envs.registry import get_suite
from bipace.policies.hf import Actor
from bipace.report.curve import draw_curve, read_metrics
from bipace.rollout.collect import Collector
from bipace.rollout.panel import PanelResult, choose_panels, evaluate, panel_tasks
from bipace.rollout.prompts import Chat
from bipace.train.actors import actor_folder, make_collector
from bipace.train.checkpoint import write_json
from bipace.train.config import Config, ConfigError, load_config
from bipace.train.imitation import SIZES, batches, code_tokens, demonstrate, encode, imitate, new_actor
from bipace.train.loop import Run, train

__all__ = ["evaluate_actor", "make_actor", "train_and_report", "write_results"]


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=console)


def train_and_report(config: Config, folder: Path, *, resume: bool = False, install_seconds: float = 0.0) -> Run:
    """Train with a progress bar; then the table, the curve and summary.json.

    Args:
        config: the run.
        folder: where it goes.
        resume: continue the run in the folder.
        install_seconds: passed through to the summary.

    Returns:
        The finished run.
    """
    console = Console(stderr=True)
    started = time.perf_counter()
    progress = _progress(console)
    bar = progress.add_task(config.estimator, total=config.run.iterations, note="")

    def show(run: Run, metrics: dict[str, float]) -> None:
        progress.start()  # not before the settings proved usable: an error stands alone on the screen
        note = f"success {metrics['episode/success_rate']:.0%}" if "episode/success_rate" in metrics else "warm start"
        latest = metrics.get(f"val/{run.panels.panel}/success")
        if latest is not None:
            reward = metrics[f"val/{run.panels.panel}/reward_mean"]
            score = f", score {100 * reward:.1f}" if reward != latest else ""
            progress.console.print(f"iteration {run.iteration:4d}  {run.panels.panel} success {latest:.1%}{score}")
        progress.update(bar, completed=run.iteration, note=note)

    try:
        run = train(config, folder, resume=resume, on_iteration=show)
    finally:
        if progress.live.is_started:
            progress.stop()
    summary = write_results(run, {"install": install_seconds, "train": time.perf_counter() - started})
    _print_summary(Console(), summary, folder)
    return run


def write_results(run: Run, seconds: dict[str, float]) -> dict[str, Any]:
    """Put summary.json and curve.png into the folder of a run and return the summary."""
    summary = summarize(run, seconds)
    draw_curve(
        read_metrics(run.folder), run.panels.panel, summary["panel"]["n"], _title(run), run.folder / "curve.png"
    )  # fmt: skip
    write_json(run.folder / "summary.json", summary)  # last: a study takes it for the sign that nothing is missing
    return summary


def _title(run: Run) -> str:
    """What a figure must say: suite, recipe, and on which data where that is not plain."""
    data = offers_of(run.suite).data_label
    return f"{run.suite.name}, {run.config.estimator}" + (f"\n{data}" if data else "")


def summarize(run: Run, seconds: dict[str, float]) -> dict[str, Any]:
    """The run in numbers: first and last validation of every panel, time, and BiPACE's share of an iteration."""
    log = read_metrics(run.folder)
    shares = [m["perf/bipace_share"] for m in log if "perf/bipace_share" in m]
    panels = {name: _first_and_last(history) for name, history in run.validations.items()}
    held_out = [name for name in run.panels.held_out if name in panels]
    return {
        "recipe": run.config.estimator,
        "suite": run.suite.name,
        "data": offers_of(run.suite).data_label,
        "provenance": dict(offers_of(run.suite).provenance),
        "iterations": run.iteration,
        "panel": panels[run.panels.panel],
        "held_out": panels[held_out[0]] if held_out else None,
        "panels": panels,
        "seconds": seconds,
        "bipace_share": float(np.median(shares)) if shares else 0.0,
        "peak_memory_mb": max((m.get("perf/peak_memory_mb", 0.0) for m in log), default=0.0),
        "iteration_seconds": float(
            np.median([m["timing_s/iteration"] for m in log if "timing_s/iteration" in m] or [0])
        ),
    }


def evaluate_actor(
    actor: str, config: Path | None, overrides: Sequence[str], panels: list[str] | None, out: Path | None, quiet: bool
) -> dict[str, Any]:
    """Evaluate a folder on panels and print a table.

    Args:
        actor: a run folder (its config.toml is used unless another is given), checkpoint, model folder or shipped name.
        config: a TOML file, or None.
        overrides: section.key=value.
        panels: names; default the config's panel and held-out panels.
        out: JSONL file for all episodes, or None.
        quiet: print nothing.

    Returns:
        Panel -> success, score, n, 95 % intervals, success by family, and what the data are.
    """
    own = Path(actor) / "config.toml"
    settings = load_config(config or (own if own.is_file() else None), overrides)
    suite = get_suite(settings.env.suite)
    model = Actor.load(actor_folder(actor), device=settings.actor.device)
    collector = make_collector(settings, suite)
    chosen = choose_panels(suite, settings.env.split, settings.env.panel, settings.env.held_out)
    names = panels or [chosen.panel, *chosen.held_out]
    tasks = {name: panel_tasks(suite, name) for name in names}
    found: dict[str, Any] = {}
    lines: list[str] = []
    console = Console(stderr=True, quiet=quiet)
    with _progress(console) as progress:
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
            found[name] = result.summary()
            lines += [json.dumps({"panel": name, **t.to_json()}, ensure_ascii=False) for t in result.trajectories]
    if out is not None:
        out.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    if not quiet:
        _print_panels(Console(), found)
    return found


def make_actor(
    out: Path,
    *,
    suite: str,
    size: str,
    target: float,
    steps: int,
    seed: int,
    start: str | None = None,
    every: int = 100,
    lr: float = 3e-3,
    demonstrations: int = 20_000,
    config_file: Path | None = None,
    batch: int = 64,
    turns: int | None = None,
    context_weight: float = 0.0,
    codes: int | None = None,
) -> dict[str, Any]:
    """Train a small actor from a planner's episodes and write it with a model card.

    Args:
        out: the new folder.
        suite: environment name.
        size: a key of SIZES.
        target: success rate on the training panel at which imitation stops.
        steps: at most this many updates.
        seed: of weights and order.
        start: an actor to go on from (its size and tokenizer stay), or None for a new one.
        every: updates between evaluations.
        lr: learning rate after the warm-up.
        demonstrations: training tasks shown, in split order.
        config_file: preset or TOML whose prompt limits, horizon and update.micro_tokens are used; None: the defaults.
        batch: demonstrations per update.
        turns: show only the first so many turns of each demonstration; None: all.
        context_weight: weight of predicting what the environment says.
        codes: exchange the codes in each demonstration for the first so many alone (see `batches`); None: for any.

    Returns:
        What the model card says, as numbers.

    Raises:
        ConfigError: unknown size; a folder that is not empty.
    """
    if size not in SIZES:
        raise ConfigError(f"size: unknown {size!r}, expected one of {', '.join(SIZES)}")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out}: is not empty; name a new folder")
    family = get_suite(suite)
    config = load_config(config_file, [f"env.suite={suite}"])
    panels = choose_panels(family, config.env.split, config.env.panel, config.env.held_out)
    horizon = config.env.max_steps or family.max_steps
    shown = list(demonstrate(family, family.splits[panels.split][:demonstrations], horizon))
    marks = offers_of(family).marks
    actor = new_actor(SIZES[size], shown, seed, marks=marks) if start is None else Actor.load(actor_folder(start))
    chat, end = Chat(actor.tokenizer), actor.end_token_ids[0]
    sequences = [
        s for d in shown if len((s := encode(chat, actor.tokenizer, d, end, turns)).tokens) <= config.prompt.max_tokens
    ]
    collector = make_collector(config, family)
    command = f"bipace imitate OUT --suite {suite} --size {size} --target {target} --steps {steps} --seed {seed}"
    command += f" --every {every} --lr {lr:g} --batch {batch}" + (f" --turns {turns}" if turns else "")
    command += f" --codes {codes}" if codes else ""
    command += f" --context-weight {context_weight:g}" if context_weight else ""
    command += (f" --config {config_file}" if config_file else "") + (f" --start {start}" if start else "")
    card: dict[str, Any] = {
        "command": command,
        "start": read_card(start) if start else None,
        "parameters": sum(p.numel() for p in actor.model.parameters()),
        "demonstrations": len(sequences),
        "updates": 0,
        "panel": panels.panel,
        "data": getattr(family, "data_label", ""),
        "success": [],
        "score": [],
    }

    def keep(step: int) -> None:
        card["updates"] = step
        actor.save(out)
        write_json(out / "imitation.json", card)

    with _progress(Console(stderr=True)) as progress:
        bar = progress.add_task("imitation", total=steps, note="")

        def panel_success(step: int) -> bool:
            result = _panel(actor, collector, config, family.splits[panels.panel])
            card["success"].append((step, result.success))
            card["score"].append((step, result.score))
            keep(step)
            progress.console.print(
                f"step {step:5d}  {panels.panel} success {result.success:.1%}, score {100 * result.score:.1f}"
            )
            return result.success >= target

        taken = imitate(
            actor,
            batches(sequences, batch, seed, code_tokens(actor.tokenizer), codes),
            steps=steps,
            lr=lr,
            micro_tokens=config.update.micro_tokens,
            evaluate=panel_success,
            evaluate_every=every,
            context_weight=context_weight,
            progress=lambda step, loss: progress.update(bar, completed=step, note=f"loss {loss:.3f}"),
        )
    keep(taken)
    return card


def read_card(actor: str) -> dict[str, Any] | None:
    """The imitation record of an actor folder, or None where it has none."""
    path = actor_folder(actor) / "imitation.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _panel(actor: Actor, collector: Collector, config: Config, tasks: Sequence[str]) -> PanelResult:
    generator = torch.Generator(device=actor.device).manual_seed(config.run.seed)
    return evaluate(actor, collector, tasks, temperature=config.run.validation_temperature, generator=generator)


def _first_and_last(history: dict[str, dict[str, Any]]) -> dict[str, Any]:
    iterations = sorted(history, key=int)
    first, last = history[iterations[0]], history[iterations[-1]]
    top = max(iterations, key=lambda iteration: history[iteration]["success"])  # the first of equals
    return {
        "warm_start": first["success"],
        "final": last["success"],
        "n": last["n"],
        "ci95": last["ci95"],
        "warm_start_ci95": first["ci95"],
        "warm_start_score": first["score"],
        "final_score": last["score"],
        "warm_start_score_ci95": first["score_ci95"],
        "final_score_ci95": last["score_ci95"],
        "val@max": history[top]["success"],
        "val@max_iteration": int(top),
        "family": last["family"],
        "list": last["list"],
        "sha256": last["sha256"],
        "data": last["data"],
    }


def _print_summary(console: Console, summary: dict[str, Any], folder: Path) -> None:
    table = Table("panel", "tasks", "warm start", "final (95 % interval)", "gain")
    scored = any(p["final_score"] != p["final"] for p in summary["panels"].values())
    if scored:  # where rewards are 0 and 1 the score is the success
        table.add_column("score")
    for name, p in summary["panels"].items():
        low, high = p["ci95"]
        gain = 100 * (p["final"] - p["warm_start"])
        table.add_row(
            name,
            str(p["n"]),
            f"{p['warm_start']:.1%}",
            f"{p['final']:.1%} ({low:.1%}-{high:.1%})",
            f"{gain:+.1f} points",
            *([_score_change(p["warm_start_score"], p["final_score"])] if scored else []),
        )
    console.print(table)
    if summary["data"]:
        console.print(f"data: {summary['data']}")
    console.print(
        f"{summary['recipe']}: {summary['iterations']} iterations, {summary['iteration_seconds']:.2f} s each, "
        f"{summary['seconds']['train']:.0f} s in all; credit (labels, clusters, advantages) took "
        f"{summary['bipace_share']:.2%} of an iteration; peak memory {summary['peak_memory_mb']:.0f} MB"
    )
    console.print(f"learning curve  {folder / 'curve.png'}\nrun folder      {folder}", highlight=False)


def _score_change(first: float, last: float) -> str:
    return f"{100 * first:.1f} -> {100 * last:.1f} ({100 * (last - first):+.1f} points)"


def _print_panels(console: Console, found: dict[str, Any]) -> None:
    table = Table("panel", "tasks", "success", "95 % interval", "score", "by family")
    for name, p in found.items():
        low, high = p["ci95"]
        families = ", ".join(f"{k} {v['success']:.1%}" for k, v in p["family"].items())
        table.add_row(
            name, str(p["n"]), f"{p['success']:.1%}", f"{low:.1%}-{high:.1%}", f"{100 * p['score']:.1f}", families
        )
    console.print(table)
    for data in sorted({p["data"] for p in found.values() if p["data"]}):
        console.print(f"data: {data}")
