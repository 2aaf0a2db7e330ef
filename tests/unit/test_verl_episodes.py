"""Episodes as verl's agent loop plays them, without verl: what a row says, and what a fault costs."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import asdict

import pytest

from bipace.envs.base import Turn
from bipace.envs.registry import get_suite
from bipace.integrations.verl.episode import Call, Limits, play
from bipace.integrations.verl.settings import read_settings
from bipace.policies.hf import Actor
from bipace.rollout.records import EpisodeSummary
from bipace.train.actors import actor_folder


def whole(**more):
    """What every row of an episode says of all of it."""
    quiet = dict(overlong=False, aborted=False, unparsed=0, rejected=0, unfinished=0)
    return asdict(EpisodeSummary(**{**quiet, **more}))


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_an_expert_played_through_the_agent_loop_wins_and_its_rows_chain(style):
    suite = get_suite("textcraft")
    task = suite.splits["train-panel"][0]
    plan = list(suite.expert(task))
    tokenizer = Actor.load(actor_folder("textcraft-small")).tokenizer
    settings = read_settings({"prompt": {"style": style}}, "bipace")
    answers = iter(plan)

    async def generate(prompt):
        tokens = [*tokenizer.encode(next(answers), add_special_tokens=False), tokenizer.eos_token_id]
        return Call(tokens, None, {})

    rows = asyncio.run(play(suite, task, generate, tokenizer, settings, Limits(960, 32, suite.max_steps)))
    assert [r.record["command"] for r in rows] == plan
    assert [r.record["reward"] for r in rows] == [0.0] * (len(plan) - 1) + [10.0]
    expected = whole(steps=len(plan), reward=1.0, won=True, terminated=True, truncated=False)
    assert all(r.record["episode"] == expected for r in rows)
    if style == "transcript":
        for before, after in itertools.pairwise(rows):
            grown = [*before.prompt, *before.call.tokens]
            assert after.prompt[: len(grown)] == grown


class Faulty:
    """A suite whose environment fails in a chosen way."""

    name, max_steps, instructions, splits = "faulty", 5, "", {"all": ("a",)}

    def __init__(self, how):
        self.how = how

    def make(self):
        if self.how == "make":
            raise OSError("no environment today")
        return self

    def reset(self, task):
        if self.how == "reset":
            raise SystemExit(3)
        return Turn("begin")

    def step(self, action):
        if self.how == "raises":
            raise OSError("the environment's server is gone")
        if self.how == "exits":
            raise SystemExit(1)
        answers = {"none": None, "observation": Turn(["not text"]), "nan": Turn("go on", math.nan)}
        return answers[self.how]


FAULTS = {
    "make": (0, "OSError: no environment today"),
    "reset": (0, "SystemExit: 3"),
    "raises": (1, "OSError: the environment's server is gone"),
    "exits": (1, "SystemExit: 1"),
    "none": (1, "TypeError: the environment answered with a NoneType"),
    "observation": (1, "TypeError: the observation is a list"),
    "nan": (1, "ValueError: the reward is nan"),
}


class Half:
    """A suite that pays half for the first step and calls the second one a win."""

    name, max_steps, instructions, splits = "half", 5, "", {"all": ("a",)}

    def make(self):
        self.steps = 0
        return self

    def reset(self, task):
        return Turn("begin")

    def step(self, action):
        self.steps += 1
        return Turn("on", 0.5 if self.steps == 1 else 0.25, terminated=self.steps == 2, won=self.steps == 2)


@pytest.mark.parametrize(("reward", "paid"), [("score", [5.0, 2.5]), ("success", [0.0, 10.0])])
def test_a_step_is_paid_the_score_or_the_success(reward, paid):
    tokenizer = Actor.load(actor_folder("textcraft-small")).tokenizer

    async def generate(prompt):
        return Call([5, tokenizer.eos_token_id], None, {})

    settings = read_settings({"env": {"reward": reward}}, "bipace")
    rows = asyncio.run(play(Half(), "a", generate, tokenizer, settings, Limits(960, 32, 5)))
    assert [r.record["reward"] for r in rows] == paid
    assert {r.record["total"] for r in rows} == {sum(paid)}
    assert rows[0].record["episode"]["reward"] == 0.75


@pytest.mark.parametrize("how", FAULTS)
@pytest.mark.parametrize("style", ["transcript", "window"])
def test_a_failing_environment_costs_its_own_episode_only(style, how, caplog):
    tokenizer = Actor.load(actor_folder("textcraft-small")).tokenizer

    async def generate(prompt):
        return Call([5, tokenizer.eos_token_id], None, {})

    settings = read_settings({"prompt": {"style": style}}, "bipace")
    rows = asyncio.run(play(Faulty(how), "a", generate, tokenizer, settings, Limits(960, 32, 5)))
    count, message = FAULTS[how]
    assert [r.record["episode"]["aborted"] for r in rows] == [True] * count
    assert message in caplog.text
    assert all(math.isfinite(r.record["reward"]) for r in rows)


def test_a_model_that_gives_no_tokens_ends_the_episode_without_a_row(caplog):
    tokenizer = Actor.load(actor_folder("textcraft-small")).tokenizer
    suite = get_suite("textcraft")
    answers = iter([[5, tokenizer.eos_token_id], []])

    async def generate(prompt):
        return Call(next(answers), None, {})

    settings = read_settings({}, "bipace")
    task = suite.splits["train-panel"][0]
    rows = asyncio.run(play(suite, task, generate, tokenizer, settings, Limits(960, 32, 5)))
    assert [r.record["episode"]["aborted"] for r in rows] == [True]
    assert "the model gave no tokens" in caplog.text


def test_a_first_prompt_that_does_not_fit_gives_no_rows():
    tokenizer = Actor.load(actor_folder("textcraft-small")).tokenizer
    suite = get_suite("textcraft")

    async def generate(prompt):
        raise AssertionError("the model was called")

    task = suite.splits["train-panel"][0]
    assert (
        asyncio.run(play(suite, task, generate, tokenizer, read_settings({}, "bipace"), Limits(10, 32, 5)))
        == []
    )
