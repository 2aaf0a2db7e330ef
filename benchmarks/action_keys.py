"""What counts as the same action: one saved truth under several action keys.

    bipace credit textcraft-small --groups 16 --group-size 8 --rerolls 8 --seeds 2 --out FOLDER
    PYTHONPATH=src python benchmarks/action_keys.py FOLDER

The rollouts are the same under every key, so what differs is the key alone: Pearson correlation with the true
advantage, cosine of the gradient with the true one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bipace.core.actions import action_tag, executed_key, first_word
from bipace.core.advantages import advantages
from bipace.core.labels import label
from bipace.truth.candidates import parse_candidate
from bipace.truth.table import Truth, load_rollouts, load_truth

Step = Mapping[str, Any]
KEYS: dict[str, Callable[[Step], object]] = {
    "executed, refused many": lambda s: executed_key(s["action"], s["executed"], s["valid"], "many"),
    "executed, refused one": lambda s: executed_key(s["action"], s["executed"], s["valid"], "one"),
    "action_tag": lambda s: action_tag(s["action"]).key,
    "first_word": lambda s: first_word(s["action"]).key,
}
RECIPES = ("bipace", "bipace clusters=observation", "pooled")


def keyed(truth: Truth, path: Path, key: Callable[[Step], object]) -> Truth:
    """The truth with another action key, from the text of its own rollouts."""
    steps = [step for rollout in load_rollouts(path) for step in rollout["steps"]]
    return replace(truth, batch=replace(truth.batch, action=label([key(step) for step in steps])[0]))


def compare(truth: Truth, path: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Recipe -> key -> (Pearson, gradient cosine)."""
    true = truth.gradient.T @ truth.advantage
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for text in RECIPES:
        made = parse_candidate(text)
        for name, key in KEYS.items():
            values = advantages(keyed(truth, path, key).with_layer(made.layer), made.recipe).values
            gradient = truth.gradient.T @ values
            cosine = gradient @ true / (np.linalg.norm(gradient) * np.linalg.norm(true))
            pearson = np.corrcoef(values, truth.advantage)[0, 1]
            found.setdefault(text, {})[name] = float(pearson), float(cosine)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where bipace credit keeps the truths")
    folder = parser.parse_args().folder
    for number in range(len(list(folder.glob("seed*.npz")))):
        path = folder / f"seed{number}"
        truth = load_truth(path)
        if truth is None:
            raise SystemExit(f"{path}: no truth; make it with bipace credit ACTOR --out {folder}")
        steps = [step for rollout in load_rollouts(path) for step in rollout["steps"]]
        print(f"seed {number}: {len(steps)} steps, {np.mean([not s['valid'] for s in steps]):.1%} refused")
        for text, rows in compare(truth, path).items():
            for name, (pearson, cosine) in rows.items():
                print(f"  {text:28} {name:24} {pearson:.3f} / {cosine:.3f}")


if __name__ == "__main__":
    main()
