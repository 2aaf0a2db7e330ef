"""benchmarks/results/hypothesis.json: feature distance and value, per environment and layer, before and after
training.

    PYTHONPATH=src python benchmarks/hypothesis.py --truths runs/credit --after textcraft-demo=RUN

The truths are those of benchmarks/credit_study.py. --after NAME=ACTOR reads the same rollouts by a trained
actor and by the one that played them, and says how many pairs of steps stay together (drift).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from credit_study import ACTORS, GROUP_SIZE, GROUPS, SEEDS, WORLDS, actor_truths

from bipace.train.places import actor_folder
from bipace.truth.hypothesis import RADII, hypothesis, stay_together
from bipace.truth.reading import read_by
from bipace.truth.table import Truth
from bipace.truth.worlds import world_truth

FILE = Path(__file__).resolve().parent / "results" / "hypothesis.json"
PLAYED_BY = {"textcraft-demo": "textcraft-small", "textcraft-small": "textcraft-small"}


def drift(name: str, folder: Path, truths: list[Truth], after: str) -> dict[str, Any]:
    """Layer -> radius -> pairs kept and new, and the rank correlation of distance and value after
    training.
    """
    layers = [int(layer) for layer in truths[0].layers if layer != "0"]
    before, later = (
        [read_by(truth, folder / f"seed{n}", actor_folder(actor), layers) for n, truth in enumerate(truths)]
        for actor in (PLAYED_BY[name], after)
    )
    out: dict[str, Any] = {"after": hypothesis(later, ())}
    for layer in map(str, layers):
        for eps in RADII:
            found = [
                stay_together(b.with_layer(layer), a.layers[layer], eps)
                for b, a in zip(before, later, strict=True)
            ]
            means = {key: float(np.mean([pair[key] for pair in found])) for key in ("kept", "new")}
            out.setdefault(layer, {})[f"{eps:g}"] = means
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--truths", type=Path, default=Path("runs/credit"))
    parser.add_argument("--after", action="append", default=[], metavar="NAME=ACTOR")
    arguments = parser.parse_args()
    after = dict(entry.split("=", 1) for entry in arguments.after)
    found: dict[str, Any] = {}
    for name in ACTORS:
        truths = actor_truths(arguments.truths / name)
        if truths:
            found[name] = {"layers": hypothesis(truths)}
            if name in after:
                found[name]["drift"] = drift(name, arguments.truths / name, truths, after[name])
    for name, options in WORLDS.items():
        truths = [
            world_truth(name, options, groups=GROUPS, group_size=GROUP_SIZE, seed=seed)
            for seed in range(SEEDS)
        ]
        found[f"world:{name}"] = {"layers": hypothesis(truths)}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
