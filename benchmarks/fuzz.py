"""Random batches through every recipe: no crash, no non-finite number, no dependence on row order.

    PYTHONPATH=src python benchmarks/fuzz.py --batches 1000000

Tables are drawn with numpy alone (hypothesis would take days): lone groups, ragged lengths, constant, tiny,
huge and equal-up-to-rounding rewards, repeated visits, zero and collinear vectors, penalties, shuffled rows.
Each batch meets one recipe with random switches. Writes benchmarks/results/fuzz.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import bipace.core
from bipace.core.advantages import advantages
from bipace.core.estimators import RECIPES, recipe, recipe_options
from bipace.core.steps import StepBatch

CHUNK = 9_000  # batches between two writes of the result
RESULT = Path(__file__).parent / "results" / "fuzz.json"
MODES = ("mean_norm", "mean_std_norm")
FALLBACKS = ("no_diff_action", "no_same_action_peer", "never")
GRAPHS = ("salt", "mt_grpo", "gagpo", "g2po", "graphgpo")
TWO_TERMS = ("gigpo", "bigpo", "diff_peer", "bipace")


def draw_batch(random: np.random.Generator) -> StepBatch:
    """One ugly table of steps."""
    groups = random.integers(1, 4)
    sizes = random.integers(1, 5, groups)
    lengths = random.integers(1, 6, sizes.sum())
    trajectory = np.repeat(random.permutation(len(lengths)), lengths)
    task = np.repeat(np.repeat(random.permutation(groups), sizes), lengths)
    t = np.concatenate([np.arange(n) for n in lengths])
    n = len(t)
    last, cut = np.r_[t[1:] == 0, True], np.repeat(random.random(len(lengths)) < 0.3, lengths)
    scale = random.choice([0.0, 1e-12, 1.0, 10.0, 1e8])
    reward = scale * random.choice(
        [np.zeros(n), np.ones(n), random.integers(-4, 5, n) / 4, random.standard_normal(n)]
    )
    if random.random() < 0.2:
        reward = 0.1 + 1e-9 * random.standard_normal(n)
    features = random.choice([0.0, 1e-30, 1.0, 1e18]) * random.integers(-2, 3, (n, 4))
    order = random.permutation(n)
    penalty = 0.1 * (random.random(n) < 0.2) if random.random() < 0.5 else None
    return StepBatch(
        task=task[order], trajectory=trajectory[order], t=t[order], reward=reward[order],
        terminated=np.zeros(n, bool), truncated=(cut & last)[order],
        observation=random.integers(0, random.integers(1, 6), n),
        action=random.integers(0, random.integers(1, 4), n),
        features=features[order].astype(np.float32), penalty=penalty,
        texts=("a lamp and a door", "a lamp and a desk", "", "nothing", "a lamp and a door."),
    )  # fmt: skip


def draw_modes(name: str, random: np.random.Generator) -> dict[str, Any]:
    """One switch for both terms, or one a term."""
    if name in TWO_TERMS and random.random() < 0.7:
        return {level: [None, *MODES][random.integers(3)] for level in ("trajectory_mode", "step_mode")}
    return {"mode": str(random.choice(MODES))}


def draw_multiscale(random: np.random.Generator) -> dict[str, Any]:
    """Switches of the nested clusters."""
    return {
        "centroid": str(random.choice(["mean", "leader"])),
        "radii": [(0.5,), (0.5, 0.1), (1.0, 0.5, 0.1, 0.0)][random.integers(3)],
        "k": ["auto", 0.0, 2.0][random.integers(3)],
        "k_action": float(random.choice([0.0, 0.5])),
        "trajectory": bool(random.integers(2)),
    }


def draw_graph(name: str, random: np.random.Generator) -> dict[str, Any]:
    """Switches of the recipes over transitions and turns."""
    pick = random.choice
    choices: dict[str, Any] = {
        "mode": str(pick(MODES)),
        "gamma": float(pick([0.0, 0.5, 0.95, 1.0])),
        "lam": float(pick([0.0, 0.95, 1.0])),
        "omega": float(pick([0.01, 0.1, 0.9])),
        "above": float(pick([-1.0, 0.0, 1.0])),
        "reward_at_end": str(pick(["trajectory", "turn"])),
        "clusters": str(pick(["features", "observation"])),
        "eps": float(pick([0.0, 0.1, 1.0])),
        "convention": str(pick(["paper", "verl_agent"])),
    }
    return {key: value for key, value in choices.items() if key in recipe_options(name)}


def draw_options(name: str, random: np.random.Generator) -> dict[str, Any]:
    """Switches for a recipe."""
    pick = random.choice
    options: dict[str, Any] = {"convention": str(pick(["paper", "verl_agent"]))}
    if name in ("grpo", "dr_grpo", "rloo"):
        return options
    options["gamma"] = float(pick([0.0, 0.5, 0.95, 1.0]))
    if name == "multiscale":
        return options | draw_multiscale(random)
    options |= draw_modes(name, random)
    if name in ("gigpo", "bigpo", "bipace"):
        options["leave_out"] = str(pick(["nothing", "trajectory"]))
    if name == "gigpo":
        options["similarity"] = [None, 0.8][random.integers(2)]
    if name == "hgpo":
        options |= {"history": int(random.integers(0, 5)), "base_group": bool(random.integers(2))}
    if name in ("bigpo", "diff_peer", "bipace", "pooled"):
        eps = [0.0, 0.1, 1.0, 2.0, "auto"][random.integers(5)]
        options |= {"eps": eps, "centroid": str(pick(["mean", "leader"])), "whiten": int(pick([0, 3]))}
    if name in ("diff_peer", "bipace"):
        options["fallback"] = str(pick(FALLBACKS))
    if name in ("bigpo", "diff_peer", "bipace"):
        kinds = ["features", "observation", "chance"] + ["ngrams"] * (options["eps"] != "auto")
        options["clusters"] = str(pick(kinds))
    if name == "pooled":
        options |= {
            "k": [0.0, 0.5, "auto"][random.integers(3)],
            "k_action": [0.0, 0.5, "auto"][random.integers(3)],
        }
        options["clusters"] = str(pick(["features", "observation"]))
    return options


def fuzz(batches: int, seed: int = 0, first: int = 0) -> dict[str, int]:
    """Number of batches each recipe met, from batch `first` of the seed on.

    Raises:
        AssertionError: a non-finite number, or one that depends on the row order; the message names the seed.
    """
    names = list(RECIPES)
    met = dict.fromkeys(names, 0)
    for number in range(first, first + batches):
        random = np.random.default_rng((seed, number))
        name = names[number % len(names)]
        batch, made = (
            draw_batch(random),
            recipe(name, **(draw_graph if name in GRAPHS else draw_options)(name, random)),
        )
        found = advantages(batch, made).values
        assert np.isfinite(found).all(), f"{name}: non-finite in batch {number} of seed {seed}"
        if number % 10 == 0:
            order = random.permutation(len(batch))
            again = advantages(batch.take(order), made).values
            assert (again == found[order]).all(), (
                f"{name}: row order matters in batch {number} of seed {seed}"
            )
        met[name] += 1
    return met


def core_digest() -> str:
    """Digest of the core's sources: batches that met another core do not count."""
    sources = sorted(Path(bipace.core.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after; the same command goes on"
    )
    parser.add_argument("--again", action="store_true", help="begin anew although a record is finished")
    arguments = parser.parse_args()
    start = time.perf_counter()
    kept = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {}
    finished = kept.get("seed") == arguments.seed and kept["value"] >= arguments.batches
    if finished and not arguments.again:
        print(
            f"{kept['value']} batches are on record (core {kept.get('core', 'unknown')}); --again begins anew"
        )
        return
    if finished or kept.get("seed") != arguments.seed or kept.get("core") != core_digest():
        kept = {"value": 0, "seconds": 0.0, "by_recipe": dict.fromkeys(RECIPES, 0)}
    done, by_recipe, before = kept["value"], kept["by_recipe"], kept["seconds"]
    while done < arguments.batches and time.perf_counter() - start < 60 * arguments.minutes:
        met = fuzz(min(CHUNK, arguments.batches - done), arguments.seed, done)
        by_recipe = {name: by_recipe[name] + met[name] for name in RECIPES}
        done += sum(met.values())
        result = {
            "figure": "random batches without a crash, a non-finite number or a dependence on row order",
            "unit": "batches", "value": done, "floor": 1_000_000, "ratio": done / 1_000_000,
            "core": core_digest(),
            "by_recipe": by_recipe, "seconds": round(before + time.perf_counter() - start, 1),
            "seed": arguments.seed,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "date": datetime.now(timezone.utc).date().isoformat(),
            "versions": {"python": platform.python_version(), "numpy": np.__version__},
            "command": f"PYTHONPATH=src python benchmarks/fuzz.py --batches {arguments.batches} --seed "
            f"{arguments.seed}",
        }  # fmt: skip
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{done} of {arguments.batches}")


if __name__ == "__main__":
    main()
