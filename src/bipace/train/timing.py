"""Where the time of an iteration goes."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Beside", "Clock", "Slowness", "peak_memory_mb", "waited_seconds"]

# nanoseconds on a core, nanoseconds ready but without one, slices
_SCHEDULER = Path("/proc/thread-self/schedstat")


class Beside:
    """What the run's other processes say of themselves: memory and waiting."""

    def __init__(self) -> None:
        self._memory: dict[int, float] = {}
        self._waited: dict[int, tuple[float, float]] = {}  # when first heard of, and now

    def note(self, process: int, memory_mb: float, waited: float | None) -> None:
        """Take down what a process says: the most memory it has held and how long it has waited, so far."""
        self._memory[process] = memory_mb
        if waited is not None:
            first, _ = self._waited.get(process, (waited, waited))
            self._waited[process] = first, waited

    @property
    def memory_mb(self) -> float:
        """MiB of all of them together, at most."""
        return sum(self._memory.values())

    @property
    def waited(self) -> float:
        """Seconds that the one that waited longest has waited since it was first heard of."""
        return max((now - first for first, now in self._waited.values()), default=0.0)


class Clock:
    """Seconds by part of an iteration: `with clock("rollout"): ...`.

    Args:
        beside: the run's other processes, whose memory and waiting count too.
    """

    def __init__(self, beside: Beside | None = None) -> None:
        self.parts: dict[str, float] = {}
        self._beside = beside or Beside()
        self._start, self._waited = time.perf_counter(), waited_seconds()
        self._waited_beside = self._beside.waited

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count the time inside as this part's."""
        start = time.perf_counter()
        yield
        self.parts[part] = self.parts.get(part, 0.0) + time.perf_counter() - start

    def metrics(self, tokens: int) -> dict[str, float]:
        """Seconds by part and in all, tokens a second, shares of credit and waiting, peak memory in MiB."""
        total = time.perf_counter() - self._start
        waited = waited_seconds()
        before = self._waited
        beside = self._beside.waited - self._waited_beside
        return {
            **{f"timing_s/{part}": seconds for part, seconds in self.parts.items()},
            "timing_s/iteration": total,
            "perf/tokens_per_s": tokens / total,
            "perf/credit_share": (self.parts.get("credit", 0.0) + self.parts.get("features", 0.0)) / total,
            **(
                {}
                if waited is None or before is None
                else {"perf/waited_share": min(1.0, max(waited - before, beside) / total)}
            ),
            "perf/peak_memory_mb": peak_memory_mb() + self._beside.memory_mb,
        }


class Slowness:
    """Notices iterations that take far longer, token for token, than the first, and says why once a spell.

    The first three iterations are the measure (their median). Twice as slow begins a spell, one and a half
    times as slow or better ends it. Where the first iterations had to wait for a core already, that is said
    instead.
    """

    FIRST, SLOW, OVER, WAITING = 3, 2.0, 1.5, 0.25

    def __init__(self) -> None:
        self._first: list[float] = []
        self._told = False

    def notice(self, metrics: Mapping[str, float]) -> str:
        """What to say about an iteration with these metrics (`Clock.metrics`); empty: nothing."""
        rate, waited = metrics.get("perf/tokens_per_s", 0.0), metrics.get("perf/waited_share", 0.0)
        if rate <= 0:
            return ""
        if len(self._first) < self.FIRST:
            self._first.append(rate)
            if self._told or waited < 0.5:
                return ""
            self._told = True
            return f"{waited:.0%} of the iteration waited for a core: other processes are using the cores"
        ratio = statistics.median(self._first) / rate
        if ratio < self.OVER:
            self._told = False
        if ratio < self.SLOW or self._told:
            return ""
        self._told = True
        had = "although this process had its core (heat, swapping, or longer episodes?)"
        why = "other processes are using the cores" if waited >= self.WAITING else had
        return f"{ratio:.2g} x slower than the first iterations: {why}"


def peak_memory_mb() -> float:
    """The most memory that this process has held so far, MiB."""
    scale = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def waited_seconds() -> float | None:
    """Seconds so far in which this thread could have run but had no core.

    None where the system does not tell.
    """
    try:
        return int(_SCHEDULER.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
