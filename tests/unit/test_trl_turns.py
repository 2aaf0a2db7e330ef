"""The parts of the TRL adapter that need no TRL: turns, what environments say, settings, refusals."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from bipace.core.estimators import describe, recipe
from bipace.integrations.trl.guards import check_arguments, check_first_batch
from bipace.integrations.trl.listening import Final, FinalBlocks, Heard, check_environment, listening
from bipace.integrations.trl.settings import StepSettings, read_trl_settings
from bipace.integrations.trl.turns import (
    Completion,
    Rollout,
    Turn,
    credit_heard,
    engine_steps,
    episode_metrics,
    identity,
    own_fields,
    read_turns,
)
from bipace.integrations.trl.versions import TESTED, check_trl


class Letters:
    """Token n is the n-th letter."""

    def decode(self, tokens, skip_special_tokens):
        assert skip_special_tokens
        return "".join(chr(96 + n) for n in tokens)


def turns(mask, tokens=None, prompt="q", prompt_ids=(17,), messages=None, key="executed"):
    tokens = list(range(1, len(mask) + 1)) if tokens is None else tokens
    return read_turns(Completion(prompt, prompt_ids, tokens, mask, messages), Letters(), key)


def call(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_turns_without_messages_read_the_tokens_between_them():
    found = turns([1, 1, 0, 0, 1])
    assert found == [Turn(0, 2, "q", "ab"), Turn(4, 5, "cd", "e")]
    assert turns([1, 1, 1]) == [Turn(0, 3, "q", "abc")]
    assert turns([0, 0]) == []


def test_turns_with_messages_read_them():
    messages = [
        {"role": "assistant", "tool_calls": [call("act", b=1, a=2.0)]},
        {"role": "tool", "name": "act", "content": "one"},
        {"role": "tool", "name": "act", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "tool_calls": [call("act", a=2, b=1), call("look")]},
        {"role": "tool", "name": "act", "content": "three"},
        {"role": "assistant", "content": "bye"},
    ]
    prompt = [{"role": "system", "content": "rules"}, {"role": "user", "content": "go"}]
    found = turns([1, 0, 1, 0, 1], prompt=prompt, messages=messages)
    assert [t.observation for t in found] == ["go", "one\ntwo", "three"]
    assert found[0].action == 'act({"a": 2, "b": 1})'
    assert found[1].action == ('act({"a": 2, "b": 1})', "look({})")
    assert found[2].action == "e"


def test_a_result_at_the_brim_leaves_no_turn_behind_it():
    messages = [
        {"role": "assistant", "tool_calls": [call("act")]},
        {"role": "tool", "name": "act", "content": "one"},
    ]
    found = turns([1, 0, 0], prompt=[{"role": "user", "content": "go"}], messages=messages)
    assert [(t.start, t.end, t.observation) for t in found] == [(0, 1, "go")]


def test_first_n_reads_tokens():
    assert turns([1, 1, 0, 1], key="first_n")[1].action == (4,)


def test_what_was_heard_is_put_on_its_turn():
    heard = [
        Heard(0, 0, 1.0, False, "s1", "x"),
        Heard(0, 0, 0.5, False, "s2", None),
        Heard(0, 2, 2.0, True, "s3", "y"),
    ]
    found = credit_heard([Turn(i, i + 1, "text", f"call {i}") for i in range(4)], heard, "s0", "many")
    assert [t.reward for t in found] == [1.5, 0, 2.0, 0]
    assert [t.done for t in found] == [False, False, True, False]
    assert [t.observation for t in found] == ["s0", "s2", "s2", "s3"]  # the second turn's calls failed
    assert [t.action for t in found] == [("x", ("refused", "call 0")), "call 1", "y", "call 3"]
    silent = credit_heard([Turn(0, 1, "text", "a")], [Heard(0, 0, 1.0, False, None, None)], None, None)
    assert silent == [Turn(0, 1, "text", "a", 1.0)]


def rollout(*rewards, group="g", tokens=(1,), ended=True, done=None):
    made = tuple(Turn(i, i + 1, f"o{i}", "a", r, done == i) for i, r in enumerate(rewards))
    return Rollout(group, made, tokens, ended)


def test_without_rewards_by_step_all_of_the_reward_lies_on_the_last_turn_or_on_the_one_that_ended_it():
    steps = engine_steps(
        [rollout(0.0, 0.0, 0.0), rollout(0.0, 0.0, 0.0, done=1)], [2.0, 3.0], False, "refuse"
    )
    assert [s.reward for s in steps] == [0, 0, 2, 0, 3, 0]
    assert [s.terminated for s in steps] == [False, False, True, False, False, True]


def test_rewards_by_step_add_up_to_trls_or_are_refused():
    fine = engine_steps([rollout(0.1, 0.2)], [0.30000001192], True, "refuse")
    assert [s.reward for s in fine] == [0.1, 0.2]
    with pytest.raises(
        ValueError, match=r"steps.reward: the turns of rollout 0 earned 0.3, .* is 0.5; .*'last'"
    ):
        engine_steps([rollout(0.1, 0.2)], [0.5], True, "refuse")
    put = engine_steps([rollout(0.1, 0.2)], [0.5], True, "last")
    assert [s.reward for s in put] == pytest.approx([0.1, 0.4])


def test_a_rollout_that_nobody_scored_is_aborted_and_one_without_turns_no_rows():
    steps = engine_steps(
        [rollout(0.0, 1.0), rollout(), rollout(1.0)], [float("nan"), 0.0, 1.0], True, "refuse"
    )
    assert [s.reward for s in steps] == [None, None, 1.0]
    assert [s.aborted for s in steps] == [True, True, False]
    metrics = episode_metrics(
        [rollout(0.0, 1.0), rollout(), rollout(1.0, ended=False)], [float("nan"), 0.0, 1.0]
    )
    assert metrics == {
        "episode/count": 1.0, "episode/reward_mean": 1.0, "episode/steps_mean": 1.0, "event/truncated": 1.0,
        "event/aborted": 1.0, "event/missing_episodes": 1.0,
    }  # fmt: skip


def test_trajectories_are_named_by_their_tokens_and_not_by_their_place():
    a, b = rollout(1.0, tokens=(3, 1)), rollout(0.0, tokens=(2, 9))
    assert [s.trajectory for s in engine_steps([a, b], [1.0, 0.0], True, "refuse")] == [1, 0]
    assert [s.trajectory for s in engine_steps([b, a], [0.0, 1.0], True, "refuse")] == [0, 1]


def test_a_prompt_group_is_the_row_and_what_was_read():
    row = {"prompt": [{"role": "user", "content": ""}], "answer": 1}
    assert identity(row, [1, 2]) == identity(dict(reversed(row.items())), (1, 2))
    assert len({identity(row, [1, 2]), identity({**row, "answer": 2}, [1, 2]), identity(row, [1, 3])}) == 3


def test_fields_of_a_rollout_func():
    made = own_fields(
        turns([1, 0, 1]), {"step_rewards": [1, 2], "states": ["s", "t"], "actions": ["x", "y"]}, 0
    )
    assert made == [Turn(0, 1, "s", "x", 1.0), Turn(2, 3, "t", "y", 2.0)]
    with pytest.raises(ValueError, match=r"states of row 4 has 1 entries, .* 2 runs"):
        own_fields(turns([1, 0, 1]), {"states": ["s"]}, 4)


class Game:
    def __init__(self):
        self.paid, self.over, self.where = 0.0, False, "start"

    def act(self, command):
        if command == "boom":
            raise RuntimeError("broken")
        self.paid, self.over, self.where = 1.0, command == "win", command
        return f"did {command}"

    async def later(self, command):
        return [self.act(command)]


SETTINGS = StepSettings(reward="paid", done="over", state="where", stop=True)


def test_an_environment_tells_after_its_own_calls_alone():
    game, heard = Game(), []
    act = listening(game.act, game, 3, lambda: 7, SETTINGS, heard.append)
    later = listening(game.later, game, 3, lambda: 8, SETTINGS, heard.append)
    assert act("go") == "did go"
    assert not isinstance(act("go"), Final)
    with pytest.raises(RuntimeError, match="broken"):
        act("boom")
    last = act("win")
    assert isinstance(str(last), Final)  # TRL turns results into text
    assert last == "did win"
    assert isinstance(asyncio.run(later("win")), FinalBlocks)
    assert heard[-1] == Heard(3, 8, 1.0, True, "win", None)
    assert len(heard) == 4
    other = Game()
    assert listening(other.act, game, 0, lambda: 0, SETTINGS, heard.append) == other.act
    assert listening(len, game, 0, lambda: 0, SETTINGS, heard.append) is len


def test_attributes_that_are_named_must_be_there():
    check_environment(Game(), SETTINGS)
    with pytest.raises(ValueError, match=r"steps.reward: 'wages', but Game has no attribute"):
        check_environment(Game(), StepSettings(reward="wages"))


def test_grpo_divides_as_trl_does_and_other_recipes_as_everywhere():
    def made(*settings):
        return describe(read_trl_settings(*settings, None, None)[1])

    assert made("grpo", None) == describe(recipe("grpo", delta=1e-4)) != describe(recipe("grpo"))
    assert made("grpo", {"delta": 1e-6}) == describe(recipe("grpo"))
    assert made("bipace", {"eps": 0.2}) == describe(recipe("bipace", eps=0.2))
    own = recipe("gigpo")
    assert read_trl_settings(own, None, None, None)[1] is own
    with pytest.raises(ValueError, match="beside a Recipe that is ready"):
        read_trl_settings(own, {"gamma": 1.0}, None, None)


ARGUMENTS = SimpleNamespace(
    num_generations=8, use_liger_kernel=False, loss_type="dapo", importance_sampling_level="token",
    multi_objective_aggregation="sum_then_normalize", scale_rewards="group", off_policy_mask_threshold=None,
)  # fmt: skip


def test_arguments_that_need_one_value_a_completion_are_refused_by_name():
    check_arguments(ARGUMENTS, recipe("bipace"))
    for name, value in {
        "num_generations": 1, "use_liger_kernel": True, "loss_type": "vespo",
        "importance_sampling_level": "sequence",
        "multi_objective_aggregation": "normalize_then_sum", "scale_rewards": "batch",
        "off_policy_mask_threshold": 0.5,
    }.items():  # fmt: skip
        changed = SimpleNamespace(**{**vars(ARGUMENTS), name: value})
        with pytest.raises(ValueError, match=f"^{name}: "):
            check_arguments(changed, recipe("bipace"))
    undivided = SimpleNamespace(**{**vars(ARGUMENTS), "scale_rewards": "none"})
    check_arguments(undivided, recipe("dr_grpo"))
    with pytest.raises(ValueError, match=r"^scale_rewards: 'none', but"):
        check_arguments(undivided, recipe("grpo"))


def test_a_first_batch_with_nothing_to_compare_is_refused():
    made = recipe("gigpo")
    check_first_batch([rollout(1.0), rollout(0.0)], made, True)
    check_first_batch([rollout(1.0)], made, True)
    with pytest.raises(ValueError, match=r"^prompts: 2 rollouts and no two"):
        check_first_batch([rollout(1.0, group="a"), rollout(0.0, group="b")], made, True)
    silent = Rollout("g", (Turn(0, 1, "go", "a"), Turn(1, 2, "None", "b")), (1,), True)
    with pytest.raises(ValueError, match="no tool gave any text"):
        check_first_batch([silent, silent], made, True)
    check_first_batch([silent, silent], made, False)


def test_other_versions_of_trl_are_refused_by_name():
    assert check_trl(TESTED[-1]).endswith("tested")
    assert "not tested" in check_trl("1.16.9")
    for version in ("1.15.0", "1.17.0", "2.0.0", "0.29.1", "main"):
        with pytest.raises(ImportError, match=f"this is trl {version}; install bipace"):
            check_trl(version)
