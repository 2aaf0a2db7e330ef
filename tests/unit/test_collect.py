"""Collection: tokens as sampled, mishaps counted, a failing environment costs its own episode only."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.envs.base import Turn
from bipace.policies.hf import Actor
from bipace.rollout.collect import Collector
from bipace.rollout.intervals import score_interval, student_quantile, success_interval
from bipace.rollout.panel import PanelResult, evaluate, panel_tasks
from bipace.rollout.records import Step, Trajectory, events
from bipace.rollout.table import to_rows


@dataclass
class Counter:
    """Counts down from the task's number; any action works; fails when told to."""

    left: int = 0
    task: str = ""

    def reset(self, task):
        self.task, self.left = task, int(task.split("-")[0])
        if task.endswith("noreset"):
            raise RuntimeError("cannot begin")
        return Turn(f"{self.left} left", admissible=("go",))

    def step(self, action):
        self.left -= 1
        if self.task.endswith("fails") and self.left == 1:
            raise RuntimeError("broke down")
        if self.task.endswith("lies"):
            return Turn("", admissible=("go",), executed="fly")
        done = self.left == 0
        return Turn(f"{self.left} left", float(done), done, done, bool(action), ("go",))

    def copy(self):
        return replace(self)


@dataclass
class Counting:
    name: str = "counting"
    max_steps: int = 4
    instructions: str = "Count."
    splits: dict = field(default_factory=lambda: {"all": ("1-a", "2-b", "9-c")})

    def make(self):
        return Counter()

    def family(self, task):
        return task[0]

    def expert(self, task):
        return ("go",) * int(task.split("-")[0])


@pytest.fixture(scope="module")
def actor(tiny_actor_folder):
    return Actor.load(tiny_actor_folder)


def collect(actor, tasks, seed=0, group_size=2, **changes):
    collector = Collector(Counting(), max_steps=4, max_new_tokens=6, max_tokens=400, **changes)
    generator = torch.Generator().manual_seed(seed)
    return collector.collect(actor, tasks, group_size, temperature=1.0, generator=generator)


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_episodes_end_as_they_should(actor, style):
    found = collect(actor, ["1-a", "2-b", "9-c"], style=style)
    assert [(t.task, t.member) for t in found] == [(t, m) for t in ("1-a", "2-b", "9-c") for m in (0, 1)]
    assert [len(t.steps) for t in found] == [1, 1, 2, 2, 4, 4]
    assert [t.won for t in found] == [True] * 4 + [False] * 2
    assert [t.truncated for t in found] == [False] * 4 + [True] * 2
    assert [t.reward for t in found] == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_spans_hold_the_responses_and_prompts_what_the_model_read(actor, style):
    for trajectory in collect(actor, ["2-b", "9-c"], style=style):
        spans = [(s.tokens, a, b) for s in trajectory.sequences for a, b in s.spans]
        assert len(spans) == len(trajectory.steps)
        for step, (tokens, start, end) in zip(trajectory.steps, spans, strict=True):
            assert end - start == step.response_tokens
            assert actor.tokenizer.decode(tokens[start:end], skip_special_tokens=True) == step.response
            assert actor.tokenizer.decode(tokens[:start]).endswith("<|im_start|>assistant\n")
            assert step.observation in actor.tokenizer.decode(tokens[:start])


@pytest.mark.parametrize("style", ["transcript", "window"])
def test_the_same_seed_gives_the_same_tokens_and_another_does_not(actor, style):
    def flat(seed):
        found = collect(actor, ["9-c"], seed=seed, style=style)
        return np.concatenate([s.tokens for t in found for s in t.sequences]).tolist()

    assert flat(1) == flat(1)
    assert flat(1) != flat(2)


def test_waves_bound_the_batch_not_the_result_count(actor):
    assert len(collect(actor, ["1-a"] * 5, parallel=2)) == 10


def test_an_environment_that_raises_costs_its_own_episode(actor):
    found = collect(actor, ["2-fails", "2-b", "2-noreset", "2-lies"])
    assert [bool(t.error) for t in found] == [True, True, False, False, True, True, True, True]
    assert "Turn.executed: 'fly' is none of the 1 admissible" in found[6].error
    assert "broke down" in found[0].error
    assert "cannot begin" in found[4].error
    assert events(found)["event/aborted"] == 6
    rows = to_rows([t for t in found if t.steps])
    assert len(set(rows.batch.task)) == 1
    assert rows.dropped == {"aborted": 4}


