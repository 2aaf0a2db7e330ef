"""What is true of a set of rollouts.

The value of every state and the advantage of every action taken, on disk.

A truth is collected once and judges any number of recipes afterwards. It is written as an npz file with the
arrays and a JSON file with its identity: the policy, tasks and settings it was made with. Another identity is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.core import segments
from bipace.core.steps import Floats, StepBatch
from bipace.files import whole, write_json, write_text

__all__ = ["SUFFIXES", "Truth", "join", "load_rollouts", "load_truth", "save_rollouts", "save_truth"]

SUFFIXES = (".npz", ".json", ".rollouts.jsonl")
"""Of the files that a re-rolled truth is kept in."""

_COLUMNS = ("task", "trajectory", "t", "reward", "terminated", "truncated", "observation", "action")


@dataclass(frozen=True, eq=False)
class Truth:
    """Rollouts and what is true of every step, in reward units.

    Attributes:
        batch: the table that recipes read; no features (`with_layer` adds them).
        value: [N] V of the state before the step, over the steps that remained.
        advantage: [N] r + gamma V' - V; V' = 0 behind an episode's last step.
        halves: [2, N] the same from each half of the re-rolls, or [0, N] where the truth is exact.
        error: [N] standard error of the advantage; 0 where it is exact.
        gradient: [N, W] a vector for each step whose inner products are those of the gradients of log
            pi(response), exactly or, for a large model, as a random sketch. W = 0: not known.
        layers: name -> [N, D] float32 state features.
        identity: what the truth is of: JSON values only.
    """

    batch: StepBatch
    value: Floats
    advantage: Floats
    halves: Floats
    error: Floats
    gradient: NDArray[np.float32]
    layers: Mapping[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])
    identity: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def with_layer(self, name: str | None) -> StepBatch:
        """The table with the features of one layer; None takes the last one, or none where there are none.

        Raises:
            ValueError: no such layer.
        """
        if name is None:
            name = next(reversed(list(self.layers)), None)
            if name is None:
                return self.batch
        if name not in self.layers:
            raise ValueError(
                f"layer: unknown {name!r}; this truth holds {', '.join(self.layers) or 'no features'}"
            )
        return replace(self.batch, features=self.layers[name])

    def take(self, rows: NDArray[np.int64]) -> Truth:
        """The truth of some of its trajectories."""
        return Truth(
            self.batch.take(rows), self.value[rows], self.advantage[rows], self.halves[:, rows],
            self.error[rows],
            self.gradient[rows], {k: v[rows] for k, v in self.layers.items()}, self.identity,
        )  # fmt: skip

    def first_members(self, group_size: int) -> Truth:
        """The truth of the first `group_size` trajectories of every prompt group.

        A smaller G on the same rollouts.

        Raises:
            ValueError: below 2, or more than some group has.
        """
        trajectory = segments.compact(self.batch.trajectory)
        first = segments.first_rows(trajectory)
        task = segments.compact(self.batch.task)[first]
        order = np.argsort(task, kind="stable")
        starts = np.flatnonzero(np.diff(task[order], prepend=-1))
        sizes = np.diff(np.r_[starts, len(order)])
        if group_size < 2 or group_size > int(self.identity.get("group_size", sizes.max())):
            raise ValueError(
                f"group_size: {group_size}, expected 2 to {self.identity.get('group_size', sizes.max())} "
                "(as collected)"
            )
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
        return self.take(np.flatnonzero(rank[trajectory] < group_size))


def join(truths: Sequence[Truth], identity: Mapping[str, Any]) -> Truth:
    """One truth of several with different prompt groups.

    Prompt groups, trajectories, observations and actions are numbered on, so that labels of different parts
    never meet. That is right because no cluster spans two prompt groups.
    """
    offsets = dict.fromkeys(("task", "trajectory", "observation", "action"), 0)
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in _COLUMNS}
    texts: list[str] = []
    for truth in truths:
        for name in _COLUMNS:
            values = getattr(truth.batch, name)
            columns[name].append(values + offsets[name] if name in offsets else values)
        texts += truth.batch.texts or []
        for name in offsets:
            own = int(getattr(truth.batch, name).max()) + 1
            offsets[name] += max(own, len(truth.batch.texts or ()) if name == "observation" else 0)
    batch = StepBatch(**{k: np.concatenate(v) for k, v in columns.items()}, texts=texts or None)

    def stack(name: str, axis: int = 0) -> NDArray[Any]:
        return np.concatenate([getattr(truth, name) for truth in truths], axis=axis)

    layers = {name: np.concatenate([truth.layers[name] for truth in truths]) for name in truths[0].layers}
    return Truth(
        batch, stack("value"), stack("advantage"), stack("halves", 1), stack("error"), stack("gradient"),
        layers,
        dict(identity),
    )  # fmt: skip


def save_truth(truth: Truth, path: Path) -> None:
    """Write PATH.npz and PATH.json, each whole or not at all.

    The JSON comes last and makes the truth valid.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: getattr(truth.batch, name) for name in _COLUMNS}
    arrays |= {name: getattr(truth, name) for name in ("value", "advantage", "halves", "error", "gradient")}
    arrays |= {f"layer:{name}": values for name, values in truth.layers.items()}
    with whole(path.with_name(path.name + ".npz")) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    described = {"identity": dict(truth.identity), "layers": list(truth.layers), "texts": truth.batch.texts}
    write_json(path.with_name(path.name + ".json"), described)


def save_rollouts(rollouts: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write PATH.rollouts.jsonl: what was said, a trajectory a line, in the order of the truth's rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(rollout, ensure_ascii=False) + "\n" for rollout in rollouts)
    write_text(path.with_name(path.name + SUFFIXES[2]), "".join(lines))


def load_rollouts(path: Path) -> list[dict[str, Any]]:
    """What `save_rollouts` wrote.

    Raises:
        ValueError: there is none: an exact truth has no rollouts in words.
    """
    file = path.with_name(path.name + SUFFIXES[2])
    if not file.is_file():
        raise ValueError(
            f"{file}: missing, so no other model can read these rollouts; collect the truth again"
        )
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def load_truth(path: Path, expected: Mapping[str, Any] | None = None) -> Truth | None:
    """Read a saved truth; None where there is none.

    Raises:
        ValueError: a truth of another policy, panel or setting than expected, naming what differs.
    """
    described, data = path.with_name(path.name + ".json"), path.with_name(path.name + ".npz")
    if not (described.is_file() and data.is_file()):
        return None
    content = json.loads(described.read_text(encoding="utf-8"))
    identity = content["identity"]
    if expected is not None and identity != json.loads(json.dumps(expected)):
        differing = sorted(k for k in identity.keys() | expected.keys() if identity.get(k) != expected.get(k))
        raise ValueError(
            f"{described}: is the truth of something else; these differ: {', '.join(differing)}. "
            "Name another folder with --out, or delete it"
        )
    with np.load(data, allow_pickle=False) as arrays:
        batch = StepBatch(**{name: arrays[name] for name in _COLUMNS}, texts=content["texts"])
        layers = {name: arrays[f"layer:{name}"] for name in content["layers"]}
        parts = [arrays[name] for name in ("value", "advantage", "halves", "error", "gradient")]
    return Truth(batch, *parts, layers=layers, identity=identity)
