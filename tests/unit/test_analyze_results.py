"""The analysis: every number shown is the core's; findings fire where they should; bad rewards and ids are
survived.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")

import bipace
from bipace.analyze import Options, analyze
from bipace.analyze.pools import MAX_TEXT
from bipace.analyze.table import build_table
from samples import needs_sample, sample

REAL = sample("trajectories")
real_files = needs_sample("trajectories")


def episode(task, member, pairs, reward=0.0, won=None):
    steps = [
        {"observation": o, "response": f"<action>{a}</action>", "action": a, "parsed": True, "reward": 0.0}
        for o, a in pairs
    ]
    steps[-1]["reward"] = reward
    return {"task": task, "member": member, "steps": steps, "won": won}


def write(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


@pytest.fixture
def small(tmp_path):
    """Two tasks: one varied with shared states and two actions, one flat with a copy and a loop."""
    return write(
        tmp_path / "small.jsonl",
        [
            episode("a", 0, [("hall north", "go"), ("red door", "open")], 1.0),
            episode("a", 1, [("hall north", "go"), ("red door", "kick")], 0.0),
            episode("a", 2, [("hall north", "wait"), ("hall north", "wait"), ("red door", "open")], 1.0),
            episode("b", 0, [("pit", "cry")], 0.0),
            episode("b", 1, [("pit", "cry")], 0.0),
        ],
    )


def found_ids(analysis):
    return {f.id: f.severity for f in analysis.findings}


@pytest.mark.parametrize("name", list(bipace.RECIPES))
def test_shown_advantages_are_the_cores(small, name):
    found = analyze(small, Options(eps=0.2, mode="mean_norm"))
    options = {"bigpo": {"eps": 0.2}, "diff_peer": {"eps": 0.2}, "bipace": {"eps": 0.2}}.get(name, {})
    if name not in ("grpo", "dr_grpo", "rloo", "multiscale"):
        options = {**options, "mode": "mean_norm"}
    if "gamma" in bipace.core.estimators.recipe_options(name):
        options = {**options, "gamma": 0.95}
    expected = bipace.advantages(found.table.batch, bipace.recipe(name, **options)).values
    np.testing.assert_array_equal(found.credits[name].values, expected)


def test_shown_arithmetic_gives_the_value_of_every_term(small):
    data = analyze(small).to_dict()
    columns = data["columns"]
    seen = 0
    for credit in [
        *data["credit"].values(),
        *(c for e in data["credit_by_eps"] for c in e["credit"].values()),
    ]:
        for term in credit["terms"]:
            q, v, scale, value, branch = (
                np.array(columns[term[k]], np.float64) for k in ("q", "v", "scale", "value", "branch")
            )
            compared = branch > 0
            expected = term["weight"] * (q - v)[compared] / scale[compared]
            np.testing.assert_allclose(value[compared], expected, rtol=1e-8, atol=1e-9)
            assert not value[~compared].any()
            seen += int(compared.sum())
        if all(part["blend"] is None for part in credit["parts"]):
            total = sum(np.array(columns[term["value"]]) for term in credit["terms"])
            np.testing.assert_allclose(columns[credit["value"]], total, rtol=1e-8, atol=1e-9)
    assert seen > 100


def test_findings_name_what_is_there_and_where(small):
    found = analyze(small)
    ids = found_ids(found)
    assert {"flat-groups", "duplicates", "loops", "exact-text-peers", "step-credit"} <= set(ids)
    assert ids["flat-groups"] == "warning"
    places = {f["id"]: f["places"] for f in found.findings_json()}
    assert places["flat-groups"] == [{"task": "b", "group": 1, "trajectory": None, "t": None}]
    assert places["duplicates"] == [{"task": "b", "group": 1, "trajectory": "b #1", "t": None}]
    assert places["loops"] == [{"task": "a", "group": 0, "trajectory": "a #2", "t": 1}]


def test_a_shaped_reward_does_not_hide_a_group_without_outcome_variance(tmp_path):
    path = write(tmp_path / "s.jsonl", [episode("a", i, [("x", "y")], -0.1 * i, won=False) for i in range(3)])
    found = analyze(path)
    assert found.health.numbers["flat_groups"] == 1
    assert found_ids(found)["shaping-only"] == "warning"


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), "n/a", [1]])
def test_a_bad_reward_costs_its_own_trajectory_only(tmp_path, bad):
    rows = [episode("a", i, [("x", "y")], float(i)) for i in range(3)]
    rows.append(episode("a", 3, [("x", "y")], bad))
    found = analyze(write(tmp_path / "b.jsonl", rows))
    assert found.health.numbers["trajectories"] == 3
    assert "no-reward" in found_ids(found)
    assert sum(found.credits["dr_grpo"].values) == pytest.approx(0)


def test_without_any_reward_structure_is_shown_and_the_way_out_named(tmp_path):
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    found = analyze(write(tmp_path / "b.jsonl", [chat, chat]))
    (told,) = [f for f in found.findings if f.id == "no-rewards"]
    assert found.findings[0] is told
    assert "--map reward=COLUMN" in told.advice
    assert "--rewards FILE" in told.advice
    assert found.health.numbers["trajectories"] == 2
    assert not {"flat-groups", "step-credit"} & set(found_ids(found))
    assert not found.credits["grpo"].values.any()


def test_one_trajectory_alone_is_reported_and_shown(tmp_path):
    found = analyze(write(tmp_path / "one.jsonl", [episode("a", 0, [("x", "y")], 1.0)]))
    assert found_ids(found)["lone-groups"] == "error"
    assert not any(credit.values.any() for credit in found.credits.values())
    assert json.loads(found.to_json())["numbers"]["steps"] == 1


def test_unhashable_and_giant_observations_are_kept_apart_and_cut_for_the_page(tmp_path):
    values = [{"a": [1]}, {"a": [1.0]}, None, "x" * 200_000, "x" * 199_999 + "y"]
    rows = [{"task": "t", "trajectory": i, "step": 0, "observation": v, "action": "go", "reward": i} for i,
        v in
            enumerate(values)]  # fmt: skip
    found = analyze(write(tmp_path / "r.jsonl", rows))
    assert found.credits["gigpo"].diagnostics["clusters"] == 5
    assert max(map(len, found.to_dict()["texts"])) < MAX_TEXT + 100


def test_two_files_with_one_task_name_stay_apart_unless_merged(tmp_path):
    paths = [
        write(tmp_path / f"{n}.jsonl", [episode("a", i, [("x", "y")], float(n)) for i in range(2)])
        for n in range(2)
    ]
    apart, merged = analyze(paths), analyze(paths, Options(merge=True))
    assert (apart.health.numbers["groups"], merged.health.numbers["groups"]) == (2, 1)
    assert "clashing-tasks" in found_ids(apart)
    assert "clashing-tasks" not in found_ids(merged)
    assert len({t.name for t in merged.table.trajectories}) == 4


def test_large_inputs_are_sampled_by_whole_groups_and_say_so(tmp_path):
    rows = [episode(f"t{g}", i, [("x", "y"), ("z", "y")], float(i)) for g in range(20) for i in range(2)]
    data = analyze(write(tmp_path / "l.jsonl", rows), Options(page_steps=20)).to_dict()
    assert data["sampled"] == {"groups": 5, "of": 20, "steps": 20, "of_steps": 80}
    assert data["numbers"]["steps"] == 80
    assert len(data["steps"]["reward"]) == 20 == len(data["columns"][data["credit"]["bipace"]["value"]])


def test_text_vectors_join_equal_texts_at_radius_zero_and_similar_ones_later(tmp_path):
    base = "you are in the kitchen and see a counter a stove a fridge a sink and a table with plates number"
    rows = [episode("a", i, [(f"{base} {i}", "go"), ("!!", "go"), ("", "go")], float(i)) for i in range(4)]
    found = analyze(write(tmp_path / "v.jsonl", rows))
    clusters = {s.eps: s.credits["bipace"].diagnostics["clusters"] for s in found.sweep}
    assert clusters[0.0] == 5  # four kitchens, and the texts without a word together
    assert clusters[0.5] == 2


def test_the_sweep_carries_the_label_free_criterion_of_the_core(small):
    from bipace.core.calibrate import prediction_error
    from bipace.core.returns import return_to_go

    found = analyze(small)
    returns = return_to_go(found.table.batch, found.options.gamma)
    errors = {s.eps: prediction_error(found.table.batch, s.labels, returns) for s in found.sweep}
    assert min(errors.values()) > 0
    shown = found.to_dict()
    assert {s["eps"]: s["prediction_error"] for s in shown["sweep"]} == pytest.approx(errors)
    assert shown["best_eps"] == min(errors, key=lambda eps: (errors[eps], eps))


def test_an_analysis_prints_short_in_a_notebook(small):
    found = analyze(small)
    assert len(repr(found)) < 200
    assert repr(found).startswith("<Analysis of small.jsonl: 2 groups, 5 trajectories, 9 steps, ")
    assert repr(found).endswith(f", {len(found.findings)} findings, worst: {found.worst()}>")


def test_analysis_is_the_same_twice(small):
    assert analyze(small).to_json() == analyze(small).to_json()


def test_hidden_states_stand_at_the_last_prompt_token(small, tiny_actor_folder):
    torch = pytest.importorskip("torch", reason="torch is absent")
    from bipace.policies.hf import Actor

    found = analyze(small, Options(model=str(tiny_actor_folder), layer=2))
    assert found.feature_kind == "hidden"
    features = found.table.batch.features
    actor = Actor.load(tiny_actor_folder)
    messages = [{"role": "user", "content": "hall north"}]
    tokens = actor.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    with torch.inference_mode():
        output = actor.model(input_ids=torch.tensor([list(tokens)]), output_hidden_states=True)
    np.testing.assert_allclose(features[0], output.hidden_states[2][0, -1].numpy(), rtol=1e-4, atol=1e-5)


def test_bad_options_are_named(small):
    with pytest.raises(ValueError, match="--eps"):
        Options(eps=3)
    with pytest.raises(ValueError, match="mode: unknown"):
        analyze(small, Options(mode="mean"))
    with pytest.raises(ValueError, match="action_key"):
        build_table([], "nope")


@real_files
def test_tau_bench_numbers():
    found = analyze(REAL / "tau_bench_airline_gpt4o.json")
    numbers, exact = found.health.numbers, found.credits["gigpo"].diagnostics
    assert (numbers["groups"], numbers["steps"], numbers["flat_groups"]) == (50, 2454, 24)
    assert (numbers["group_size_min"], numbers["group_size_max"]) == (4, 4)
    assert exact["singleton_rate"] == pytest.approx(0.8398, abs=1e-4)
    assert exact["lone_step_share"] == pytest.approx(0.6153, abs=1e-4)


@real_files
def test_reflexion_has_no_variance_and_many_copies():
    found = analyze(REAL / "reflexion_hotpotqa_react_base.txt")
    assert found_ids(found)["flat-groups"] == "error"
    assert found.health.numbers["flat_groups"] == found.health.numbers["groups"] == 100
    assert found.health.numbers["duplicate_trajectories"] > 300


@real_files
@pytest.mark.parametrize("name", ["adapt_alfworld_davinci003.json", "adapt_textcraft_gpt35.json"])
def test_adapt_tasks_are_reported_as_lone(name):
    found = analyze(REAL / name)
    assert found_ids(found)["lone-groups"] == "error"
    assert found.health.numbers["lone_groups"] == found.health.numbers["groups"]
