"""Values by turn inside stock TRL: every recipe's tokens hold what the core says of an independent table."""

from __future__ import annotations

import importlib.util
from typing import ClassVar

import pytest

if importlib.util.find_spec("trl") is None:
    pytest.skip("TRL lives in an environment of its own: make test-engines", allow_module_level=True)

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl_cpu import oracle
from trl_cpu.small import ACTOR, QUIET, SUITE_STEPS, Script, easy, generate, make, recorded, rows, tokenizer

from bipace.core.estimators import RECIPES
from bipace.envs.textcraft import suite as textcraft

pytestmark = [pytest.mark.slow, *QUIET]


def watched(folder, suite, **options):
    """A trainer whose environments keep what they were asked."""
    own = tokenizer()
    return make(
        folder=folder, suite=suite, processing_class=own, environment_factory=recorded(suite, own), **options
    )


def expected(trainer, output, suite, layer, group=4):
    tasks = [trainer.train_dataset[i // group]["task"] for i in range(len(output["completion_ids"]))]
    calls = [environment.calls for environment in trainer.environments]
    columns = oracle.table(trainer, output, suite, tasks, calls, layer)
    return oracle.token_values(columns, trainer.recipe, output["advantages"].shape), columns


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipes_token_values_are_the_cores(tmp_path, name):
    trainer = watched(tmp_path, textcraft(), recipe=name, steps=SUITE_STEPS)
    output = generate(trainer)
    values, columns = expected(trainer, output, textcraft(), layer=1)
    assert torch.allclose(output["advantages"], values, atol=1e-5)
    assert len(set(columns["t"])) > 3  # many turns
    assert values.abs().max() > 0.1
    read = (output["completion_mask"] * output["tool_mask"]) == 0
    assert output["advantages"][read].abs().sum() == 0


def test_budget_and_horizon_cut_episodes_and_the_values_stay_the_cores(tmp_path):
    trainer = watched(tmp_path, easy(), recipe="gigpo", steps=SUITE_STEPS, max_completion_length=60)
    output = generate(trainer)
    values, columns = expected(trainer, output, easy(), layer=None)
    assert torch.allclose(output["advantages"], values, atol=1e-5)
    assert trainer._metrics["train"]["event/truncated"][0] > 0
    assert max(columns["t"]) < 5


def test_turns_of_stock_trl_which_asks_on_after_the_end(tmp_path):
    """Without steps.stop the model is asked once more; the reward lies on the turn that won, not on the
    last.
    """
    attributes = {k: v for k, v in SUITE_STEPS.items() if k != "stop"}
    trainer = watched(tmp_path, easy(), recipe="gigpo", steps=attributes)
    output = generate(trainer)
    values, columns = expected(trainer, output, easy(), layer=None)
    assert torch.allclose(output["advantages"], values, atol=1e-5)
    won = [i for i, reward in enumerate(columns["reward"]) if reward]
    assert won
    follows = [
        columns["span"][i + 1][0] == columns["span"][i][0] for i in won if i + 1 < len(columns["span"])
    ]
    assert any(follows)


def test_calls_that_fail_async_tools_two_calls_in_a_turn_and_an_unscored_rollout(tmp_path):
    own = tokenizer()
    field = own.response_template["fields"]["tool_calls"]
    own.response_template = {
        **own.response_template,
        "fields": {"tool_calls": {**field, "close_pattern": r";|<\|im_end\|>\s*"}},
    }
    base = recorded(textcraft(), own)

    class Moody(base):
        made: ClassVar = []

        def __init__(self):
            super().__init__()
            Moody.made.append(self)

        async def act(self, command: str) -> str:
            if command == "boom":
                raise RuntimeError("broken")
            return base.act(self, command)

        def get_reward(self):
            return None if self is Moody.made[3] else super().get_reward()

    Moody.act.__doc__ = base.act.__doc__
    short = [task for task in textcraft().splits["train"][:64] if len(textcraft().expert(task)) == 3]
    trainer = make(
        folder=tmp_path, recipe="gigpo", steps=SUITE_STEPS, tasks=1, group=4, processing_class=own,
        train_dataset=rows(short), environment_factory=Moody, max_completion_length=160,
        max_tool_calling_iterations=3,
    )  # fmt: skip
    task, end = trainer.train_dataset[0]["task"], "<|im_end|>"
    plan = [f"{command}{end}" for command in textcraft().expert(task)]
    scripts = [
        [*plan, *[f"inventory{end}"] * 4],
        [f"inventory;inventory{end}", f"boom{end}", f"inventory{end}", f"inventory{end}"],
        [f"inventory{end}", end, f"inventory{end}", f"inventory{end}"],
        [f"inventory{end}", "inventory " * 20, f"inventory{end}", f"inventory{end}"],
    ]
    trainer._generate_single_turn = Script(trainer, scripts)
    seen = []
    credit = trainer.estimator
    trainer.estimator = lambda steps, **more: seen.extend(steps) or credit(steps, **more)
    output = generate(trainer, tasks=1)
    by_row = [oracle.completion(output, row) for row in range(4)]
    names = sorted(range(4), key=lambda row: by_row[row][0])
    steps = [[s for s in seen if s.trajectory == names.index(row)] for row in range(4)]
    assert [len(s) for s in steps] == [len(oracle.runs(mask)) for _, mask in by_row]
    assert [s.reward for s in steps[0]] == [0.0] * (len(plan) - 1) + [1.0]
    assert steps[0][-1].terminated
    assert steps[1][0].action.count("inventory") == 2
    assert "broken" in steps[1][2].observation or steps[1][2].observation == steps[1][1].observation
    assert output["advantages"][3].abs().sum() == 0  # nobody scored it
    assert trainer._metrics["train"]["event/aborted"] == [1.0]
    assert output["advantages"][0].abs().max() > 0


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_environment_that_fails_costs_its_own_rollout_alone(tmp_path, where):
    suite = easy()

    class Fragile:
        made = 0

        def __init__(self):
            self.game, self.bad = suite.make(), Fragile.made == 2
            Fragile.made += 1

        def reset(self, task):
            if self.bad and where == "reset":
                raise OSError("no such world")
            return self.game.reset(task)

        def step(self, command):
            if self.bad and where == "step":
                raise OSError("the world ended")
            return self.game.step(command)

    trainer = make(
        folder=tmp_path, suite=_with(suite, Fragile), recipe="grpo", steps=SUITE_STEPS, tasks=1, group=4
    )
    output = generate(trainer, tasks=1)
    rewards = [environment.get_reward() for environment in trainer.environments]
    assert rewards.count(None) == 1
    lost = rewards.index(None)
    rest = torch.tensor([r for r in rewards if r is not None])
    wanted = (rest - rest.mean()) / (rest.std() + 1e-4)
    found = [output["advantages"][row].abs().max() for row in range(4)]
    assert found[lost] == 0
    assert [f for row, f in enumerate(found) if row != lost] == pytest.approx(wanted.abs().tolist(), abs=1e-6)


def _with(suite, maker):
    class Other:
        name, max_steps, instructions, splits = suite.name, suite.max_steps, suite.instructions, suite.splits
        make = staticmethod(maker)

    return Other()


def test_completions_without_tools_are_one_turn_each(tmp_path):
    def length(completions, **_):
        return [float(len(c[0]["content"])) for c in completions]

    plain = AutoTokenizer.from_pretrained(ACTOR)
    prompts = Dataset.from_list(
        [{"prompt": [{"role": "user", "content": text}]} for text in ("one", "two", "three", "four")]
    )
    trainer = make(
        folder=tmp_path, recipe="gigpo", credit={"mode": "mean_norm"}, reward_funcs=length, tools=None,
        processing_class=plain, train_dataset=prompts, max_completion_length=24,
    )  # fmt: skip
    output = generate(trainer)
    assert "tool_mask" not in output
    assert trainer._metrics["train"]["group/steps"] == [16.0]
    rewards = torch.tensor(
        [
            float(len(trainer._tokenizer.decode(oracle.completion(output, r)[0], skip_special_tokens=True)))
            for r in range(16)
        ]
    )
    centred = (rewards.view(4, 4) - rewards.view(4, 4).mean(1, keepdim=True)).flatten()
    # One observation a prompt and one turn an episode: the step term is the trajectory term again.
    wanted = 2 * centred[:, None] * output["completion_mask"]
    assert torch.allclose(output["advantages"], wanted.float(), atol=1e-4)


def test_the_completions_table_holds_the_values_that_were_used(tmp_path):
    trainer = watched(
        tmp_path,
        easy(),
        recipe="bipace",
        steps=SUITE_STEPS,
        eval_dataset=rows(easy().splits["panel"][:4]),
        num_generations_eval=1,
        per_device_eval_batch_size=4,
    )
    output = generate(trainer)
    trained = (output["completion_mask"] * output["tool_mask"]).bool()
    for row, mean in enumerate(trainer._logs["advantages"]):
        assert mean == pytest.approx(output["advantages"][row][trained[row]].mean().item(), abs=1e-5)
        told = [float(v) for v in trainer._logs["extra"]["turn_advantages"][row].split()]
        spans = oracle.runs(oracle.completion(output, row)[1])
        assert told == pytest.approx([output["advantages"][row][a].item() for a, _ in spans], rel=1e-3)
    trainer.evaluate()  # its rows push out the first of the batch, in every column
    assert (
        len(trainer._logs["prompt"])
        == len(trainer._logs["advantages"])
        == len(trainer._logs["extra"]["turn_advantages"])
    )
    assert list(trainer._logs["extra"]["turn_advantages"])[-4:] == [""] * 4
