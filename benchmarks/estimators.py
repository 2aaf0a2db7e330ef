"""Every recipe on the same truths: docs/results/estimators.md, its JSON and its picture, by one command.

    PYTHONPATH=src python benchmarks/estimators.py --learning

Text processes are sampled anew (their truth is exact and cheap). The actors' truths are collected by
`bipace credit`, each with `--groups 8 --group-size 16 --seeds 3 --out runs/credit-16/NAME`:

    textcraft-demo    textcraft-small env.split=demo --rerolls 8
    textcraft-small   textcraft-small env.split=train --rerolls 8
    alfworld-small    alfworld-small env.suite=alfworld env.split=gen-small env.max_steps=20 \\
                      prompt.max_new_tokens=16 --rerolls 4
    webshop-small     webshop-small env.suite=webshop env.split=gen-train env.max_steps=8 \\
                      prompt.max_tokens=1536 prompt.max_new_tokens=40 --rerolls 4

and judged whole, at G = 8 and at G = 4 (the first members of each group). textcraft-demo-smollm2 is the truth
of textcraft-demo with SmolLM2's hidden states in place of the actor's, where that model was fetched (`bipace
models fetch smollm2-135m`; minutes a seed). What is not there is left out and named. `--learning` adds the
rank correlation of credit on the first batch, at the G of the training runs, with the success learned after
it; `--only-learning` takes the credit from the page's own JSON and measures nothing again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from credit_study import DEPTH, DOCS, GROUPS, SEEDS, WORLDS, actor_truths, at, shipped_layer
from estimators_page import draw_credit, draw_learning, page
from paper import environments as records
from scipy.stats import spearmanr

from bipace.core.estimators import RECIPES, recipe
from bipace.train.config import ConfigError
from bipace.train.places import actor_folder
from bipace.truth.reading import read_by
from bipace.truth.score import score_all
from bipace.truth.table import Truth
from bipace.truth.worlds import world_truth

ACTORS = ("textcraft-demo", "textcraft-small", "alfworld-small", "webshop-small")
READ, READER = "textcraft-demo-smollm2", "smollm2-135m"
LARGEST, TRAINED = 16, 8
SMALLER = (8, 4)
VARIANTS = (
    "gigpo mode=mean_norm", "bigpo eps=0.02", "bipace eps=0.02", "bipace eps=0.1",
    "bipace clusters=observation",
    "diff_peer eps=0.02", "multiscale trajectory=True",
    "mt_grpo reward_at_end=turn", "g2po clusters=features eps=0.02", "graphgpo clusters=features eps=0.02",
    "gagpo clusters=features eps=0.02", "salt clusters=features eps=0.02",
)  # fmt: skip
LEARNED = {
    "gigpo": "gigpo", "gigpo-undivided": "gigpo mode=mean_norm", "hgpo": "hgpo", "grpo": "grpo",
    "rloo": "rloo",
    "state-side-0.02": "bigpo eps=0.02", "bipace-0.02": "bipace eps=0.02", "bipace-0.05": "bipace",
    "bipace-0.10": "bipace eps=0.1", "action-side": "bipace clusters=observation", "pooled": "pooled",
    "diff-peer-0.02": "diff_peer eps=0.02", "multiscale": "multiscale",
    "multiscale-trajectory": "multiscale trajectory=True", "g2po": "g2po", "graphgpo": "graphgpo",
    "gagpo": "gagpo", "salt": "salt", "mt-grpo-turns": "mt_grpo reward_at_end=turn",
}  # fmt: skip
"""Methods of the studies of TextCraft and the candidate that each of them is."""


def candidates() -> list[str]:
    """Every recipe at its defaults that rollouts without entropies can feed, and some variants."""
    return [name for name in RECIPES if "entropy" not in recipe(name).needs] + list(VARIANTS)


def environments(folder: Path) -> dict[str, list[Truth]]:
    """Environment -> its truths, one a seed; those that were not collected are left out."""
    found = {name: actor_truths(folder / name) for name in ACTORS}
    found[READ] = read_truths(folder / ACTORS[0], found[ACTORS[0]])
    for name, options in WORLDS.items():
        made = partial(world_truth, name, options, groups=GROUPS, group_size=LARGEST)
        found[f"world:{name}"] = [made(seed=seed) for seed in range(SEEDS)]
    return {name: truths for name, truths in found.items() if truths}


def read_truths(folder: Path, truths: Sequence[Truth]) -> list[Truth]:
    """The truths with SmolLM2's hidden states; none where that model was not fetched."""
    try:
        model = actor_folder(READER)
    except ConfigError:
        return []
    return [read_by(truth, folder / f"seed{i}", model, [DEPTH]) for i, truth in enumerate(truths)]


