"""A tabular process plays like any environment, and as its table says."""

from collections import Counter

import numpy as np
import pytest

from bipace.envs.base import Environment, Suite, UnknownTask
from bipace.envs.text_mdp import TextMDPSuite
from bipace.theory.textworlds import WORLDS, aliased, corridor, grid, paraphrased, random_mdp, world


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_is_a_suite(name):
    suite = TextMDPSuite(world(name), name=name, numbers=3)
    assert isinstance(suite, Suite)
    assert isinstance(suite.make(), Environment)
    assert not set(suite.splits["train"]) & set(suite.splits["test"])
    for task in suite.splits["train"]:
        turn = suite.make().reset(task)
        assert turn.observation
        assert turn.admissible == suite.process.actions
        assert suite.family(task) == f"start-{task.split('#')[0]}"


@pytest.mark.parametrize("process", [grid(), grid(slip=0.2), paraphrased(), aliased(), corridor(6)])
def test_the_expert_solves_every_task(process):
    suite = TextMDPSuite(process, max_steps=60, numbers=4)
    for split in suite.splits.values():
        for task in split:
            environment = suite.make()
            environment.reset(task)
            turns = [environment.step(command) for command in suite.expert(task)]
            assert turns[-1].won
            assert turns[-1].terminated
            assert sum(turn.reward for turn in turns) == 10.0
            assert not any(turn.terminated for turn in turns[:-1])


def test_the_expert_walks_no_further_than_needed():
    suite = TextMDPSuite(corridor(5))
    assert suite.expert("0#0") == ("go east",) * 4 + ("take lamp",)


def play(suite, task, commands):
    environment = suite.make()
    return [
        environment.reset(task).observation,
        *(environment.step(command).observation for command in commands),
    ]


def test_the_same_task_and_actions_give_the_same_text():
    suite = TextMDPSuite(paraphrased(slip=0.5))
    commands = ["go east", "go south", "dance", "go east", "go north"] * 4
    assert play(suite, "0#3", commands) == play(suite, "0#3", commands)
    assert play(suite, "0#3", commands) != play(suite, "0#4", commands)
    assert play(suite, "0#3", commands) != play(suite, "0#3", ["go north", *commands[1:]])


def test_chance_falls_as_the_table_says():
    process = random_mdp(states=3, actions=2, seed=1)
    environment = TextMDPSuite(process).make()
    seen = Counter()
    for number in range(4000):
        environment.reset(f"0#{number}")
        environment.step("press 1")
        seen[environment.state] += 1
    found = np.array([seen[s] for s in range(4)]) / 4000
    expected = process.transition[0, 1]
    assert (np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000) + 1e-12).all()


def test_phrasings_are_drawn_at_every_visit():
    suite = TextMDPSuite(paraphrased(forms=4))
    first = Counter(suite.make().reset(f"0#{number}").observation for number in range(400))
    assert len(first) == 4
    assert min(first.values()) > 60
    assert len(set(play(suite, "0#0", ["take lamp"] * 30))) == 4


def test_a_copy_goes_its_own_way_and_leaves_the_original():
    suite = TextMDPSuite(grid(slip=0.3))
    environment = suite.make()
    environment.reset("0#0")
    environment.step("go east")
    commands = ["go east", "go south", "go south", "go east", "take lamp"]
    branch = environment.copy()
    ahead = [branch.step(command) for command in commands]
    other = environment.copy()
    other.step("go north")
    assert [environment.step(command) for command in commands] == ahead


def test_what_is_no_command_changes_nothing():
    environment = TextMDPSuite(paraphrased()).make()
    shown = environment.reset("0#0").observation
    state = environment.state
    for command in ("", "dance", "go\neast", "\ud800", "x" * 10_000):
        turn = environment.step(command)
        assert (turn.valid, turn.observation, turn.reward, turn.terminated) == (False, shown, 0.0, False)
        assert environment.state == state
    assert environment.step("  Go EAST ").valid


def test_nothing_happens_after_the_end():
    environment = TextMDPSuite(corridor(2)).make()
    environment.reset("0#0")
    environment.step("go east")
    assert environment.step("take lamp").won
    again = environment.step("go west")
    assert (again.terminated, again.won, again.reward) == (True, False, 0.0)


@pytest.mark.parametrize("task", ["", "x", "4#0", "99#0", "-1#0", "0", "0#", "0#0#0", "٣#0", "0#0\n"])
def test_unknown_tasks_are_refused_with_an_example(task):
    suite = TextMDPSuite(corridor(4))
    for ask in (suite.make().reset, suite.family, suite.expert):
        with pytest.raises(UnknownTask, match="such as '0#0'"):
            ask(task)


def test_bad_requests_are_refused_by_name():
    with pytest.raises(ValueError, match="max_steps: 0"):
        TextMDPSuite(grid(), max_steps=0)
    with pytest.raises(ValueError, match="numbers: 0"):
        TextMDPSuite(grid(), numbers=0)
    with pytest.raises(RuntimeError, match="step before reset"):
        TextMDPSuite(grid()).make().step("go east")
