"""Where the time of an iteration goes."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Clock", "Slowness"]

_SCHEDULER = Path(
    "/proc/thread-self/schedstat"
)  # nanoseconds on a core, nanoseconds ready but without one, slices


class Clock:
    """Seconds by part of an iteration: `with clock("rollout"): ...`."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._start, self._waited = time.perf_counter(), _waited_seconds()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count the time inside as this part's."""
        start = time.perf_counter()
        yield
        self.parts[part] = self.parts.get(part, 0.0) + time.perf_counter() - start

    def metrics(self, tokens: int) -> dict[str, float]:
        """Seconds by part and in all, tokens a second, shares of credit and of waiting, peak memory in MiB."""
        total = time.perf_counter() - self._start
        waited = _waited_seconds()
        before = self._waited
        scale = 1024**2 if sys.platform == "darwin" else 1024
        return {
            **{f"timing_s/{part}": seconds for part, seconds in self.parts.items()},
            "timing_s/iteration": total,
            "perf/tokens_per_s": tokens / total,
            "perf/credit_share": (self.parts.get("credit", 0.0) + self.parts.get("features", 0.0)) / total,
            **(
                {}
                if waited is None or before is None
                else {"perf/waited_share": min(1.0, (waited - before) / total)}
            ),
            "perf/peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale,
        }


class Slowness:
    """Notices iterations that take far longer than the first ones did, token for token, and says why once a spell.

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
            return f"{waited:.0%} of the iteration went by waiting for a core: other processes are using the cores"
        ratio = statistics.median(self._first) / rate
        if ratio < self.OVER:
            self._told = False
        if ratio < self.SLOW or self._told:
            return ""
        self._told = True
        had = "although this process had its core (heat, swapping, or longer episodes?)"
        why = "other processes are using the cores" if waited >= self.WAITING else had
        return f"{ratio:.2g} x slower than the first iterations: {why}"


def _waited_seconds() -> float | None:
    """Seconds so far in which this thread could have run but had no core; None where the system does not tell."""
    try:
        return int(_SCHEDULER.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
