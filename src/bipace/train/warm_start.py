"""A small actor from nothing.

Demonstrations of a suite's planner, a tokenizer, imitation, and the record of it.

The parts are in `imitation.py`; here they are put in a row, and what was done is kept beside the weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bipace.envs.base import Suite, offers_of
from bipace.envs.registry import get_suite
from bipace.policies.hf import Actor
from bipace.rollout.collect import Collector
from bipace.rollout.panel import PanelResult, choose_panels, evaluate, panel_tasks
from bipace.rollout.prompts import Chat
from bipace.rollout.records import TokenSequence
from bipace.train.actors import make_collector, open_actor
from bipace.train.config import Config, ConfigError, load_config
from bipace.train.files import one_kind_of_full_disk, write_json
from bipace.train.imitation import SIZES, batches, code_tokens, demonstrate, encode, imitate, new_actor
from bipace.train.places import actor_folder
from bipace.train.stopped import refuse_aborted
from bipace.train.threads import use_threads

__all__ = ["WarmStart", "make_actor", "read_card"]

CARD = "imitation.json"


@dataclass(frozen=True)
class WarmStart:
    """Settings of a warm start.

    Attributes:
        suite: environment name.
        size: a key of SIZES.
        target: success rate on the training panel at which imitation stops.
        steps: at most this many updates.
        seed: of weights and order.
        start: an actor to go on from (its size and tokenizer stay), or None for a new one.
        every: updates between evaluations.
        lr: learning rate after the warm-up.
        demonstrations: training tasks shown, in split order.
        config_file: preset or TOML whose prompt limits, horizon and update.micro_tokens are used; None: the
            defaults.
        batch: demonstrations per update.
        turns: show only the first so many turns of each demonstration; None: all.
        context_weight: weight of predicting what the environment says.
        codes: exchange the codes in each demonstration for the first so many alone (see `batches`); None: for
            any.
    """

    suite: str = "textcraft"
    size: str = "small"
    target: float = 0.35
    steps: int = 6000
    seed: int = 0
    start: str | None = None
    every: int = 100
    lr: float = 3e-3
    demonstrations: int = 20_000
    config_file: Path | None = None
    batch: int = 64
    turns: int | None = None
    context_weight: float = 0.0
    codes: int | None = None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ConfigError(f"size: unknown {self.size!r}, expected one of {', '.join(SIZES)}")

    @property
    def command(self) -> str:
        """What a user would type for it."""
        parts = [
            f"bipace imitate OUT --suite {self.suite} --size {self.size} --target {self.target}",
            f"--steps {self.steps} --seed {self.seed} --every {self.every} --lr {self.lr:g} --batch "
            f"{self.batch}",
            f"--turns {self.turns}" if self.turns else "",
            f"--codes {self.codes}" if self.codes else "",
            f"--context-weight {self.context_weight:g}" if self.context_weight else "",
            f"--config {self.config_file}" if self.config_file else "",
            f"--start {self.start}" if self.start else "",
        ]
        return " ".join(part for part in parts if part)


def make_actor(
    out: Path,
    settings: WarmStart,
    *,
    on_update: Callable[[int, float], None] = lambda _step, _loss: None,
    on_panel: Callable[[int, str, PanelResult], None] = lambda _step, _panel, _result: None,
) -> dict[str, Any]:
    """Train a small actor from a planner's episodes and write it with a model card.

    Args:
        out: the new folder.
        settings: how.
        on_update: called with each update's number and loss.
        on_panel: called with the updates so far, the training panel's name and its result.

    Returns:
        What the model card says, as numbers; it stands in the folder as imitation.json.

    Raises:
        ConfigError: unknown names; a folder that is not empty; an expert that solves nothing within the
            horizon; demonstrations that are all too long.
        NothingPlayed: every episode of the panel was aborted by a failing environment.
    """
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out}: is not empty; name a new folder")
    config = load_config(settings.config_file, [f"env.suite={settings.suite}"])
    suite = get_suite(settings.suite)
    panels = choose_panels(suite, config.env.split, config.env.panel, config.env.held_out)
    actor, sequences = _material(settings, config, suite, panels.split)
    use_threads(actor, config.actor.threads)
    collector = make_collector(config, suite)
    card = _new_card(settings, actor, suite, panels.panel, len(sequences))

    def keep(step: int) -> None:
        card["updates"] = step
        with one_kind_of_full_disk(out):
            actor.save(out)
            write_json(out / CARD, card)

    def good_enough(step: int) -> bool:
        result = _judge(actor, collector, config, panels.panel)
        card["success"].append((step, result.success))
        card["score"].append((step, result.score))
        keep(step)
        on_panel(step, panels.panel, result)
        return result.success >= settings.target

    taken = imitate(
        actor,
        batches(sequences, settings.batch, settings.seed, code_tokens(actor.tokenizer), settings.codes),
        steps=settings.steps,
        lr=settings.lr,
        micro_tokens=config.update.micro_tokens,
        evaluate=good_enough,
        evaluate_every=settings.every,
        context_weight=settings.context_weight,
        progress=on_update,
    )
    keep(taken)
    return card


def _judge(actor: Actor, collector: Collector, config: Config, panel: str) -> PanelResult:
    result = evaluate(
        actor,
        collector,
        panel_tasks(collector.suite, panel),
        temperature=config.run.validation_temperature,
        generator=torch.Generator(device=actor.device).manual_seed(config.run.seed),
    )
    refuse_aborted(result.trajectories, f"on {panel}", "Mend the environment and imitate again")
    return result


def read_card(actor: str) -> dict[str, Any] | None:
    """The imitation record of an actor folder, or None where it has none."""
    path = actor_folder(actor) / CARD
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _material(
    settings: WarmStart, config: Config, suite: Suite, split: str
) -> tuple[Actor, list[TokenSequence]]:
    """The actor to begin with, and the demonstrations that fit its context."""
    horizon = config.env.max_steps or suite.max_steps
    shown = list(demonstrate(suite, panel_tasks(suite, split)[: settings.demonstrations], horizon))
    if not shown:
        raise ConfigError(
            f"--suite {settings.suite}: its expert solves no task of split {split!r} within {horizon} steps, "
            "so there is nothing to imitate; raise env.max_steps, or mend the suite's expert"
        )
    if settings.start is None:
        marks = offers_of(suite).marks
        actor = new_actor(SIZES[settings.size], shown, settings.seed, marks=marks)
    else:
        actor = open_actor(actor_folder(settings.start))
    chat, end = Chat(actor.tokenizer), actor.end_token_ids[0]
    encoded = (encode(chat, actor.tokenizer, d, end, settings.turns) for d in shown)
    kept = [s for s in encoded if len(s.tokens) <= config.prompt.max_tokens]
    if not kept:
        raise ConfigError(
            f"prompt.max_tokens: {config.prompt.max_tokens}, but all {len(shown)} demonstrations are longer; "
            "raise it in a TOML file given with --config"
        )
    return actor, kept


def _new_card(
    settings: WarmStart, actor: Actor, suite: Suite, panel: str, demonstrations: int
) -> dict[str, Any]:
    return {
        "command": settings.command,
        "start": read_card(settings.start) if settings.start else None,
        "parameters": sum(p.numel() for p in actor.model.parameters()),
        "demonstrations": demonstrations,
        "updates": 0,
        "panel": panel,
        "data": offers_of(suite).data_label,
        "success": [],
        "score": [],
    }
