"""Writes trajectories.json: one table of steps and the numbers every recipe gives on it.

    PYTHONPATH=src:tests python tests/golden/trajectories.py

Run it only where a change of numbers is meant, and put the difference into the commit message.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bipace.core.advantages import advantages
from bipace.core.estimators import RECIPES, recipe
from bipace.truth.worlds import world_truth
from strategies import to_batch

FILE = Path(__file__).with_suffix(".json")
OPTIONS = {
    "gigpo": [{}, {"mode": "mean_norm"}, {"w": 0.5}, {"similarity": 0.8}, {"convention": "verl_agent"}],
    "hgpo": [{}, {"mode": "mean_norm"}, {"history": 4, "base_group": True}, {"weight_offset": 0.0}],
    "salt": [{}, {"mode": "mean_norm"}, {"clusters": "features", "eps": 0.1}],
    "mt_grpo": [{}, {"reward_at_end": "turn"}, {"reward_at_end": "turn", "mode": "mean_norm", "gamma": 0.95}],
    "gagpo": [{}, {"lam": 0.0, "mode": "mean_norm"}, {"clusters": "features", "eps": 0.1}],
    "g2po": [{}, {"mode": "mean_norm"}, {"convention": "verl_agent"}, {"clusters": "features", "eps": 0.1}],
    "graphgpo": [{}, {"omega": 0.5}, {"convention": "verl_agent"}, {"clusters": "features", "eps": 0.1}],
    "bigpo": [{}, {"eps": 0.1}, {"centroid": "leader"}, {"whiten": 3}, {"leave_out": "trajectory"}],
    "diff_peer": [{}, {"eps": 0.1}, {"clusters": "observation"}],
    "bipace": [
        {},
        {"eps": 0.1},
        {"mode": "mean_norm"},
        {"fallback": "never"},
        {"eps": 0.1, "mode": "mean_std_norm", "fallback": "no_diff_action"},
        {"clusters": "observation"},
        {"clusters": "ngrams", "eps": 0.3},
        {"clusters": "chance"},
        {"eps": "auto"},
        {"leave_out": "trajectory"},
    ],
    "multiscale": [
        {},
        {"k": 0.5},
        {"trajectory": True},
        {"radii": [0.3, 0.1], "k": [2.0, 0.25], "k_action": 0.0},
    ],
    "pooled": [
        {},
        {"k": "auto", "k_action": "auto"},
        {"clusters": "features", "eps": 0.1, "mode": "mean_norm"},
    ],
}


def rows() -> list[dict]:
    """Two prompt groups of four trajectories in the paraphrased world, one group of one, some penalties."""
    truth = world_truth("paraphrased", groups=3, group_size=4, horizon=8, seed=11)
    batch, features = truth.batch, truth.layers["spread"][:, :8]
    groups = np.unique(batch.task).tolist()
    lone = batch.trajectory[batch.task == groups[2]].min()
    kept = [i for i in range(len(batch)) if batch.task[i] != groups[2] or batch.trajectory[i] == lone]
    return [
        {
            "task": int(batch.task[i]),
            "trajectory": int(batch.trajectory[i]),
            "t": int(batch.t[i]),
            "reward": float(batch.reward[i]),
            "observation": batch.texts[batch.observation[i]],
            "action": int(batch.action[i]),
            "penalty": 0.1 * (number % 7 == 0),
            "feature": [round(float(x), 3) for x in features[i]],
        }
        for number, i in enumerate(kept)
    ]


def outputs(table: list[dict]) -> list[dict]:
    """What every recipe says, switch by switch."""
    batch = to_batch(table)
    return [
        {"recipe": name, "options": o, "values": advantages(batch, recipe(name, **o)).values.tolist()}
        for name in RECIPES
        for o in OPTIONS.get(name, [{}])
    ]


if __name__ == "__main__":
    made = rows()
    lines = [json.dumps(row) for row in made], [json.dumps(output) for output in outputs(made)]
    parts = (",\n  ".join(part) for part in lines)
    FILE.write_text(
        '{"rows": [\n  {}],\n "outputs": [\n  {}]}\n'.replace("{}", "%s") % tuple(parts), encoding="utf-8"
    )