def test_13_overlong_prompts_are_counted_and_crash_nothing(actor):
    """(verifiers 398)"""
    collector = Collector(Counting(), max_steps=4, max_new_tokens=6, max_tokens=60)
    generator = torch.Generator().manual_seed(0)
    for style in ("transcript", "window"):
        found = replace(collector, style=style).collect(
            actor, ["9-c"], 2, temperature=1.0, generator=generator
        )
        assert all(t.overlong and t.truncated for t in found)
    too_small = replace(collector, max_tokens=16).collect(
        actor, ["9-c"], 2, temperature=1.0, generator=generator
    )
    assert [t.steps for t in too_small] == [[], []]
    assert [t.sequences for t in too_small] == [[], []]
    assert len(to_rows(too_small).batch) == 0


def test_missing_tags_are_counted_and_penalised_on_their_own_row(actor):
    found = collect(actor, ["9-c"], tagged=True, style="window")
    steps = sum(len(t.steps) for t in found)
    assert events(found)["event/unparsed"] == steps
    rows = to_rows(found, invalid_action_penalty=0.1)
    assert rows.batch.penalty.tolist() == [0.1] * steps
    assert (rows.batch.reward == 0).all()


def test_the_table_keeps_groups_steps_and_keys(actor):
    found = collect(actor, ["2-b", "2-b"], group_size=2)
    assert all(s.executed == (s.action if s.valid else None) for t in found for s in t.steps)
    rows = to_rows(found, reward_scale=10.0)
    assert rows.batch.task.tolist() == [0] * 8
    assert rows.batch.trajectory.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows.batch.t.tolist() == [0, 1] * 4
    assert rows.batch.reward.tolist() == [0, 10] * 4
    assert rows.batch.texts == ["2 left", "1 left"]
    for key in ("first_n", "tag_verb", "action_tag", "first_word"):
        assert len(to_rows(found, action_key=key).batch) == 8
    with pytest.raises(ValueError, match="action_key: unknown 'x'"):
        to_rows(found, action_key="x")


def test_a_panel_is_played_once_and_reported_by_family(actor):
    suite = Counting()
    collector = Collector(suite, max_steps=4, max_new_tokens=6, max_tokens=400)
    tasks = panel_tasks(suite, "all")
    result = evaluate(actor, collector, tasks, temperature=0.4, generator=torch.Generator().manual_seed(0))
    assert result.success == pytest.approx(2 / 3)
    assert result.by_family() == {
        k: {"success": s, "n": 1.0} for k, s in (("1", 1.0), ("2", 1.0), ("9", 0.0))
    }
    assert result.summary()["n"] == 3
    assert result.score == result.summary()["score"] == result.success  # rewards are 0 and 1 here
    with pytest.raises(ValueError, match="no split or panel 'nope'; it has all"):
        panel_tasks(suite, "nope")


def test_the_table_takes_partial_rewards_or_successes_alone():
    step = partial(Step, "", "", 1, "", True, True, True)
    partly = Trajectory("1", 0, [step(0.0), step(0.5)], terminated=True)
    wholly = Trajectory("1", 1, [step(0.25), step(1.0)], won=True, terminated=True)
    assert to_rows([partly, wholly], reward_scale=10.0).batch.reward.tolist() == [0, 5, 2.5, 10]
    assert to_rows([partly, wholly], reward_scale=10.0, success_only=True).batch.reward.tolist() == [
        0,
        0,
        0,
        10,
    ]


def test_a_panels_score_is_the_mean_reward_and_counts_what_is_not_a_success():
    def episode(reward, won):
        return Trajectory("1", 0, [Step("", "", 1, "", True, True, True, reward)], won=won)

    result = PanelResult(
        Counting(), [episode(0.5, False), episode(1.0, True), episode(0.0, False), Trajectory("1", 0)]
    )
    assert (result.success, result.score) == (1 / 4, 1.5 / 4)
    assert result.metrics()["reward_mean"] == result.summary()["score"] == 1.5 / 4


def test_intervals_cover_what_is_known():
    assert success_interval(0, 0) == (0.0, 1.0)
    low, high = success_interval(50, 100)
    assert (round(low, 3), round(high, 3)) == (0.404, 0.596)
    assert success_interval(0, 10)[0] == 0.0
    assert score_interval([0.5]) is None
    assert score_interval([0.5, 0.5]) == [0.5, 0.5]
    # Student's t with two degrees of freedom: 4.303 standard errors.
    low, high = score_interval([0.0, 0.5, 1.0])
    assert (round(low, 3), round(high, 3)) == (-0.742, 1.742)


def test_intervals_are_scipys():
    stats = pytest.importorskip("scipy.stats", reason="needs scipy (the dev extra)")
    for freedom in (1, 2, 3, 4, 7, 127, 500, 10_001):
        assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-11)
    for n in (1, 2, 37):
        for won in range(n + 1):
            expected = stats.binomtest(won, n).proportion_ci(0.95, method="wilson")
            assert success_interval(won, n) == (expected.low, expected.high)
