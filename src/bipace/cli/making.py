"""`bipace imitate` behind its options: a small actor learns the expert's episodes and is written with its card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bipace.cli.session import progress_bar
from bipace.envs.base import offers_of
from bipace.envs.registry import get_suite
from bipace.policies.hf import Actor
from bipace.rollout.collect import Collector
from bipace.rollout.panel import PanelResult, choose_panels, evaluate, panel_tasks
from bipace.rollout.prompts import Chat
from bipace.train.actors import make_collector, open_actor
from bipace.train.config import Config, ConfigError, load_config
from bipace.train.files import one_kind_of_full_disk, write_json
from bipace.train.imitation import SIZES, batches, code_tokens, demonstrate, encode, imitate, new_actor
from bipace.train.loop import refuse_aborted
from bipace.train.places import actor_folder
from bipace.train.threads import use_threads

__all__ = ["make_actor", "read_card"]


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
    shown = list(demonstrate(family, panel_tasks(family, panels.split)[:demonstrations], horizon))
    if not shown:
        raise ConfigError(
            f"--suite {suite}: its expert solves no task of split {panels.split!r} within {horizon} steps, so there is "
            "nothing to imitate; raise env.max_steps, or mend the suite's expert"
        )
    marks = offers_of(family).marks
    actor = new_actor(SIZES[size], shown, seed, marks=marks) if start is None else open_actor(actor_folder(start))
    use_threads(actor, config.actor.threads)
    chat, end = Chat(actor.tokenizer), actor.end_token_ids[0]
    sequences = [
        s for d in shown if len((s := encode(chat, actor.tokenizer, d, end, turns)).tokens) <= config.prompt.max_tokens
    ]
    if not sequences:
        raise ConfigError(
            f"prompt.max_tokens: {config.prompt.max_tokens}, but all {len(shown)} demonstrations are longer; "
            "raise it in a TOML file given with --config"
        )
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
        "data": offers_of(family).data_label,
        "success": [],
        "score": [],
    }

    def keep(step: int) -> None:
        card["updates"] = step
        with one_kind_of_full_disk(out):
            actor.save(out)
            write_json(out / "imitation.json", card)

    with progress_bar(Console(stderr=True)) as progress:
        bar = progress.add_task("imitation", total=steps, note="")

        def panel_success(step: int) -> bool:
            result = _panel(actor, collector, config, panel_tasks(family, panels.panel))
            refuse_aborted(result.trajectories, f"on {panels.panel}", "Mend the environment and imitate again")
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
