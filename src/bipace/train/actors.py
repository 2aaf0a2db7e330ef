"""From the configuration to the things it names: the actor, its reference, the engine and the collector."""

from __future__ import annotations

from pathlib import Path

import torch

from bipace.envs.base import Suite
from bipace.envs.isolation import isolate
from bipace.policies import lora
from bipace.policies.hf import Actor
from bipace.policies.vllm import VllmDecoder
from bipace.rollout.collect import Collector, Decoder
from bipace.rollout.prompts import Chat
from bipace.train.config import Config, ConfigError
from bipace.train.places import SHIPPED, actor_folder

__all__ = [
    "SHIPPED",
    "actor_folder",
    "load_actor",
    "make_collector",
    "make_decoder",
    "open_actor",
    "reference_actor",
]


def load_actor(config: Config, checkpoint: Path | None = None) -> Actor:
    """The policy to train, on its device: the configured actor, or where a run goes on, its checkpoint's.

    Raises:
        ConfigError: bfloat16 weights without LoRA; a new run that starts from an adapter.
    """
    settings = config.actor
    if settings.dtype == "bfloat16" and not settings.lora_rank:
        # AdamW moves a weight by about the learning rate; a bfloat16 weight of 0.02 has neighbours 1e-4 away.
        raise ConfigError(
            "actor.dtype: bfloat16 without LoRA would round most updates away; set actor.lora_rank=32, or "
            "keep float32 weights with actor.autocast=true"
        )
    folder = actor_folder(settings.folder) if checkpoint is None else checkpoint / "actor"
    if checkpoint is None and (folder / lora.CONFIG).is_file():
        raise ConfigError(
            f"actor.folder: {folder} is a LoRA adapter; start from a whole model, made with: bipace models "
            f"merge {settings.folder} OUT"
        )
    actor = open_actor(folder, device=settings.device, dtype=getattr(torch, settings.dtype))
    if settings.lora_rank and actor.adapter is None:
        actor.add_lora(
            rank=settings.lora_rank,
            alpha=settings.lora_alpha,
            targets=settings.lora_targets,
            seed=config.run.seed,
        )
    return actor


def open_actor(folder: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Actor:
    """The actor of a folder, on a device that is there and with weights that are numbers.

    Raises:
        ConfigError: no such device; a damaged file; weights that are not finite.
        FileNotFoundError, ModuleNotFoundError, ValueError: what `bipace.policies.hf.Actor.load` refuses.
    """
    _check_device(device)
    try:
        actor = Actor.load(folder, device=device, dtype=dtype)
        Chat(actor.tokenizer).prompt("")  # a template that cannot be read is found before anything is played
    except (FileNotFoundError, ModuleNotFoundError, ConfigError, MemoryError):
        raise
    except Exception as error:  # the libraries that read weights and tokenizers raise each its own
        if isinstance(error, ValueError) and str(folder) in str(error):
            raise
        what = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(
            f"actor.folder: {folder} cannot be loaded, a file in it is damaged or does not fit: {what}"
        ) from error
    for name, weight in actor.model.state_dict().items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise ConfigError(
                f"actor.folder: {folder}: the weights {name} are not all finite numbers; take an earlier "
                f"checkpoint"
            )
    return actor


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"actor.device: {device!r}, expected cpu or cuda") from error
    if kind.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"actor.device: {device!r}, but torch finds no CUDA device here; use actor.device=cpu"
        )
    if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"actor.device: {device!r}, but there are {torch.cuda.device_count()} CUDA devices")
    if kind.type not in ("cpu", "cuda"):
        raise ConfigError(f"actor.device: {device!r}, expected cpu or cuda")


def reference_actor(config: Config) -> Actor | None:
    """A second copy of the starting policy, or None where none is needed: no KL term, or LoRA.

    With LoRA the starting policy is the actor with its adapter switched off (`Actor.without_adapter`).
    """
    if config.update.kl_loss_coef == 0 or config.actor.lora_rank:
        return None
    return open_actor(actor_folder(config.actor.folder), device=config.actor.device)


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
        max_steps=_horizon(config, suite),
        max_new_tokens=config.prompt.max_new_tokens,
        max_tokens=config.prompt.max_tokens,
        parallel=config.rollout.parallel,
        layer=layer,
    )


def _horizon(config: Config, suite: Suite) -> int:
    """`env.max_steps`, or the suite's own; a user's suite may say anything."""
    steps: object = suite.max_steps if config.env.max_steps is None else config.env.max_steps
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ConfigError(
            f"env.suite: {suite.name}.max_steps is {steps!r}, expected a whole number of at least 1; mend "
            "the suite or set env.max_steps"
        )
    return steps
