"""Rollout plus update beside TRL's GRPOTrainer: same actor, prompts and tokens, one CPU thread, one process.

    OMP_NUM_THREADS=1 .venv-trl/bin/python benchmarks/stock_trl/throughput.py

16 TextCraft tasks x 8 completions of exactly 64 tokens, then one optimizer step over all of them by GRPO. One
turn an episode: with more turns TRL encodes the growing context anew, so this is the case that suits it best.
TRL runs with transformers' generation (vLLM needs a GPU), float32, no gradient checkpointing, no reference
model, no logging, and the fastest of several micro-batch sizes; both sides skip the first step. Writes
benchmarks/results/trl.json.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import TrainerCallback

from bipace.envs.base import Turn
from bipace.envs.textcraft import suite
from bipace.policies.hf import Actor
from bipace.train.actors import SHIPPED
from bipace.train.config import load_config
from bipace.train.loop import Run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from iteration import gemm_flops

RESULT = Path(__file__).resolve().parents[1] / "results" / "trl.json"
ACTOR = "textcraft-small"
TASKS, GROUP, TOKENS = 16, 8, 64
REPEATS = 3
MICRO_BATCHES = (16, 64, 128)


def reward(number: int) -> float:
    """Half of a group succeeds, whatever it wrote: every completion gets an advantage and has to be trained
    on.
    """
    return float(number % 2)


class OneTurn:
    """Asks once and rewards the answer."""

    answers = itertools.count()

    def __init__(self) -> None:
        self._textcraft = suite().make()

    def reset(self, task: str) -> Turn:
        return self._textcraft.reset(task)

    def step(self, action: str) -> Turn:
        del action
        return Turn("", reward=reward(next(self.answers)), terminated=True)


@dataclass(frozen=True)
class OneTurnSuite:
    """The first 16 training goals of TextCraft, one turn each."""

    name: str = "textcraft-one-turn"
    max_steps: int = 1
    instructions: str = ""
    splits: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {
            "train": suite().splits["train"][:TASKS],
            "panel": suite().splits["train"][:TASKS],
        }
    )

    def make(self) -> OneTurn:
        return OneTurn()

    def family(self, task: str) -> str:
        return suite().family(task)

    def expert(self, task: str) -> tuple[str, ...]:
        return suite().expert(task)


SUITE = OneTurnSuite()


class Tireless(Actor):
    """The actor without an end token, so that every response has the same length."""

    end_token_ids = ()


def ours() -> list[dict[str, float]]:
    """Steps of this project's loop: seconds by part, and token counts."""
    config = load_config(
        overrides=[
            f"actor.folder={ACTOR}", "actor.threads=1", f"env.suite={Path(__file__).resolve()}:SUITE",
            "env.split=train", "env.panel=panel", "env.held_out=[]", "estimator=grpo",
            f"rollout.tasks={TASKS}",
            f"rollout.group_size={GROUP}", f"prompt.max_new_tokens={TOKENS}", "update.minibatches=1",
            "update.invalid_action_penalty=0",
        ]
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder))
        run.actor = run.decoder = Tireless(run.actor.model, run.actor.tokenizer)
        found = []
        for _ in range(REPEATS + 1):
            metrics = run.step()
            found.append(
                {
                    "rollout": metrics["timing_s/rollout"], "update": metrics["timing_s/update"],
                    "step": metrics["timing_s/iteration"], "trained": metrics["update/response_tokens"],
                    "tokens": metrics["perf/tokens_per_s"] * metrics["timing_s/iteration"],
                }
            )  # fmt: skip
    return found[1:]


class Clock(TrainerCallback):
    """Wall time of whole optimizer steps, generation included."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.times.append(time.perf_counter())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append(time.perf_counter())


class TimedTrainer(trl.GRPOTrainer):
    """The stock trainer; the time of its generation and the tokens it made are noted."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        start = time.perf_counter()
        out = super()._generate_and_score_completions(inputs)
        self.rollouts.append(time.perf_counter() - start)
        self.counts.append((int(out["prompt_mask"].sum()), int(out["completion_mask"].sum())))
        return out


