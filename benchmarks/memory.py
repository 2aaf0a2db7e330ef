"""Resident memory over 200 iterations of the real trainer: a line through iterations 50 to 200 must be
flat.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from datetime import datetime, timezone
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
import torch

from bipace.train.config import load_config
from bipace.train.loop import Run, train

RESULT = Path(__file__).resolve().parent / "results" / "memory.json"
SETTINGS = (
    "rollout.tasks=2", "rollout.group_size=4", "env.max_steps=4", "env.split=demo", "env.panel=depth4-panel",
    "env.held_out=[]", "run.iterations=200", "run.validate_every=50", "run.save_every=50", "actor.threads=1",
)  # fmt: skip


def resident_mb() -> float:
    """Resident memory of this process now, in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def main() -> None:
    found: dict[int, float] = {}

    def note(run: Run, _metrics: dict[str, float]) -> None:
        if run.iteration and run.iteration % 10 == 0:
            found[run.iteration] = resident_mb()

    with tempfile.TemporaryDirectory() as folder:
        train(load_config(overrides=SETTINGS), Path(folder) / "run", on_iteration=note)
    late = {iteration: mb for iteration, mb in found.items() if iteration >= 50}
    slope = float(np.polyfit(list(late), list(late.values()), 1)[0])
    document = {
        "figures": [
            {"figure": "growth of resident memory, iterations 50 to 200", "unit": "MiB an iteration",
            "value": slope,
             "peer or floor": 0.0, "ratio": max(late.values()) / min(late.values()), "resident_mb": found}
        ],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "python benchmarks/memory.py",
    }  # fmt: skip
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document["figures"], indent=1))


if __name__ == "__main__":
    main()
