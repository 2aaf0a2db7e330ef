"""What the values cannot pass through is refused before the first step, with the key and the way out."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("trl") is None:
    pytest.skip("TRL lives in an environment of its own: make test-engines", allow_module_level=True)

from trl_cpu.small import QUIET, SUITE_STEPS, Dataset, easy, generate, make, recorded, rows, tokenizer

from bipace.envs.textcraft import suite as textcraft

pytestmark = [pytest.mark.slow, *QUIET]

ARGUMENTS = {
    "loss_type: 'vespo'.*use 'dapo'": {"loss_type": "vespo"},
    "use_liger_kernel: True": {"use_liger_kernel": True},
    "off_policy_mask_threshold: 0.1": {"off_policy_mask_threshold": 0.1},
    "importance_sampling_level: 'sequence'.*use 'token'": {"importance_sampling_level": "sequence"},
    "multi_objective_aggregation: 'normalize_then_sum'": {
        "multi_objective_aggregation": "normalize_then_sum"
    },
    "scale_rewards: 'batch'": {"scale_rewards": "batch"},
    "scale_rewards: 'none', but the recipe 'bipace' divides": {"scale_rewards": "none"},
    "features.layer: 9 is outside the model, which has 2 layers": {"features": {"layer": 9}},
    "features.laier: unknown key; did you mean features.layer": {"features": {"laier": 1}},
    "features.layer: 'last'": {"features": {"layer": "last"}},
    "bipace option: unknown 'epsilon'; did you mean 'eps'": {"credit": {"epsilon": 0.1}},
    "steps.rewards: unknown key; did you mean steps.reward": {"steps": {"rewards": "step_reward"}},
    "steps.reward: 'paid', but SuiteEnvironment has no attribute": {"steps": {"reward": "paid"}},
    "steps.stop: true, but nobody says": {"steps": {"stop": True}},
    "recipe.*bypace.*bipace": {"recipe": "bypace"},
}


@pytest.mark.parametrize("message", ARGUMENTS)
def test_arguments_and_settings(tmp_path, message):
    with pytest.raises(ValueError, match=message):
        make(folder=tmp_path, **ARGUMENTS[message])


def test_attributes_of_environments_that_nobody_makes(tmp_path):
    with pytest.raises(ValueError, match=r"steps.reward: 'step_reward', but there is no environment_factory"):
        make(
            folder=tmp_path,
            steps=SUITE_STEPS,
            tools=None,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
        )


def test_rewards_by_step_that_do_not_add_up(tmp_path):
    own = tokenizer()

    class Twice(recorded(easy(), own)):
        def get_reward(self):
            return 2 * super().get_reward() + 1

    options = {"suite": easy(), "recipe": "gigpo", "processing_class": own, "environment_factory": Twice}
    trainer = make(folder=tmp_path, steps=SUITE_STEPS, **options)
    with pytest.raises(
        ValueError, match=r"steps.reward: the turns of rollout \d+ earned .*steps.remainder='last'"
    ):
        generate(trainer)
    trainer = make(folder=tmp_path, steps={**SUITE_STEPS, "remainder": "last"}, **options)
    seen = []
    credit = trainer.estimator
    trainer.estimator = lambda steps, **more: seen.extend(steps) or credit(steps, **more)
    generate(trainer)
    totals = [environment.get_reward() for environment in trainer.environments]
    found = {}
    for step in seen:
        found[step.trajectory] = found.get(step.trajectory, 0.0) + step.reward
    assert sorted(found.values()) == pytest.approx(sorted(totals))
    assert {1.0, 3.0} == set(totals)


def test_environments_that_give_no_observation(tmp_path):
    own = tokenizer()

    class Silent(recorded(easy(), own)):
        def act(self, command: str) -> None:
            super().act(command)

    Silent.act.__doc__ = recorded(easy(), own).act.__doc__
    options = {"suite": easy(), "processing_class": own, "environment_factory": Silent}
    trainer = make(folder=tmp_path, recipe="gigpo", **options)
    with pytest.raises(ValueError, match=r"no tool gave any text.*steps.state"):
        generate(trainer)
    generate(make(folder=tmp_path, recipe="gigpo", steps={"state": "state"}, **options))
    generate(make(folder=tmp_path, recipe="bipace", **options))


def test_environments_that_play_another_task_in_every_rollout_of_a_group(tmp_path):
    own = tokenizer()
    goals = {task.split("/")[0]: task for task in textcraft().splits["train"]}
    tasks = iter(list(goals.values())[:16])

    class Own(recorded(textcraft(), own)):
        def reset(self, **_):
            return super().reset(task=next(tasks))

    prompts = Dataset.from_list([{"prompt": [{"role": "user", "content": ""}]}] * 4)
    trainer = make(
        folder=tmp_path,
        recipe="gigpo",
        processing_class=own,
        environment_factory=Own,
        train_dataset=prompts,
    )
    with pytest.raises(ValueError, match=r"prompts: 16 rollouts and no two of one prompt.*seed it"):
        generate(trainer)


def test_rows_with_one_prompt_and_another_hidden_column_are_two_groups(tmp_path):
    twice = Dataset.from_list(
        [{**row, "answer": n} for n in range(2) for row in rows(easy().splits["train"][:2]).to_list()]
    )
    trainer = make(folder=tmp_path, suite=easy(), recipe="gigpo", train_dataset=twice, steps=SUITE_STEPS)
    generate(trainer)
    assert trainer._metrics["train"]["group/groups"] == [4.0]


def test_a_rollout_func_that_counts_other_turns_than_its_mask(tmp_path):
    def play(prompts, trainer):
        n = len(prompts)
        end = trainer._tokenizer.eos_token_id
        return {
            "prompt_ids": [[5, 6]] * n, "completion_ids": [[7, 8, 9, end]] * n, "logprobs": None,
            "env_mask": [[1, 0, 1, 1]] * n, "step_rewards": [[0.0, 0.0, 1.0]] * n,
        }  # fmt: skip

    trainer = make(
        folder=tmp_path,
        recipe="gigpo",
        rollout_func=play,
        reward_funcs=lambda completions, **_: [1.0] * len(completions),
    )
    with pytest.raises(ValueError, match=r"step_rewards of row 0 has 3 entries, but its env_mask has 2 runs"):
        generate(trainer)
