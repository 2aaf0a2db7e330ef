"""The conformance test of all adapters, run through stock TRL: its batch, its masks, its loss's [B, T]."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import ClassVar

import pytest

if importlib.util.find_spec("trl") is None:
    pytest.skip("TRL lives in an environment of its own: make test-engines", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from trl_cpu.small import QUIET, Dataset, StepCreditTrainer, make, tokenizer

from adapters.conformance import Conformance

pytestmark = [pytest.mark.slow, *QUIET]


class Told(StepCreditTrainer):
    """The features come from the test; that they equal a plain forward is test_trl_features.py's part."""

    def _states(self, batch, output):
        return torch.from_numpy(self.told)


class TestTrl(Conformance):
    """Each rollout is a completion whose tokens spell its name; order of rows is order of completions."""

    lacks: ClassVar = {
        "missing": "a completion of TRL holds all of its rollout",
        "padding": "TRL copies no rows",
    }
    tolerance = 1e-5
    penalty = 0.0

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def credit(self, steps, features, *, estimator, options, rows_per_rollout=1):
        # Under its own default, stock TRL's 1e-4, `grpo` is held to stock TRL in test_trl_stock.py.
        options = {"delta": 1e-6, **options} if estimator == "grpo" else options
        rollouts = {}
        for i, step in enumerate(steps):
            rollouts.setdefault((step.group, step.trajectory), []).append(i)
        for rows in rollouts.values():
            rows.sort(key=lambda i: steps[i].t)
        names = sorted(rollouts)
        parts = list(rollouts.items())
        end = tokenizer().eos_token_id

        def play(prompts, trainer):
            assert len(prompts) == len(parts)
            # A call writes two tokens and reads one; the first token is the rollout's name, in the names'
            # order.
            made = [[10 + names.index(name), 11, *[12, 13, 14] * (len(rows) - 1)] for name, rows in parts]
            masks = [[1, 1, *[0, 1, 1] * (len(rows) - 1)] for _, rows in parts]
            return {
                "prompt_ids": [[5, 6, 7]] * len(parts), "completion_ids": [[*m, end] for m in made],
                "logprobs": None,
                "env_mask": [[*m, 0] for m in masks],
                "paid": [_total([steps[i] for i in rows]) for _, rows in parts],
                "step_rewards": [[_paid(steps[i]) for i in rows] for _, rows in parts],
                "states": [[steps[i].observation for i in rows] for _, rows in parts],
                "actions": [[steps[i].action for i in rows] for _, rows in parts],
            }  # fmt: skip

        trainer = make(
            Told, self.folder, recipe=estimator, credit=options, rollout_func=play,
            reward_funcs=lambda paid, **_: paid, train_dataset=Dataset.from_list([{"prompt": "p"}]), group=2,
            tasks=1,
        )  # fmt: skip
        trainer.num_generations = 1  # TRL's own groups are of one size; ours are not, and are not counted
        trainer.told = features[[i for _, rows in parts for i in rows]]
        trainer.model.train()
        output = trainer._generate_and_score_completions(
            [{"prompt": "p", "task": group} for (group, _), _ in parts]
        )
        found = np.zeros(len(steps))
        for row, (_, rows) in enumerate(parts):
            values = output["advantages"][row].numpy()
            for t, i in enumerate(rows):
                assert values[3 * t] == values[3 * t + 1]
                found[i] = values[3 * t]
            assert not values[2::3].any()
            assert not values[3 * len(rows) - 1 :].any()
        return found, {k: v[-1] for k, v in trainer._metrics["train"].items() if k.split("/")[0] in OURS}


OURS = ("episode", "event", "group", "cluster", "credit", "timing_s", "perf")


def _paid(step):
    return 0.0 if step.reward is None else step.reward


def _total(steps):
    """None where nobody scored the rollout, which is how TRL hears of one that failed."""
    unknown = any(s.aborted or s.reward is None for s in steps)
    return None if unknown else sum(s.reward for s in steps)
