"""A small trainer for the checks: TextCraft, the shipped actor, TRL's own loop over tools, one CPU thread."""

import logging
import os
import warnings
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# TRL and transformers announce their own deprecations while they are imported and configured; none of them is
# ours.
warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import bipace
from bipace.envs.registry import get_suite
from bipace.envs.textcraft import suite as textcraft
from bipace.integrations.trl import StepCreditTrainer
from bipace.integrations.trl.suites import SUITE_STEPS, bare_commands, suite_environment, suite_rows

__all__ = [
    "ACTOR", "EASY", "QUIET", "SUITE_STEPS", "Dataset", "GRPOTrainer", "Script", "StepCreditTrainer", "easy",
    "generate",     "make", "model", "recorded", "rows", "tokenizer", "weights",
]  # fmt: skip

ACTOR = Path(bipace.__file__).resolve().parent / "assets" / "actors" / "textcraft-small"
EASY = Path(__file__).resolve().parents[1] / "verl_cpu" / "easy_suite.py"
OWN = ("recipe", "credit", "features", "steps")
THEIRS = ("environment_factory", "rollout_func", "tools", "reward_funcs", "callbacks", "peft_config",
    "train_dataset",
          "eval_dataset", "processing_class")  # fmt: skip

QUIET = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("FutureWarning", "DeprecationWarning")]
QUIET.append(pytest.mark.filterwarnings("ignore::UserWarning:(torch|accelerate|transformers|trl|peft)"))
logging.getLogger("transformers").setLevel(logging.ERROR)


def tokenizer():
    return bare_commands(AutoTokenizer.from_pretrained(ACTOR))


def model(**options):
    return AutoModelForCausalLM.from_pretrained(ACTOR, **options)


def easy():
    return get_suite(f"{EASY}:suite")


def rows(tasks):
    return Dataset.from_list(suite_rows(tasks))


def make(kind=StepCreditTrainer, folder=None, *, tasks=4, group=4, actor=None, suite=None, **options):
    """A trainer; options of the recipe, of GRPOTrainer and of GRPOConfig by their own names."""
    torch.set_num_threads(1)
    own = {k: options.pop(k) for k in OWN if k in options}
    theirs = {k: options.pop(k) for k in THEIRS if k in options}
    suite = suite or textcraft()
    theirs.setdefault("processing_class", tokenizer())
    if not {"rollout_func", "tools", "environment_factory"} & set(theirs):
        theirs["environment_factory"] = suite_environment(suite, theirs["processing_class"])
    theirs.setdefault("train_dataset", rows(suite.splits["train"][:256]))
    settings = {
        "output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no",
        "logging_steps": 1, "disable_tqdm": True, "gradient_checkpointing": False,
        "per_device_train_batch_size": tasks * group, "num_generations": group, "max_completion_length": 400,
        "max_tool_calling_iterations": 12, "generation_kwargs": {"max_new_tokens": 28}, "temperature": 1.0,
        "learning_rate": 1e-4, "max_steps": 1, "lr_scheduler_type": "constant", "seed": 3,
    }  # fmt: skip
    extra = own if kind is not GRPOTrainer else {}
    return kind(
        model=model() if actor is None else actor,
        args=GRPOConfig(**{**settings, **options}),
        **theirs,
        **extra,
    )


def generate(trainer, tasks=4, seed=11):
    """One generation batch, as `_prepare_inputs` asks for it."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    group = trainer.num_generations
    torch.manual_seed(seed)
    return trainer._generate_and_score_completions(
        [dict(trainer.train_dataset[i // group]) for i in range(tasks * group)]
    )


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def recorded(suite, tokenizer_, **options):
    """The suite's environment class, whose instances also keep the commands they got in an episode
    (`calls`).
    """
    base = suite_environment(suite, tokenizer_, **options)

    class Recorded(base):
        def __init__(self):
            super().__init__()
            self.calls = []

        def reset(self, **row):
            self.calls.clear()
            return super().reset(**row)

        def act(self, command: str) -> str:
            self.calls.append(command)
            return super().act(command)

    Recorded.act.__doc__ = base.act.__doc__
    return Recorded


class Script:
    """Fixed responses in the model's place, a list a row; it takes the place of `_generate_single_turn`."""

    def __init__(self, trainer, responses):
        self.tokenizer, self.responses = trainer._tokenizer, responses
        self.seen = [[] for _ in responses]  # what each row has read and written
        self.at = [0] * len(responses)

    def __call__(self, prompt_ids, *_, **__):
        answers, taken = [], set()
        for n, read in enumerate(prompt_ids):
            row = next(
                r
                for r in range(len(self.at))
                if r not in taken
                and (list(read[: len(self.seen[r])]) == self.seen[r] if self.at[r] else r == n)
            )
            taken.add(row)
            tokens = self.tokenizer.encode(self.responses[row][self.at[row]], add_special_tokens=False)
            self.at[row] += 1
            self.seen[row] = [*read, *tokens]
            answers.append(tokens)
        return answers, None