def theirs(micro_batch: int) -> list[dict[str, float]]:
    """Steps of the stock trainer at one micro-batch size."""
    environment = suite().make()
    prompts = [environment.reset(task).observation for task in SUITE.splits["train"]]
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in prompts])
    actor = Actor.load(SHIPPED / ACTOR)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TimedTrainer(
            model=actor.model,
            processing_class=actor.tokenizer,
            train_dataset=rows,
            reward_funcs=lambda completions, **_: [reward(i) for i in range(len(completions))],
            args=trl.GRPOConfig(
                output_dir=folder, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none",
                save_strategy="no", logging_steps=1000, disable_tqdm=True, max_steps=REPEATS + 1,
                learning_rate=2e-4,
                per_device_train_batch_size=micro_batch,
                gradient_accumulation_steps=TASKS * GROUP // micro_batch,
                num_generations=GROUP, max_completion_length=TOKENS,
                generation_kwargs={"min_new_tokens": TOKENS},
                beta=0.0, temperature=1.0, optim="adamw_torch_fused", dataloader_num_workers=0,
            ),
        )  # fmt: skip
        clock = Clock()
        trainer.rollouts, trainer.counts = [], []
        trainer.add_callback(clock)
        trainer.train()
    steps = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    return [
        {"rollout": r, "update": step - r, "step": step, "trained": made, "tokens": read + made}
        for step, r, (read, made) in zip(steps[1:], trainer.rollouts[1:], trainer.counts[1:], strict=True)
    ]


def middle(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Median of every part."""
    return {part: statistics.median(step[part] for step in steps) for part in steps[0]}


def floor(side: Mapping[str, float]) -> dict[str, float]:
    """Seconds the multiplications by weights alone would take: 2 FLOPs a weight and token forward, 6 with
    backward.

    A prompt is read once a group when generating; output weights count at response tokens alone.
    """
    model = Actor.load(SHIPPED / ACTOR).model
    head = model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in model.parameters()) - head
    prompts, made, speed = side["tokens"] - side["trained"], side["trained"], gemm_flops()
    return {
        "rollout": 2 * (body * (prompts / GROUP + made) + head * made) / speed,
        "update": 6 * (body * (prompts + made) + head * made) / speed,
    }


def main() -> None:
    torch.set_num_threads(1)
    first = ours()
    tried = {size: middle(theirs(size)) for size in MICRO_BATCHES}
    best = min(tried, key=lambda size: tried[size]["step"])
    mine, stock = middle([*first, *ours()]), tried[best]
    if mine["update"] < floor(mine)["update"]:
        raise RuntimeError(f"some sequences were not trained on: {mine}")
    if (mine["trained"], round(mine["tokens"])) != (stock["trained"], round(stock["tokens"])):
        raise RuntimeError(f"the sides did different work: {mine} and {stock}")
    least = floor(mine)
    rate = {name: side["tokens"] / side["step"] for name, side in (("bipace", mine), ("trl", stock))}
    document = {
        "figure": f"{ACTOR}: rollout and update of {TASKS} x {GROUP} completions of {TOKENS} tokens",
        "unit": "tokens/s (read and written)",
        "value": rate["bipace"],
        "peer": rate["trl"],
        "ratio": rate["bipace"] / rate["trl"],
        "target": 3.0,
        "generated_and_trained_tokens": mine["trained"],
        "seconds": {"bipace": mine, "trl": stock, "floor": least},
        "speedup": {part: stock[part] / mine[part] for part in ("rollout", "update", "step")},
        "over_floor": {part: mine[part] / least[part] for part in least},
        "trl_micro_batches": {str(size): side["step"] for size, side in tried.items()},
        "trl_best_micro_batch": best,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__,
            "trl": trl.__version__,
        },
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "OMP_NUM_THREADS=1 .venv-trl/bin/python benchmarks/stock_trl/throughput.py",
    }  # fmt: skip
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    json.dump(document, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
