"""Trial: a suite in one file is trained, evaluated, isolated in processes of its own, and its credit
judged.
"""

import json

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.cli.credit import actor_truths, judge
from bipace.train.config import load_config
from bipace.train.evaluation import evaluate_actor
from bipace.train.loop import train
from bipace.train.places import actor_folder

OWN = '''
import copy
from bipace.envs.base import Turn


class Letters:
    """Say words whose lengths are odd; two in a row win."""

    def reset(self, task):
        self.said, self.odd = 0, 0
        return Turn(f"Task {task}: say a word.")

    def step(self, action):
        self.said += 1
        self.odd += len(action.strip()) % 2
        done = self.said == 3
        won = done and self.odd >= 2
        paid = self.odd / 3 if done else 0.0
        return Turn(f"{self.odd} of {self.said} were odd.", paid, terminated=done, won=won)

    def copy(self):
        return copy.copy(self)


class Suite:
    name, max_steps, instructions = "letters", 4, "Say words whose lengths are odd."
    splits = {"train": ("a", "b", "c", "d"), "train-panel": ("e", "f")}

    def make(self):
        return Letters()

    def family(self, task):
        return "all"

    def expert(self, task):
        return ("one", "two", "six")


suite = Suite()
'''
SMALL = (
    "rollout.tasks=2",
    "rollout.group_size=4",
    "prompt.max_new_tokens=4",
    "actor.threads=1",
    "run.iterations=1",
)


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "letters.py").write_text(OWN)
    words = (f"env.suite={tmp_path / 'letters.py'}:suite", "actor.folder=textcraft-small", *SMALL)
    return lambda *more: load_config(overrides=[*words, *more])


def metrics(folder):
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


def test_it_is_trained_and_isolation_changes_no_number(settings, tmp_path):
    logged = {}
    for name, more in (("here", ()), ("apart", ("env.step_seconds=20",))):
        train(settings(*more), tmp_path / name, on_iteration=lambda *_: None, say=lambda _: None)
        logged[name] = {
            k: v for k, v in metrics(tmp_path / name).items() if not k.startswith(("timing", "perf"))
        }
    assert logged["here"]["episode/count"] == 8
    assert logged["here"]["episode/reward_mean"] > 0
    assert logged["apart"] == logged["here"]


def test_it_is_evaluated(settings):
    results = evaluate_actor(actor_folder("textcraft-small"), settings())
    assert results["train-panel"].summary()["n"] == 2
    assert set(results["train-panel"].summary()["family"]) == {"all"}


def test_its_credit_is_judged(settings, tmp_path):
    config = settings()
    words = [f"env.suite={config.env.suite}", "prompt.max_new_tokens=4", "actor.threads=1"]
    truths = actor_truths("textcraft-small", words, tmp_path, groups=2, group_size=4, rerolls=2, seeds=1)
    scores = judge(truths, ["gigpo", "grpo"], ())
    assert set(scores["recipes"]) == {"gigpo", "grpo"}
    assert scores["recipes"]["gigpo"]["pearson"]["value"] > 0.5
    assert len(truths[0].batch) == 2 * 4 * 3
