"""In how many shards an iteration is computed, and by how many processes.

The shards decide the bits of a run: each plays its own part of the prompt groups with random numbers of its
own, and the gradients of a mini-batch are added shard by shard. So their number is a setting of the run. The
processes only decide whether the shards are computed side by side or one after the other, so their number may
depend on the machine and may change when a run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bipace.train.config import Config, ConfigError
from bipace.train.threads import usable_cores

__all__ = ["Split", "choose_split", "cut", "shard_seeds"]


@dataclass(frozen=True)
class Split:
    """Shards of an iteration, and processes that compute them.

    Attributes:
        shards: parts with random numbers of their own.
        processes: this one included; at most one a shard.
    """

    shards: int
    processes: int


def choose_split(config: Config, *, threads: int, cores: int | None = None) -> Split:
    """The split of a run's iterations: `actor.shards`, and as many processes as the cores have room for.

    A small actor gains nothing from a second thread; two shards use the second core (the presets `alfworld`
    and `webshop`). A larger one fills the cores with threads, and a GPU is one.

    Args:
        config: the run.
        threads: CPU threads of each process.
        cores: how many this process may use; None looks.

    Raises:
        ConfigError: more than one process for a GPU or for vLLM.
    """
    actor = config.actor
    here = actor.device.startswith("cpu") and config.rollout.engine == "hf"
    if not here and (actor.processes or 1) > 1:
        raise ConfigError(
            f"actor.processes: {actor.processes}, but only an actor that samples by itself on the CPU has "
            "use for more than one; use actor.processes=1"
        )
    free = (usable_cores() if cores is None else cores) // max(threads, 1)
    return Split(actor.shards, min(actor.shards, actor.processes or (max(1, free) if here else 1)))


def cut(tasks: Sequence[str], shards: int) -> list[Sequence[str]]:
    """The tasks in `shards` runs of neighbours, as even as they go; the first are the longer ones."""
    ends = [len(tasks) // shards * k + min(k, len(tasks) % shards) for k in range(shards + 1)]
    return [tasks[start:end] for start, end in pairwise(ends)]


def shard_seeds(seed: int, shards: int) -> list[int]:
    """A seed for each shard; the first is the given one, so that one shard draws as an unsplit run."""
    return [seed, *(int(x) for x in np.random.default_rng(seed).integers(2**63, size=shards - 1))]
