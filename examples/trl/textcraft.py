"""TextCraft in TRL's own loop, with values by turn.

    python examples/trl/textcraft.py --recipe bipace

A policy that begins at about half the episodes of eight goals is trained for a few generation batches;
success is measured before and after on recipe lists that it was not trained on. `--recipe stock` runs TRL's
GRPOTrainer with the same arguments. Needs bipace[trl]; a CPU is enough.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import bipace
from bipace.envs.textcraft import suite as textcraft
from bipace.integrations.trl import StepCreditTrainer
from bipace.integrations.trl.suites import SUITE_STEPS, bare_commands, suite_environment, suite_rows

ACTOR = Path(bipace.__file__).parent / "assets" / "actors" / "textcraft-small"
GOALS = (
    "blackstone_stairs", "dropper", "glass_bottle", "golden_carrot", "polished_blackstone", "sandstone",
    "scaffolding",
    "turtle_helmet",
)  # fmt: skip
GROUP, TASKS, UPDATES = 8, 8, 2  # rollouts a prompt, prompts a generation batch, optimizer steps on it
EVALUATED = 8  # episodes of each of 32 tasks, at temperature 1


def tasks(seeds: range) -> list[str]:
    """Each goal once a seed; a seed decides which recipes the environment lists."""
    return [f"minecraft:{goal}/{seed}" for seed in seeds for goal in GOALS]


def make_trainer(recipe: str, generations: int, seed: int, folder: Path, **options: Any) -> GRPOTrainer:
    """A trainer; without `recipe` and `steps` these are the arguments of any GRPOTrainer."""
    tokenizer = bare_commands(AutoTokenizer.from_pretrained(ACTOR))
    settings = {
        "output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no",
        "logging_steps": 1, "disable_tqdm": True, "gradient_checkpointing": False, "seed": seed,
        "num_generations": GROUP, "num_generations_eval": EVALUATED, "per_device_eval_batch_size": 128,
        "per_device_train_batch_size": TASKS * GROUP // UPDATES, "steps_per_generation": UPDATES,
        "gradient_accumulation_steps": 1, "max_steps": generations * UPDATES, "learning_rate": 2e-4,
        "lr_scheduler_type": "constant", "loss_type": "grpo", "temperature": 1.0,
        "max_completion_length": 400,
        "max_tool_calling_iterations": 5, "generation_kwargs": {"max_new_tokens": 28},
    }  # fmt: skip
    ours = {} if recipe == "stock" else {"recipe": recipe, "steps": SUITE_STEPS}
    return (GRPOTrainer if recipe == "stock" else StepCreditTrainer)(
        model=AutoModelForCausalLM.from_pretrained(ACTOR),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(suite_rows(tasks(range(64)))),
        eval_dataset=Dataset.from_list(suite_rows(tasks(range(1000, 1004)))),
        environment_factory=suite_environment(replace(textcraft(), max_steps=5), tokenizer),
        args=GRPOConfig(**{**settings, **options}),
        **ours,
    )


def run(recipe: str, generations: int, seed: int, folder: Path) -> dict[str, Any]:
    """Success before and after, and where the time of a generation batch went."""
    trainer = make_trainer(recipe, generations, seed, folder)
    started = time.perf_counter()
    before = trainer.evaluate()["eval_reward"]
    trainer.train()
    after = trainer.evaluate()["eval_reward"]
    log = [entry for entry in trainer.state.log_history if "loss" in entry]

    def seconds(name: str) -> float:
        return sum(float(entry.get(name, 0.0)) for entry in log) / generations

    return {
        "recipe": recipe, "seed": seed, "generations": generations, "before": before, "after": after,
        "points": 100 * (after - before), "train_reward": [round(float(e["reward"]),
        3) for e in log if "reward" in e],
        "generation_s": seconds("step_time"), "features_s": seconds("timing_s/features"),
        "credit_s": seconds("timing_s/credit"), "seconds": time.perf_counter() - started,
        "turns": fmean([float(e["group/steps"]) for e in log if "group/steps" in e] or [0.0]),
    }  # fmt: skip


def main() -> None:
    """The command line; prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="bipace", help="a recipe of bipace, or stock")
    parser.add_argument("--generations", type=int, default=10, help="generation batches of 64 episodes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of TRL's output; default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(run(given.recipe, given.generations, given.seed, given.out or Path(temporary))))


if __name__ == "__main__":
    main()
