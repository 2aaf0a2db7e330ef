"""One training iteration: 128 episodes of exactly 8 steps and one update, by part, one thread.

    OMP_NUM_THREADS=1 python benchmarks/iteration.py

Floor: decoding and updating every token once (also a prompt that eight episodes begin with), at 2 and 6 FLOPs
per parameter and token. The features ride in the decoding forward; their cost is measured as the difference
between the same rollouts with and without them, in turns. Writes benchmarks/results/iteration.json.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import torch

from bipace.core.advantages import advantages
from bipace.envs.base import Turn
from bipace.envs.textcraft import TextCraft, suite
from bipace.envs.textcraft.tasks import open_task
from bipace.policies.packing import pack
from bipace.rollout.table import to_rows
from bipace.train.config import load_config
from bipace.train.loop import Run
from bipace.train.scored import score_sequences

RESULT = Path(__file__).parent / "results" / "iteration.json"
TARGETS = {"textcraft-small": 2.5, "textcraft-medium": 6.5}  # seconds
REPEATS = 5


class Endless(TextCraft):
    """TextCraft that plays on after the goal, so that every episode has exactly the horizon's steps."""

    def step(self, action: str) -> Turn:
        return dataclasses.replace(super().step(action), terminated=False)


@dataclasses.dataclass(frozen=True)
class EndlessSuite:
    """The TextCraft suite with endless episodes."""

    name: str = "textcraft-endless"
    max_steps: int = 8
    instructions: str = suite().instructions
    splits: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=lambda: suite().splits)

    def make(self) -> Endless:
        return Endless(open_task)

    def family(self, task: str) -> str:
        return suite().family(task)

    def expert(self, task: str) -> tuple[str, ...]:
        return suite().expert(task)


def gemm_flops() -> float:
    """FLOP/s of one thread in a float32 product of the update's shape: what the floor is counted in."""
    a, b = torch.randn(4096, 256), torch.randn(256, 1024)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * 4096 * 256 * 1024 / best


def measure(actor: str) -> list[dict[str, object]]:
    config = load_config(
        overrides=[f"actor.folder={actor}", f"env.suite={Path(__file__).resolve()}:SUITE", "env.max_steps=8",
                   "actor.threads=1", "env.held_out=[]"]
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder))
        run.step()
        logs = [run.step() for _ in range(REPEATS)]
        plain, capture = [], []
        for _ in range(REPEATS):
            for layer, times in ((None, plain), (run.layer, capture), (run.layer, capture), (None, plain)):
                run.collector = dataclasses.replace(run.collector, layer=layer)
                start = time.perf_counter()
                trajectories = run.collect()
                times.append(time.perf_counter() - start)
    sequences = [s for t in trajectories for s in t.sequences]
    tokens = len(pack([s.tokens for s in sequences], [s.spans for s in sequences], torch.device("cpu")).ids)
    credit, separate = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        scored = score_sequences(
            run.actor, sequences, layer=run.layer, micro_tokens=config.update.micro_tokens
        )
        separate.append(time.perf_counter() - start)
        start = time.perf_counter()
        rows = to_rows(trajectories, features=scored.features, reward_scale=10.0)
        advantages(rows.batch, run.recipe)
        credit.append(time.perf_counter() - start)
    total = statistics.median(m["timing_s/iteration"] for m in logs)
    parameters = sum(p.numel() for p in run.actor.model.parameters())
    floor = 8 * parameters * tokens / gemm_flops()
    # both are the same work, so the least disturbed turn counts
    features = max(0.0, min(capture) - min(plain))
    parts = {
        part: statistics.median(m[f"timing_s/{part}"] for m in logs)
        for part in ("rollout", "old_logprob", "credit", "update")
    }
    return [
        {"figure": f"{actor}: 128 episodes x 8 steps and one update", "unit": "s", "value": total,
         "floor": floor, "ratio": total / floor, "target": TARGETS[actor], "tokens": tokens, "parts": parts},
        {"figure": f"{actor}: BiPACE's share (capture, labels, clusters, advantages)", "unit": "share",
         "value": (features + statistics.median(credit)) / total, "target": 0.01},
        {"figure": f"{actor}: a separate feature pass instead", "unit": "share",
         "value": statistics.median(separate) / (total + statistics.median(separate)), "target": None},
    ]  # fmt: skip


SUITE = EndlessSuite()


def main() -> None:
    torch.set_num_threads(1)
    figures = [figure for actor in TARGETS for figure in measure(actor)]
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "OMP_NUM_THREADS=1 python benchmarks/iteration.py",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    json.dump(figures, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
