"""Checkpoints: a Hugging Face folder with the trainer's state beside it, written whole or not at all.

A run folder holds `checkpoints/iteration-000040/` and two links, `last` and `best`. A checkpoint is written
under a temporary name, brought to the disk and renamed; a link is replaced in one step; so a run killed at
any moment finds its last complete state. All randomness of an iteration follows from (seed, iteration), so no
stream has to be saved.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from bipace.policies.hf import Actor
from bipace.train.checkpoints import STATE, place, point, prune, remove, seal
from bipace.train.config import ConfigError
from bipace.train.files import one_kind_of_full_disk, to_disk, write_json

__all__ = ["load_optimizer", "save_checkpoint"]

_OPTIMIZER = "optimizer.safetensors"


def save_checkpoint(
    folder: Path,
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    best: bool,
    kept: tuple[int, ...] = (),
) -> Path:
    """Write the actor, the optimizer and the trainer state of one iteration; point `last` (and `best`) at it.

    Args:
        folder: the run folder.
        actor: the policy.
        optimizer: AdamW over its parameters.
        state: JSON, with the integer key "iteration".
        best: True where this is the best checkpoint so far.
        kept: earlier iterations whose checkpoints stay although no link points at them.

    Returns:
        The checkpoint's folder.

    Raises:
        OSError: it could not be written; what was there before is untouched. A full disk has errno ENOSPC,
            whichever library met it.
    """
    final = place(folder, state["iteration"])
    building = final.with_name(f".building-{final.name}")
    if building.exists():
        shutil.rmtree(building)
    try:
        with one_kind_of_full_disk(folder):
            building.mkdir(parents=True)
            actor.save(building / "actor")
            save_file(_tensors(optimizer), building / _OPTIMIZER)
            write_json(building / STATE, state)
            seal(building)
            for path in (*building.rglob("*"), building):
                to_disk(path)
            if final.exists() and not remove(final):  # the one that a killed run made and that is made again
                final.replace(_aside(final))
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    building.replace(final)
    to_disk(final.parent)
    point(folder / "last", final)
    if best:
        point(folder / "best", final)
    prune(folder, kept)
    return final


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Bring the optimizer back to the checkpoint's moments, bit for bit.

    Raises:
        ConfigError: the file is damaged, or belongs to another model: an entry has not its parameter's shape.
    """
    path = checkpoint / _OPTIMIZER
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shapes = [parameter.shape for parameter in parameters]
    state: dict[int, dict[str, torch.Tensor]] = {}
    try:
        for name, value in load_file(path).items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = value.reshape(()) if key == "step" else value
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{path}: is damaged ({error}); put an undamaged copy there or start a new run"
        ) from error
    for index, entry in state.items():
        fits = index < len(shapes) and {"step", "exp_avg", "exp_avg_sq"} == entry.keys()
        if not fits or any(value.shape != shapes[index] for key, value in entry.items() if key != "step"):
            raise ConfigError(
                f"{path}: does not fit the actor (entry {index} of {len(shapes)}); it belongs to another "
                f"checkpoint"
            )
    trained = sum(parameter.requires_grad for parameter in parameters)  # of adapters, a few of all
    if state and len(state) != trained:
        raise ConfigError(f"{path}: holds {len(state)} entries for the actor's {trained} trained parameters")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{index}.{key}": value.contiguous() if value.ndim else value.reshape(1)
        for index, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }


def _aside(path: Path) -> Path:
    """A free name beside the path, for what stands there and is not ours to delete."""
    return next(p for n in range(1, 10_000) if not (p := path.with_name(f"{path.name}.kept-{n}")).exists())