def judge(truths: Sequence[Truth]) -> dict[str, Any]:
    """`score_all` of every candidate at the collected group size and at the smaller ones."""
    layer, collected = shipped_layer(truths[0]), int(truths[0].identity["group_size"])
    sizes = [size for size in SMALLER if size < collected]
    made = [at(text, layer) for text in candidates()]
    return score_all(truths, made, group_sizes=sizes, bootstraps=200, details=False) | {
        "group_size": collected
    }


def credited(found: Mapping[str, Any], size: int) -> Mapping[str, Any]:
    """Candidate -> its scores at one group size."""
    return found["recipes"] if found["group_size"] == size else found["group_sizes"][str(size)]


def foretold(recipes: Mapping[str, Any], learned: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Rank correlation of each metric with what was learned, 95 % interval by resampling recipes."""
    curve = {name: entry["mean"] for name, entry in learned.items()}
    names, random = [name for name in recipes if name in curve], np.random.default_rng(0)
    out: dict[str, Any] = {"recipes": len(names)}
    for metric in ("pearson", "gradient_cosine"):
        pairs = np.array([[recipes[name][metric]["value"], curve[name]] for name in names])
        drawn = [spearmanr(*pairs[random.integers(0, len(pairs), len(pairs))].T)[0] for _ in range(2000)]
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        out[metric] = {"value": float(spearmanr(*pairs.T)[0]), "low": float(low), "high": float(high)}
    return out


def played() -> dict[str, Mapping[str, Any]]:
    """Candidate -> success over all training episodes on TextCraft, beside GiGPO's on the same seeds."""
    found = records(DOCS)["textcraft"]["training_success"]
    return {LEARNED[method]: entry for method, entry in found.items() if method in LEARNED}


def costs() -> dict[str, Any]:
    """Recipe -> processor seconds, as benchmarks/estimators_cost.py measured them."""
    file = Path(__file__).parent / "results" / "estimators.json"
    return json.loads(file.read_text(encoding="utf-8"))["by_recipe"] if file.is_file() else {}


def main() -> None:
    """Judge, write, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--truths", type=Path, default=Path("runs/credit-16"))
    parser.add_argument("--learning", action="store_true", help="set credit beside the learning curves")
    parser.add_argument("--only-learning", action="store_true", help="keep the credit of OUT/estimators.json")
    parser.add_argument("--out", type=Path, default=DOCS)
    arguments = parser.parse_args()
    if arguments.only_learning:
        results = json.loads((arguments.out / "estimators.json").read_text(encoding="utf-8"))["results"]
    else:
        results = {name: judge(truths) for name, truths in environments(arguments.truths).items()}
    about: dict[str, Any] = {
        "command": "PYTHONPATH=src python benchmarks/estimators.py --learning",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "needs": {text: sorted(at(text, None).recipe.needs) for text in candidates()},
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    learned = played()
    if arguments.learning and "textcraft-demo" in results:
        credit = credited(results["textcraft-demo"], TRAINED)
        about["learning"] = foretold(credit, learned)
        draw_learning(credit, learned, arguments.out / "estimators-learning.png")
    missing = [name for name in (*ACTORS, READ) if name not in results]
    text = json.dumps({"about": about, "results": results}, separators=(",", ":")) + "\n"
    (arguments.out / "estimators.json").write_text(text, encoding="utf-8")
    words = page(results, about, learned, costs(), missing)
    (arguments.out / "estimators.md").write_text(words, encoding="utf-8")
    draw_credit(results, candidates(), arguments.out / "estimators.png")


if __name__ == "__main__":
    main()
