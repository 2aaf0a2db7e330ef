"""Action keys say what the environment did: in the core, in every suite, through the collector's table."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipace.core.actions import executed_key, tag_verb, tool_call
from bipace.envs.alfworld import FAMILIES, AlfworldSuite
from bipace.envs.base import Turn, executed_command
from bipace.envs.isolation import isolate
from bipace.envs.registry import get_suite
from bipace.envs.text_mdp import TextMDPSuite
from bipace.rollout.records import Step, Trajectory
from bipace.rollout.table import to_rows
from bipace.theory.textworlds import world


def test_a_refused_text_is_another_action_than_the_executed_command_it_resembles():
    done, said = (
        executed_key("go to cabinet 1", "go to cabinet 1", True),
        executed_key("Go To Cabinet 1", None, False),
    )
    assert done != said
    assert executed_key("go  to CABINET 1 ", None, False) == said
    assert executed_key("anything", None, False, "one") == executed_key("", None, False, "one") != said
    assert executed_key("refused", "refused", True) != executed_key("refused", None, False)
    with pytest.raises(ValueError, match="refused: 'some', expected 'many' or 'one'"):
        executed_key("", None, False, "some")


def test_tag_verb_is_the_name_of_the_tag():
    assert tag_verb("<think>I <search>x</search></think>\n<Answer>42</Answer>") == ("answer", True)
    assert tag_verb("<search>tea</search>") == ("search", True)
    assert tag_verb("<think>hm</think> Go North ") == ("<think>hm</think> go north", False)
    assert tag_verb("<search>tea</answer>") == ("<search>tea</answer>", False)


def test_tool_calls_are_equal_where_name_and_arguments_are():
    text = 'search({"a": 1, "q": "tea"})'
    flat = {"name": "search", "arguments": {"q": "tea", "a": 1}}
    nested = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "search", "arguments": '{"q": "tea", "a": 1.0}'},
    }
    assert (
        tool_call(flat)
        == tool_call(nested)
        == tool_call({"name": "search", "input": {"a": 1, "q": "tea"}})
        == text
    )
    assert tool_call({"name": "stop"}) == tool_call({"name": "stop", "arguments": ""}) == "stop({})"
    assert tool_call({"name": "run", "arguments": " {broken "}) == "run({broken)"
    assert tool_call({"name": "f", "arguments": {1: (2, None)}}) == 'f({"1": [2, null]})'
    with pytest.raises(ValueError, match="tool call: no name in"):
        tool_call({"arguments": {}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=2), json_values, max_size=3))
def test_a_tool_call_is_written_alike_however_its_arguments_come(arguments):
    turned = dict(reversed(list(arguments.items())))
    forms = [arguments, turned, json.dumps(turned), json.dumps(arguments, indent=2)]
    assert len({tool_call({"name": "f", "arguments": form}) for form in forms}) == 1
    assert json.loads(tool_call({"name": "f", "arguments": arguments})[2:-1]) == arguments


def test_what_counts_as_executed():
    offered, silent = Turn("", admissible=("go", "look")), Turn("")
    assert executed_command(" go ", offered, Turn("", executed="go")) == "go"
    assert executed_command(" Go ", offered, Turn("")) == "Go"
    assert executed_command("go", offered, Turn("", valid=False)) is None
    assert executed_command("x", silent, Turn("", executed="anything")) == "anything"
    unlisted = Turn("", admissible=("go",), unlisted=True)
    assert executed_command("x", unlisted, Turn("", executed="search[x]")) == "search[x]"


def test_an_environment_that_contradicts_itself_is_named():
    with pytest.raises(
        ValueError, match=r"Turn\.executed: 'fly' is none of the 2 admissible commands offered"
    ):
        executed_command("fly", Turn("", admissible=("go", "look")), Turn("", executed="fly"))
    with pytest.raises(ValueError, match=r"Turn\.executed: 'go' beside valid=False"):
        executed_command("go", Turn(""), Turn("", valid=False, executed="go"))


def play(environment, task, actions):
    """The executed command of every action, in one episode."""
    turn, found = environment.reset(task), []
    for action in actions:
        answer = environment.step(action)
        found.append(executed_command(action, turn, answer))
        assert found[-1] == answer.executed
        turn = answer
    return found


def test_textcraft_says_what_it_understood():
    suite = get_suite("textcraft")
    said_and_meant = {
        "get 04 bamboo": "get 4 bamboo",
        " get 4 bamboo\n": "get 4 bamboo",
        "get 9 sugar_cane": "get 9 sugar cane",
        "inventory": "inventory",
        "inventory please": "inventory",
        "craft 9 stick using 2 bamboo": "craft 1 stick using 2 bamboo",
        "craft 1 stick using 2 bamboo\nand more": "craft 1 stick using 2 bamboo",
        "get 2 coal": "get 2 coal",
        "craft 4 torch using 1 coal, 1 stick": "craft 4 torch using 1 coal, 1 stick",
        "craft 1 torch using 1 stick, 1 coal": "craft 4 torch using 1 coal, 1 stick",
        "craft 4 torch using 1 stick, 1 coal": None,  # no stick is left
        "Get 1 bamboo": None,
        "fly": None,
    }
    found = play(suite.make(), suite.splits["train"][0], said_and_meant)
    assert found == list(said_and_meant.values())


@pytest.mark.parametrize("split", ["train", "heldout", "depth3"])
def test_textcraft_reads_its_own_canonical_form_as_the_same_command(split):
    """Expert plans, and the canonical form played in their place, lead to the same turns."""
    suite = get_suite("textcraft")
    for task in suite.splits[split][:20]:
        plan = suite.expert(task)
        canonical = play(suite.make(), task, plan)
        first, second = suite.make(), suite.make()
        first.reset(task), second.reset(task)
        for said, meant in zip(plan, canonical, strict=True):
            a, b = first.step(said), second.step(meant)
            assert (a.reward, a.won, a.executed) == (b.reward, b.won, b.executed)
            assert first.inventory == second.inventory


def test_alfworld_executes_the_command_as_it_stands_in_the_list():
    suite = AlfworldSuite()
    task = f"gen/{FAMILIES[0]}/0"
    plan = suite.expert(task)
    assert play(suite.make(), task, plan) == list(plan)
    assert play(suite.make(), task, [f" {plan[0]}\n", plan[0].upper(), "dance"]) == [plan[0], None, None]


def test_webshop_lower_cases_and_searches_from_any_page():
    suite = get_suite("webshop")
    task = suite.splits["gen-train"][0]
    turn = suite.make().reset(task)
    found = play(
        suite.make(),
        task,
        ["SEARCH[Red   shoes]", "search[red shoes]", "Click[Back to Search]", "click[no]", "x"],
    )
    assert found == ["search[red shoes]", "search[red shoes]", "click[back to search]", None, None]
    assert turn.unlisted
    plan = suite.expert(task)
    assert [command.lower() for command in plan] == play(suite.make(), task, plan)


def test_a_text_process_names_its_own_action():
    suite = TextMDPSuite(world("grid"))
    name = suite.process.actions[0]
    assert play(suite.make(), "0#0", [f" {name.upper()} ", "nonsense"]) == [name, None]


@pytest.mark.parametrize("name", ["textcraft", "alfworld"])
def test_an_isolated_environment_forwards_what_was_executed(name):
    suite = get_suite(name)
    task = next(iter(suite.splits.values()))[0]
    plan = [*suite.expert(task)[:2], "nonsense"]
    assert play(isolate(suite, name, 60.0).make(), task, plan) == play(suite.make(), task, plan)


def test_the_table_groups_by_what_was_executed():
    def step(action, executed, valid=True):
        return Step("room", f"<act>{action}</act>", 3, action, True, valid, True, 0.0, executed)

    steps = [
        step("Go 1", "go 1"), step("go  1", "go 1"), step("go 1", None, False), step("GO 1 ", None, False),
        step("fly", None, False), step(" wait ", None), step("wait", "wait"),
    ]  # fmt: skip
    trajectory = [Trajectory("t", 0, steps)]

    def keys(**options):
        return to_rows(trajectory, **options).batch.action.tolist()

    assert keys() == [0, 0, 1, 1, 2, 3, 3]
    assert keys(refused_actions="one") == [0, 0, 1, 1, 1, 2, 2]
    assert keys(action_key="action_tag") == [0, 1, 0, 0, 2, 3, 3]
    assert keys(action_key="tag_verb") == [0] * 7
    assert np.unique(keys(action_key="first_word")).tolist() == [0, 1, 2]
