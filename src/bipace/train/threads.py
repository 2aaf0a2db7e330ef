"""How many CPU threads a model gets: one where more gain nothing, and never more than there are cores.

The number depends on the model and the machine alone, not on a measurement: sums of floats round by the
number of threads, so a number that changes with the load would change the bits of a run that is resumed.
Measured by `benchmarks/busy.py`: actors of up to a million parameters gain nothing from a second thread,
alone or beside other work; larger ones do.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bipace.waiting import WAITS_ASLEEP

__all__ = ["SMALL", "Threads", "choose_threads", "usable_cores", "use_threads"]

SMALL = 10_000_000  # parameters below which one thread is as fast as two
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Threads:
    """A number of CPU threads, and the reason in words."""

    number: int
    why: str


def choose_threads(
    parameters: int,
    asked: int | None,
    *,
    device: str = "cpu",
    cores: int | None = None,
    asleep: bool = WAITS_ASLEEP,
) -> Threads:
    """The number of threads for a model.

    In this order: what the configuration asks for (`actor.threads`), what OMP_NUM_THREADS says, one where the
    model is small or its threads would spin, else all cores.

    Args:
        parameters: of the model.
        asked: `actor.threads`, or None.
        device: where the model runs.
        cores: how many this process may use; None looks.
        asleep: threads wait asleep (`bipace.waiting`).
    """
    cores = usable_cores() if cores is None else cores
    if asked is not None:
        if asked > cores:
            return Threads(
                cores, f"actor.threads={asked} is more than the {cores} cores this process may use"
            )
        return Threads(asked, "actor.threads")
    named = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if named.isdecimal() and 0 < int(named) <= cores:
        return Threads(int(named), "OMP_NUM_THREADS")
    if not device.startswith("cpu"):
        return Threads(cores, f"the model runs on {device}")
    if parameters < SMALL:
        return Threads(
            1, f"{parameters / 1e6:.2f} M parameters: below {SMALL / 1e6:g} M a second thread gains nothing"
        )
    if not asleep:
        return Threads(
            1, "threads would spin while they wait: import bipace before torch, or set actor.threads"
        )
    return Threads(cores, f"{parameters / 1e6:.0f} M parameters and {cores} cores")


def use_threads(actor: Any, asked: int | None) -> Threads:
    """Give torch the threads that fit the actor (`bipace.policies.hf.Actor`), and return how many and why."""
    import torch

    found = choose_threads(sum(p.numel() for p in actor.model.parameters()), asked, device=str(actor.device))
    torch.set_num_threads(found.number)
    return found


def usable_cores() -> int:
    """Cores this process may use: its affinity, and a container's quota rounded up."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return max(1, min(affinity, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such limit here
        return affinity
