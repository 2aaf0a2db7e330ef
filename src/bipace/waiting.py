"""How threads wait for work: asleep. Set before torch is imported, which reads it once.

By default OpenMP's threads spin between two pieces of work. On a machine that does anything else, a spinning
thread takes the core that the thread it waits for would need: two of them made an iteration ten times as long
as one. Asleep, they cost a few microseconds a wake-up. What the user has set in OMP_WAIT_POLICY stays.
"""

from __future__ import annotations

import os
import sys

__all__ = ["WAITS_ASLEEP"]

_NAME = "OMP_WAIT_POLICY"
_torch_came_first = "torch" in sys.modules and _NAME not in os.environ
os.environ.setdefault(_NAME, "PASSIVE")

WAITS_ASLEEP = os.environ[_NAME].upper() == "PASSIVE" and not _torch_came_first
"""True where the threads of this process wait asleep.

False where torch was imported before bipace, or the user chose otherwise: then more than one thread is a risk
(`bipace.train.threads`)."""
