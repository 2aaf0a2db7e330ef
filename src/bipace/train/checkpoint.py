"""Checkpoints: a Hugging Face folder with the trainer's state beside it, written whole or not at all.

A run folder holds `checkpoints/iteration-000040/` and two links, `last` and `best`. A checkpoint is written under a
temporary name and renamed; a link is replaced in one step; so a run killed at any moment finds its last complete state.
All randomness of an iteration follows from (seed, iteration), so no stream has to be saved.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bipace.policies.hf import Actor

__all__ = ["load_optimizer", "read_state", "save_checkpoint", "write_json"]

_OPTIMIZER, _STATE = "optimizer.safetensors", "trainer_state.json"


def save_checkpoint(
    folder: Path, actor: Actor, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, best: bool
) -> Path:
    """Write the actor, the optimizer and the trainer state of one iteration; point `last` (and `best`) at it.

    Args:
        folder: the run folder.
        actor: the policy.
        optimizer: AdamW over its parameters.
        state: JSON, with the integer key "iteration".
        best: True where this is the best checkpoint so far.

    Returns:
        The checkpoint's folder.
    """
    name = f"iteration-{state['iteration']:06d}"
    final = folder / "checkpoints" / name
    building = folder / "checkpoints" / f".building-{name}"
    for leftover in (building, final):
        if leftover.exists():
            shutil.rmtree(leftover)
    building.mkdir(parents=True)
    actor.save(building / "actor")
    tensors = {
        f"{index}.{key}": value.contiguous() if value.ndim else value.reshape(1)
        for index, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }
    save_file(tensors, building / _OPTIMIZER)
    write_json(building / _STATE, state)
    building.replace(final)
    _point(folder / "last", final)
    if best:
        _point(folder / "best", final)
    _prune(folder)
    return final


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The trainer state of a checkpoint. Raises FileNotFoundError where there is none."""
    return json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Bring the optimizer back to the checkpoint's moments, bit for bit."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in load_file(checkpoint / _OPTIMIZER).items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value.reshape(()) if key == "step" else value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def write_json(path: Path, content: Any) -> None:
    """JSON written to a temporary sibling and renamed, so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _point(link: Path, target: Path) -> None:
    temporary = link.with_name(f".{link.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.relative_to(link.parent), target_is_directory=True)
    temporary.replace(link)


def _prune(folder: Path) -> None:
    """Delete checkpoints that neither `last` nor `best` points at."""
    kept = {(folder / link).resolve() for link in ("last", "best") if (folder / link).is_symlink()}
    for checkpoint in (folder / "checkpoints").iterdir():
        if checkpoint.resolve() not in kept:
            shutil.rmtree(checkpoint)
