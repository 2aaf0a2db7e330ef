"""What each extra must be able to do once it alone is installed: the commands, their exit status, words
they print.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from run_folders import write_run

__all__ = ["EXTRAS", "GPU_ONLY", "LIGHT", "Command", "write_inputs"]

LIGHT = ("bare", "cli", "textcraft", "report", "analyze")
"""Small enough for `make test`: no deep-learning framework. `make wheel-test` does all of EXTRAS."""

GPU_ONLY = {"vllm": "vLLM's wheel is built for CUDA and needs a GPU to start"}


@dataclass(frozen=True)
class Command:
    """Arguments after `python`, the expected exit status, and words that stdout or stderr must hold."""

    arguments: tuple[str, ...]
    says: str = ""
    status: int = 0


def bipace(*arguments: str, says: str = "", status: int = 0) -> Command:
    return Command(("-m", "bipace", *arguments), says, status)


def python(code: str, says: str = "") -> Command:
    return Command(("-c", code), says)


def refused(extra: str, *arguments: str) -> Command:
    """A command whose packages are missing: one sentence with the extra that brings them, before any work."""
    return bipace(*arguments, says=f"pip install 'bipace[{extra}]'", status=2)


_EXAMPLES = Path(__file__).parents[2] / "examples" / "verl"
_CORE = """
import bipace
rows = bipace.build_batch(
    task=[0, 0, 0], trajectory=[0, 0, 1], t=[0, 1, 0], reward=[0, 1, 0],
    observation=["door", "hall", "door"], action=["open", "walk", "wait"],
)
found = bipace.advantages(rows.batch, bipace.recipe("gigpo"))
print(rows.scatter(found.values).shape)
"""
_SMALL = ("run.iterations=1", "rollout.tasks=2", "rollout.group_size=2", "env.max_steps=2")


def _train(out: str, *settings: str, preset: tuple[str, ...] = ("--config", "alfworld")) -> Command:
    return bipace("train", *preset, *_SMALL, *settings, "--out", f"runs/{out}", says="run folder")


_LOOKS = (
    bipace("--version", says="bipace 0."),
    bipace("recipes", says="gigpo"),
    bipace("envs", says="alfworld"),
    bipace("config", says="estimator"),
    bipace("config", "--json", says="rollout.tasks"),
    bipace("models", says="textcraft-small"),
    bipace("doctor", "--json", says='"extras"'),
    bipace("play", "alfworld", says="Not solved in 0 steps"),
)
_CREDIT = bipace("credit", "world:paraphrased", "--groups", "2", "--group-size", "4", says="picture")
_REPORT = bipace("report", "made", "--out", "page", says="page")
_ANALYZE = (
    bipace("analyze", "results.jsonl", says="credit.html"),
    bipace("analyze", "results.jsonl", "--json", says="summary"),
    bipace("analyze", "results.jsonl", "--out", "-", "--export", "steps.parquet"),
)
_TEXTCRAFT = bipace("play", "textcraft", "--hint", says="Not solved in 0 steps")
_VERL_DATA = Command(
    ("-m", "bipace.integrations.verl.data", "--suite", "textcraft", "--split", "train", "--out", "x.parquet")
)
_WEBSHOP = bipace("play", "webshop", says="Not solved in 0 steps")

EXTRAS: dict[str, tuple[Command, ...]] = {
    "bare": (
        python(_CORE, says="(3,)"),
        Command(("-m", "bipace"), says="pip install 'bipace[all]'", status=1),
    ),
    "cli": (
        *_LOOKS,
        refused("textcraft", "play", "textcraft"),
        refused("webshop", "play", "webshop"),
        refused("report", "credit", "world:grid"),
        refused("report", "report", "made"),
        refused("analyze", "analyze", "results.jsonl"),
        refused("train", "train"),
        refused("train", "credit", "textcraft-small"),
        refused("train", "eval", "textcraft-small"),
        refused("train", "imitate", "new"),
        refused("train", "demo"),
        refused("train", "study", "study.toml"),
        refused("train", "calibrate", "textcraft-small"),
        refused("lora", "models", "merge", "runs/a", "runs/b"),
    ),
    "textcraft": (*_LOOKS, _TEXTCRAFT, refused("train", "train")),
    "webshop": (*_LOOKS, _WEBSHOP, refused("train", "train", "--config", "webshop")),
    "report": (*_LOOKS, _CREDIT, _REPORT, refused("train", "train")),
    "analyze": (*_LOOKS, *_ANALYZE, refused("train", "analyze", "results.jsonl", "--model", "m")),
    "train": (
        _train("a"),
        bipace("eval", "runs/a", "--panel", "gen-panel", "--json", says="success"),
        bipace("report", "runs/a", says="page"),
        bipace("study", "study.toml", "--jobs", "1", says="report"),
        _CREDIT,
        refused("textcraft", "train"),
        refused("lora", "train", "--config", "alfworld", *_SMALL, "actor.lora_rank=2", "--out", "runs/l"),
        refused("tensorboard", "train", "--config", "alfworld", 'run.loggers=["tensorboard"]'),
    ),
    "lora": (
        _train("l", "actor.lora_rank=2"),
        bipace("models", "merge", "runs/l", "whole", says="whole"),
    ),
    "models": (bipace("models", says="smollm2-135m"), python("import gguf, accelerate")),
    "tensorboard": (_train("t", 'run.loggers=["tensorboard"]'),),
    "wandb": (_train("w", 'run.loggers=["wandb"]'),),
    "trackio": (_train("k", 'run.loggers=["trackio"]'),),
    "trl": (
        python("import bipace.integrations.trl as t; print(t.StepCreditTrainer.__name__)", "StepCredit"),
    ),
    "verl": (
        _VERL_DATA,
        python("import bipace.integrations.verl.plugin, bipace.integrations.verl.trainer"),
        # No model is there to be checked; versions and configuration are.
        bipace("verl-preflight", "--config-dir", str(_EXAMPLES), "--config-name", "textcraft_1.5b",
               says="ok     configuration", status=1),
    ),
    # What the README shows, smaller.
    "all": (
        *_LOOKS,
        _TEXTCRAFT,
        _WEBSHOP,
        _CREDIT,
        *_ANALYZE,
        _train("b", preset=()),
        _train("g", "estimator=gigpo", preset=()),
        _train("s", preset=("--config", "webshop")),
        _train("m", "estimator=mine.py:mine", preset=()),
        bipace("train", "--resume", "runs/g", "run.iterations=2", says="run folder"),
        bipace("eval", "runs/b", "--panel", "depth4-panel", "--json", says="success"),
        bipace("study", "study.toml", "--jobs", "1", says="report"),
        bipace("report", "runs/b", "runs/g", says="page"),
        bipace("credit", "textcraft-small", "env.split=demo", "env.max_steps=6", "--groups", "4",
               "--group-size", "4",
               "--rerolls", "2", says="picture"),
    ),
}  # fmt: skip


def write_inputs(folder: Path) -> None:
    """The files that the commands read: trajectories, two made-up runs, a study and a recipe of one's own."""
    rows = [
        {"task": task, "trajectory": f"{task}-{k}", "step": t, "observation": f"room {t}",
         "action": f"go {(k + t) % 3}", "reward": float(t == 2 and k % 2)}
        for task in ("a", "b") for k in range(4) for t in range(3)
    ]  # fmt: skip
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for seed in range(2):
        write_run(folder / "made" / f"seed-{seed}", seed=seed)
    (folder / "study.toml").write_text(_STUDY)
    (folder / "mine.py").write_text(_RECIPE)


_STUDY = """
name = "tiny"
base = "alfworld"
seeds = [0]
[config]
run.iterations = 1
rollout.tasks = 2
rollout.group_size = 2
env.max_steps = 2
[methods.gigpo]
estimator = "gigpo"
"""
_RECIPE = """
from bipace import Recipe, recipe


def mine(w: float = 1.0) -> Recipe:
    return recipe("gigpo", w=w)
"""
