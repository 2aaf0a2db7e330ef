"""The TRL adapter on the CPU: losses beside stock, feature error, cost, learning. Writes
results/trl_adapter.json.

    make bench-trl-adapter
    python benchmarks/trl_adapter.py --learned bipace.json stock.json

Runs in the environment of `make test-engines`. The jobs that learn are the example's; finished ones can be
handed over as the lines that `examples/trl/textcraft.py` printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import datetime, timezone
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from bipace.files import write_json

ROOT = Path(__file__).resolve().parents[1]
RESULT = Path(__file__).parent / "results" / "trl_adapter.json"
GENERATIONS = 10


def entry(figure: str, unit: str, value: float, target: float | None = None) -> dict[str, object]:
    ratio = None if target is None else round(value / target, 4)
    return {"figure": figure, "unit": unit, "value": float(f"{value:.6g}"), "target": target, "ratio": ratio}


def beside_stock(folder: Path) -> list[dict[str, object]]:
    """Four steps of both trainers from one seed: largest difference of a loss, and of a weight over its
    movement.
    """
    from trl_cpu.small import GRPOTrainer, StepCreditTrainer, easy, make, weights

    found = []
    for kind in (GRPOTrainer, StepCreditTrainer):
        trainer = make(kind, folder / kind.__name__, suite=easy(), recipe="grpo", max_steps=4)
        start = weights(trainer)
        trainer.train()
        losses = [float(h["loss"]) for h in trainer.state.log_history if "loss" in h]
        found.append((losses, weights(trainer), start))
    (theirs, their_end, start), (ours, our_end, _) = found
    moved = (their_end - start).abs().max()
    return [
        entry("largest difference of a loss from stock TRL's, 4 steps of grpo", "absolute",
              max(abs(a - b) for a, b in zip(theirs, ours, strict=True)), 1e-6),
        entry("largest difference of a weight, over the largest movement", "relative",
              float((their_end - our_end).abs().max() / moved), 1e-3),
    ]  # fmt: skip


def features(folder: Path) -> list[dict[str, object]]:
    """Largest difference of a turn's state from a plain forward's, over the largest state, by where it came
    from.
    """
    from trl_cpu import oracle
    from trl_cpu.small import SUITE_STEPS, StepCreditTrainer, easy, generate, make

    class Watched(StepCreditTrainer):
        def _states(self, batch, output):
            self.found = super()._states(batch, output)
            self.turns = [[turn.start for turn in rollout.turns] for rollout in batch.rollouts]
            return self.found

    out = []
    old = {"per_device_train_batch_size": 8, "steps_per_generation": 2, "pad_to_multiple_of": 32}
    for name, options in {"a forward of its own": {}, "TRL's forward, padded": old}.items():
        trainer = make(
            Watched, folder / "features", suite=easy(), recipe="bipace", steps=SUITE_STEPS, **options
        )
        output = generate(trainer)
        states, worst, size = iter(trainer.found), 0.0, 1.0
        for row, starts in enumerate(trainer.turns):
            before = oracle.prompt(output, row)
            plain = oracle.plain_states(trainer.model, before + oracle.completion(output, row)[0], 1)
            for start in starts:
                wanted = plain[len(before) + start - 1]
                worst = max(worst, float((wanted - next(states)).abs().max()))
                size = max(size, float(wanted.abs().max()))
        out.append(entry(f"feature error, {name}", "relative", worst / size, 1e-5))
    return out


def learning(jobs: list[dict[str, Any]]) -> list[dict[str, object]]:
    """The example's jobs: success before and after, and the adapter's cost."""
    out = []
    for done in jobs:
        recipe = done["recipe"]
        name = f"{recipe}, {done['generations']} generation batches"
        out += [
            entry(f"success before: {name}", "share", done["before"]),
            entry(f"success after: {name}", "share", done["after"]),
            entry(f"rise of success: {name}", "points", done["points"], 15 if recipe == "bipace" else None),
            entry(f"whole job: {name}", "seconds", done["seconds"], 600),
            entry(f"a generation batch and its updates: {name}", "seconds", done["generation_s"]),
        ]
        if recipe == "bipace":
            share = done["credit_s"] / done["generation_s"]
            out += [
                entry("adapter's share of a step besides a feature forward", "share", share, 0.02),
                entry("hidden states beside TRL's own forward, share of a step", "share",
                      done["features_s"] / done["generation_s"]),
                entry("turns of a generation batch", "turns", done["turns"]),
            ]  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--learned", nargs="*", type=Path, help="files that end in a line the example printed"
    )
    given = parser.parse_args()
    if not list(distributions(name="trl")):
        print("TRL lives in an environment of its own: make bench-trl-adapter")
        return
    sys.path[:0] = [str(ROOT / "tests" / "engines"), str(ROOT / "examples" / "trl")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.learned:
            jobs = [json.loads(file.read_text().splitlines()[-1]) for file in given.learned]
        else:
            from textcraft import run

            jobs = [run(recipe, GENERATIONS, 0, folder / recipe) for recipe in ("bipace", "stock")]
        figures = [*beside_stock(folder), *features(folder), *learning(jobs)]
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, CPU only",
        "versions": {
            "python": platform.python_version(),
            **{n: version(n) for n in ("trl", "torch", "transformers")},
        },
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "make bench-trl-adapter",
    }
    write_json(RESULT, document)
    json.dump(figures, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
