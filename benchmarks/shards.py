"""What a second process gains.

An iteration of each CPU preset in one shard, in two, and in two by two processes.

    python benchmarks/shards.py            # about three minutes; writes benchmarks/results/shards.json
    python benchmarks/shards.py --turns 9

The three are measured in turns, so that a drift of the machine falls on all of them; each plays the same
iteration (a learning rate of 1e-12), and the median of the turns is taken. Ratios are to one shard. What is
measured should share the machine with nothing else.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import bipace
from bipace.train.config import load_config
from bipace.train.run import Run
from bipace.train.threads import usable_cores

RESULT = Path(__file__).parent / "results" / "shards.json"
PRESETS = ("demo", "alfworld", "webshop")
WAYS = {"one shard": (1, 1), "two shards, one process": (2, 1), "two shards, two processes": (2, 2)}


def measure(preset: str, turns: int) -> list[dict[str, Any]]:
    """The ways of one preset, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Run] = {}
        for way, (shards, processes) in WAYS.items():
            split = (f"actor.shards={shards}", f"actor.processes={processes}", "actor.threads=1")
            config = load_config(
                Path(preset), ("env.held_out=[]", "update.lr=1e-12", "update.lr_decay=0", *split)
            )
            runs[way] = Run(config, Path(folder) / way.replace(" ", "-"))
            runs[way].step()  # warm; the second process is started here
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(turns):
            for way in list(WAYS)[:: 1 if turn % 2 == 0 else -1]:
                runs[way].iteration = 0
                times[way].append(runs[way].step()["timing_s/iteration"])
        for run in runs.values():
            run.shards.close()
    seconds = {way: statistics.median(found) for way, found in times.items()}
    return [
        {
            "figure": f"{preset}: an iteration, {way}",
            "preset": preset,
            "way": way,
            "unit": "ratio to one shard",
            "value": seconds[way] / seconds["one shard"],
            "seconds": seconds[way],
            "turns": times[way],
        }
        for way in WAYS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    figures = [figure for preset in PRESETS for figure in measure(preset, turns)]
    for figure in figures:
        print(f"{figure['figure']:55} {figure['seconds']:6.2f} s  {figure['value']:.2f}")
    about = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{platform.machine()}, {usable_cores()} cores",
        "versions": {"python": platform.python_version(), "bipace": bipace.__version__},
    }
    RESULT.write_text(json.dumps({"figures": figures, **about}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
