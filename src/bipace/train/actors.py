"""From the configuration to the things it names: actors (shipped, or any folder) and the collector."""

from __future__ import annotations

from pathlib import Path

import torch

from bipace.envs.base import Suite
from bipace.envs.isolation import isolate
from bipace.policies import lora
from bipace.policies.hf import Actor
from bipace.policies.pretrained import CATALOGUE, cached_folder
from bipace.policies.vllm import VllmDecoder
from bipace.rollout.collect import Collector, Decoder
from bipace.train.config import Config, ConfigError

__all__ = ["SHIPPED", "actor_folder", "load_actor", "make_collector", "make_decoder", "reference_actor"]

SHIPPED = Path(__file__).resolve().parent.parent / "assets" / "actors"


def actor_folder(name: str) -> Path:
    """The folder of a shipped actor ("textcraft-small") or a fetched model ("smollm2-135m"), or the folder itself.

    A checkpoint folder (it holds `actor/`) and a run folder (it holds `best/` or `last/`) stand for the actor inside.

    Raises:
        ConfigError: none of these; a model that has not been fetched yet.
    """
    shipped = SHIPPED / name
    if "/" not in name and shipped.is_dir():
        return shipped
    fetched = cached_folder(name)
    if fetched is not None:
        return fetched
    folder = Path(name)
    for inner in ("actor", "best/actor", "last/actor"):
        if (folder / inner).is_dir():
            return folder / inner
    if folder.is_dir():
        return folder
    if name in CATALOGUE:
        raise ConfigError(f"actor.folder: {name!r} has not been fetched yet; run: bipace models fetch {name}")
    known = ", ".join([*(sorted(p.name for p in SHIPPED.iterdir()) if SHIPPED.is_dir() else ()), *CATALOGUE])
    raise ConfigError(f"actor.folder: no folder {name!r} and no shipped actor of that name (known names: {known})")


def load_actor(config: Config, checkpoint: Path | None = None) -> Actor:
    """The policy to train, on its device: the configured actor, or where a run goes on, its checkpoint's.

    Raises:
        ConfigError: bfloat16 weights without LoRA; a new run that starts from an adapter.
    """
    settings = config.actor
    if settings.dtype == "bfloat16" and not settings.lora_rank:
        # AdamW moves a weight by about the learning rate; a bfloat16 weight of 0.02 has neighbours 1e-4 away.
        raise ConfigError(
            "actor.dtype: bfloat16 without LoRA would round most updates away; set actor.lora_rank=32, or keep "
            "float32 weights with actor.autocast=true"
        )
    folder = actor_folder(settings.folder) if checkpoint is None else checkpoint / "actor"
    if checkpoint is None and (folder / lora.CONFIG).is_file():
        raise ConfigError(
            f"actor.folder: {folder} is a LoRA adapter; start from a whole model, made with: "
            f"bipace models merge {settings.folder} OUT"
        )
    actor = Actor.load(folder, device=settings.device, dtype=getattr(torch, settings.dtype))
    if settings.lora_rank and actor.adapter is None:
        actor.add_lora(
            rank=settings.lora_rank, alpha=settings.lora_alpha, targets=settings.lora_targets, seed=config.run.seed
        )
    return actor


def reference_actor(config: Config) -> Actor | None:
    """A second copy of the starting policy, or None where none is needed: no KL term, or LoRA.

    With LoRA the starting policy is the actor with its adapter switched off (`Actor.without_adapter`).
    """
    if config.update.kl_loss_coef == 0 or config.actor.lora_rank:
        return None
    return Actor.load(actor_folder(config.actor.folder), device=config.actor.device)


def make_decoder(config: Config, actor: Actor) -> Decoder:
    """What plays the episodes: the actor itself, or a vLLM with its weights.

    Raises:
        ModuleNotFoundError: rollout.engine=vllm, and vllm is not installed.
        ValueError: the installed vllm does not run on the actor's device.
    """
    if config.rollout.engine == "hf":
        return actor
    return VllmDecoder(actor, max_tokens=config.prompt.max_tokens, memory=config.rollout.engine_memory)


def make_collector(config: Config, suite: Suite, layer: int | None = None) -> Collector:
    """The collector a configuration describes; `layer` is the hidden state it keeps with each step."""
    limit = config.env.step_seconds
    return Collector(
        suite=suite if limit is None else isolate(suite, config.env.suite, limit),
        style=config.prompt.style,
        tagged=config.prompt.tagged,
        lowercase=config.prompt.lowercase,
        strict=config.prompt.strict,
        instructions=config.prompt.instructions,
        history_length=config.prompt.history_length,
        max_steps=config.env.max_steps or suite.max_steps,
        max_new_tokens=config.prompt.max_new_tokens,
        max_tokens=config.prompt.max_tokens,
        wave=config.rollout.parallel,
        layer=layer,
    )
