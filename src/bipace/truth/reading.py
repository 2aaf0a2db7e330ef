"""A second geometry: the same rollouts as another model reads them.

A truth does not depend on the features, so that once collected it judges the hidden states of any model: the
text of the rollouts is rendered by that model's own chat template and tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.files import whole
from bipace.policies.chat_states import read_chat
from bipace.policies.hf import Actor
from bipace.truth.rerolls import weights_hash
from bipace.truth.table import Truth, load_rollouts

__all__ = ["read_by"]


def read_by(
    truth: Truth,
    path: Path,
    folder: Path,
    layers: Sequence[int | float],
    *,
    group_size: int | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Truth:
    """The truth with the features of another model in place of its own; kept beside it as PATH.read-NAME.npz.

    Prompt groups in which no step was ever rewarded are not read, since every recipe gives them 0 whatever
    the features say: their features are zero vectors. (Where every trajectory won, returns-to-go still differ
    with the steps left.)

    Args:
        truth: as loaded from PATH.
        path: where it is kept.
        folder: a local Hugging Face folder.
        layers: which of its layers, as `Actor.layer_index` takes them; recipes that name none get the last.
        group_size: read the first trajectories of each group alone, and give their truth.
        progress: called with the number of finished trajectories.

    Raises:
        ValueError: no rollouts beside the truth, or others than its own; a layer the model does not have;
            what `Truth.first_members` refuses.
    """
    rollouts = load_rollouts(path)
    if sum(len(rollout["steps"]) for rollout in rollouts) != len(truth.batch):
        raise ValueError(f"{path}: the rollouts beside it are not its own; collect the truth again")
    if group_size is not None:
        truth = truth.first_members(group_size)
        rollouts = [rollout for rollout in rollouts if rollout["member"] < group_size]
        if sum(len(rollout["steps"]) for rollout in rollouts) != len(truth.batch):
            raise ValueError(f"{path}: an episode was aborted, so its groups cannot be cut; read them whole")
    identity = f"{weights_hash(folder)} {list(layers)} {group_size} rewarded groups"
    file = path.with_name(f"{path.name}.read-{folder.name}.npz")
    kept = _load(file, identity)
    if kept is None:
        kept = _read(rollouts, Actor.load(folder), layers, progress)
        with whole(file) as temporary, temporary.open("wb") as opened:
            arrays: dict[str, Any] = {"identity": np.array(identity), **kept}
            np.savez(opened, **arrays)
    return replace(truth, layers=kept, identity={**truth.identity, "read_by": folder.name})


def _load(file: Path, identity: str) -> dict[str, NDArray[np.float32]] | None:
    if not file.is_file():
        return None
    with np.load(file, allow_pickle=False) as arrays:
        if str(arrays["identity"]) != identity:
            return None
        return {name: arrays[name] for name in arrays.files if name != "identity"}


def _read(
    rollouts: Sequence[Mapping[str, Any]],
    actor: Actor,
    layers: Sequence[int | float],
    progress: Callable[[int], None],
) -> dict[str, NDArray[np.float32]]:
    chosen = [actor.layer_index(layer) for layer in layers]
    rewarded = {rollout["task"] for rollout in rollouts if any(step["reward"] for step in rollout["steps"])}
    found: list[NDArray[np.float32]] = []
    for done, rollout in enumerate(rollouts):
        if rollout["task"] in rewarded:
            found.append(read_chat(actor, _messages(rollout), chosen))
        else:
            found.append(np.zeros((len(rollout["steps"]), len(chosen), actor.hidden_size), np.float32))
        progress(done + 1)
    stacked = np.concatenate(found)
    return {str(layer): np.ascontiguousarray(stacked[:, i]) for i, layer in enumerate(chosen)}


def _messages(rollout: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        message
        for step in rollout["steps"]
        for message in (
            {"role": "user", "content": step["observation"]},
            {"role": "assistant", "content": step["response"]},
        )
    ]
