"""Malformed or unsupported game files: one error that names the file and what is wrong in it."""

from __future__ import annotations

import json

import pytest

from bipace.envs.alfworld import GameFileError, generate, load_game, plan

GAME = generate("pick_and_place_simple", 0)


def changed(field, old, new):
    assert old in GAME[field]
    return {**GAME, field: GAME[field].replace(old, new)}


CASES = {
    "no grammar": ({k: v for k, v in GAME.items() if k != "grammar"}, "field 'grammar'"),
    "grammar not text": ({**GAME, "grammar": 3}, "field 'grammar'"),
    "unknown fact": (changed("pddl_problem", "(atLocation", "(isNear"), "predicate in .isnear"),
    "fact of wrong arity": (
        changed("pddl_problem", "(atLocation agent1", "(atLocation"),
        "'atlocation' takes 2",
    ),
    "undeclared object": (changed("pddl_problem", "agent1 - agent", "agent2 - agent"), "'agent1'.*:objects"),
    "a list for a predicate": (
        changed("pddl_problem", "(atLocation agent1", "((atLocation) agent1"),
        ":init: .*atom",
    ),
    "a list for an object": (
        changed("pddl_problem", "(atLocation agent1", "(atLocation (agent1)"),
        ":init: .*atom",
    ),
    "two goals": (changed("pddl_problem", "(:goal", "(:goal (and)"), ":goal: expected one"),
    "types in a circle": (
        changed("pddl_domain", "(:types", "(:types ring - band band - ring"),
        "'ring' is below itself",
    ),
    "action without a name": (
        changed("pddl_domain", "(:action look", "(:action (look)"),
        "action without a name",
    ),
    "walkthrough that is a number": ({**GAME, "walkthrough": 3}, "field 'walkthrough'"),
    "unknown type": (changed("pddl_problem", "agent1 - agent", "agent1 - robot"), "unknown type 'robot'"),
    "no goal": (changed("pddl_problem", "(:goal", "(:wish"), "no :goal"),
    "unbalanced problem": ({**GAME, "pddl_problem": GAME["pddl_problem"] + ")"}, "parenthesis"),
    "unclosed problem": (changed("pddl_problem", "(define", "((define"), "never closed"),
    "unknown predicate in an action": (
        changed(
            "pddl_domain", "(not (opened ?r))\n            )\n    :effect", "(not (ajar ?r))\n )\n :effect"
        ),
        "action 'openobject'.*'ajar'",
    ),
    "forall": (
        changed("pddl_domain", "(checked ?l)", "(forall (?x - object) (checked ?x))"),
        "action 'look'.*forall",
    ),
    "action without text": (
        changed("grammar", "action HeatObject", "action BoilObject"),
        "action 'heatobject'",
    ),
    "template without feedback": (
        changed("grammar", 'feedback :: "#GotoLocation.feedback#";', ""),
        "'gotolocation'",
    ),
    "missing rule": (changed("grammar", '"intro"', '"outro"'), "rule 'intro'"),
    "unbound name": (
        changed("grammar", "You close the {r.name}", "You close the {q.name}"),
        "CloseObject.*'q'",
    ),
    "unknown attribute": (
        changed("grammar", "You close the {r.name}", "You close {r.colour}"),
        "CloseObject.*'colour'",
    ),
    "code in an expression": (
        changed("grammar", "You close the {r.name}", "You close {__import__('os').getcwd()}"),
        "CloseObject",
    ),
    "unknown predicate in a query": (
        changed("grammar", "opened(r:receptacle)", "ajar(r:receptacle)"),
        "ajar",
    ),
    "rule in a circle": (
        changed("grammar", "#look.feedback#\\n\\n#task#", "#intro#"),
        "'intro' refers to itself",
    ),
    "broken JSON": (
        changed("grammar", '"notImplemented": [', '"notImplemented": ['.replace("[", "")),
        "not valid JSON",
    ),
    "junk between actions": (
        changed("grammar", "action CloseObject", "motion CloseObject"),
        "cannot read near",
    ),
}


@pytest.mark.parametrize(("data", "message"), CASES.values(), ids=CASES)
def test_a_broken_file_is_one_error_that_names_file_and_culprit(data, message, tmp_path):
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps(data))
    with pytest.raises(GameFileError, match=rf"(?s)game\.tw-pddl: .*{message}"):
        load_game(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"'])
def test_a_file_that_is_no_json_object_is_named(text, tmp_path):
    path = tmp_path / "game.tw-pddl"
    path.write_text(text)
    with pytest.raises(GameFileError, match=r"game\.tw-pddl: "):
        load_game(path)


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "game.tw-pddl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GameFileError, match=r"game\.tw-pddl: "):
        load_game(path)


def heating(domain):
    """Play the heat game's plan up to the heating, under another domain."""
    data = generate("pick_heat_then_place_in_recep", 0)
    game = load_game({**data, "pddl_domain": domain(data["pddl_domain"])})
    _, state = game.reset()
    at = next(i for i, command in enumerate(data["walkthrough"]) if command.startswith("heat"))
    for command in data["walkthrough"][:at]:
        game.step(state, command)
    return game, state, data["walkthrough"][at]


def in_heat_object(old, new):
    def change(domain):
        head, mark, body = domain.partition("(:action HeatObject")
        assert old in body
        return head + mark + body.replace(old, new, 1)

    return change


def test_the_rules_are_those_of_the_file_a_further_precondition():
    game, state, heat = heating(in_heat_object("(heatable ?o)", "(heatable ?o) (opened ?r)"))
    assert heat not in state.admissible
    assert game.step(state, "open " + heat.split(" with ")[1]) is not None
    assert heat in state.admissible


def test_the_rules_are_those_of_the_file_a_conditional_effect_on_a_constant():
    effect = "(isHot ?o) (when (receptacleType ?r {}) (isClean ?o))"
    for kind, seen in (("MicrowaveType", "hot and clean"), ("FridgeType", "hot")):
        game, state, heat = heating(in_heat_object("(isHot ?o)", effect.format(kind)))
        game.step(state, heat)
        thing = heat.split()[1:3]
        assert game.step(state, "examine " + " ".join(thing)) == f"This is a {seen} {' '.join(thing)}."


def test_a_negated_condition_on_several_parts_is_spread_out():
    rule = "(heatable ?o) (not (or (opened ?r) (not (holds ?a ?o))))"
    game, state, heat = heating(in_heat_object("(heatable ?o)", rule))
    assert heat in state.admissible
    game.step(state, "open " + heat.split(" with ")[1])
    assert heat not in state.admissible


def test_what_is_nested_too_deeply_is_one_error():
    deep = "(" * 5000 + ")" * 5000
    with pytest.raises(GameFileError, match=r"nested too deeply|atom"):
        load_game(changed("pddl_domain", "(checked ?l)", deep))


def test_a_condition_with_too_many_alternatives_is_refused():
    wide = "(and" + " (or (checked ?l) (examined ?l))" * 12 + ")"
    with pytest.raises(GameFileError, match=r"action 'look'.*too many alternatives"):
        load_game(changed("pddl_domain", "(atLocation ?a ?l)\n        )\n    :effect", f"{wide})\n :effect"))


def test_the_expert_says_what_it_needs_of_a_domain():
    data = generate("pick_and_place_simple", 0)
    domain = data["pddl_domain"].replace("(:action PickupObject", "(:action GrabObject")
    grammar = data["grammar"].replace("action PickupObject", "action GrabObject")
    with pytest.raises(GameFileError, match="action 'pickupobject': the expert needs it"):
        plan(load_game({**data, "pddl_domain": domain, "grammar": grammar}))
