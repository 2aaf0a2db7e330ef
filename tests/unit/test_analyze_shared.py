"""Real files of ten families with every word replaced, and made ones: against counts made by hand.

The numbers were counted in the files themselves: assistant messages, model calls, indices, scores.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")

from bipace.analyze import NotTrajectories, Options, analyze
from bipace.analyze.reading import read_files
from samples import needs_sample, sample

FORMATS = sample("formats")
MADE = FORMATS / "made"
pytestmark = needs_sample("formats")


def rewards(found):
    return [sum(s.reward for s in t.steps) for t in found.table.trajectories]


def ids(found):
    return {f.id: f for f in found.findings}


def summary(name, **options):
    found = analyze(FORMATS / name, Options(**options))
    told = found.summary()
    return found, (told["format"], told["groups"], told["trajectories"], told["steps"])


def test_nemo_gym_five_rollouts_of_one_card_game():
    found, counts = summary("nemo_gym/card_game_5_rollouts.jsonl")
    # Five lines, one task index; answers 2 + 1 + 1 + 2 + 1; the first, third lose.
    assert counts == ("nemo_gym", 1, 5, 7)
    assert rewards(found) == [-1.0, 1.0, -1.0, 1.0, 1.0]
    assert found.summary()["understood"] == 1.0


def test_nemo_gym_five_rollouts_of_one_coding_task():
    found, counts = summary("nemo_gym/coding_agent_5_rollouts.jsonl")
    # A message and the call after it are one model call: 8 + 3 + 3 + 3 + 4. None is masked; one is resolved.
    assert counts == ("nemo_gym", 1, 5, 21)
    assert [len(t.steps) for t in found.table.trajectories] == [8, 3, 3, 3, 4]
    assert found.table.outcome.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert sum(s.form == "tool" for s in found.table.steps) == 16
    assert found.dropped == {}


def test_nemo_gym_three_tasks_with_shaped_rewards():
    found, counts = summary("nemo_gym/grid_5_tasks.jsonl")
    assert counts == ("nemo_gym", 3, 3, 50)
    assert rewards(found) == pytest.approx([10.0, -2.0, -2.0])
    assert found.table.outcome.tolist()[0] == 1.0
    assert ids(found)["lone-groups"].severity == "error"


def test_two_swe_agent_runs_of_one_task_are_one_group_and_rewards_join_by_file(tmp_path):
    found, counts = summary("swe_agent")
    assert counts == ("swe_agent", 1, 2, 23)
    assert "no-rewards" in ids(found)
    (tmp_path / "r.json").write_text(json.dumps({"same_task_run_1": 1, "same_task_run_2": 0}))
    joined, _ = summary("swe_agent", rewards=tmp_path / "r.json")
    assert (rewards(joined), "no-rewards" in ids(joined)) == ([1.0, 0.0], False)


def test_inspect_samples_are_groups_and_a_log_without_answers_is_refused():
    found, counts = summary("inspect/samples_and_epochs.json")
    assert counts == ("inspect", 3, 3, 3)
    assert rewards(found) == [1.0, 1.0, 1.0]
    with pytest.raises(NotTrajectories, match="item 1: messages: no answer of a model"):
        analyze(FORMATS / "inspect" / "tool_call_error.json")


def test_openhands_conversations():
    # v0: a call and the finish; v1: two answers, with the log of one action lost between them.
    _, v0 = summary("openhands/v0_saved_trajectory.json")
    found, v1 = summary("openhands/sdk_v1_events.jsonl")
    assert (v0, v1) == (("openhands", 1, 1, 2), ("openhands", 1, 1, 2))
    # the lost action's observation was read too
    assert found.table.steps[1].observation.count("mire saso") == 2


def test_atif_runs_continuations_and_sub_agents():
    readings = read_files([FORMATS / "atif"]).files
    found = {Path(r.file).name: r.trajectories for r in readings}
    # 3 answers before the summary and 4 after it; what is copied (4 steps) counts once.
    (whole,) = found["harbor_terminus2_continuation.json"]
    assert len(whole.steps) == 7
    assert found["harbor_terminus2_continuation_cont1.json"] == []
    (summariser,) = found["harbor_terminus2_sub_summary.json"]
    assert (len(summariser.steps), summariser.parent) == (1, "Nupogita_Votomele_ID")
    assert [len(t.steps) for t in found["harbor_terminus2_timeout.json"]] == [3]
    # A dispatch without a model call is no step; each child is a trajectory of its own.
    assert [(len(t.steps), bool(t.parent)) for t in found["v17_embedded_subagents.json"]] == [
        (1, False),
        (1, True),
    ]
    assert [(len(t.steps), bool(t.parent)) for t in found["subagent_trajectories.json"]] == [
        (2, False),
        (1, True),
    ]


def test_terminus_keystrokes_are_one_key_said_or_called():
    readings = read_files([FORMATS / "atif"]).files
    said = next(r for r in readings if r.file.endswith("continuation.json")).trajectories[0].steps[:3]
    assert {step.form for step in said} == {"written"}
    assert all(step.action.startswith("bash_command({") for step in said)


def test_a_terminal_reward_on_every_row_counts_once_and_the_switch_undoes_it():
    path = MADE / "a01_terminal_reward_on_every_row.jsonl"
    found = analyze(path)
    assert rewards(found) == [1.0, 1.0, 0.0]
    assert "repeated-reward" in ids(found)
    grpo = dict(zip([t.name for t in found.table.trajectories], rewards(found), strict=True))
    assert grpo == {"long": 1.0, "short": 1.0, "fail": 0.0}
    short = next(i for i, t in enumerate(found.table.trajectories) if t.name == "short")
    row = found.table.batch.trajectory.tolist().index(short)
    assert found.credits["grpo"].values[row] > 0  # a one-step success got -0.22
    assert rewards(analyze(path, Options(row_reward="each"))) == [3.0, 1.0, 0.0]


def test_penalties_alone_leave_a_group_flat_in_outcome():
    found = analyze(MADE / "a02_penalties_only_group.jsonl")
    assert found.health.flat.tolist() == [True]
    assert found.table.outcome.tolist() == [0.0, 0.0]
    assert rewards(found) == pytest.approx([-0.15, -0.1])
    assert {"shaping-only", "flat-groups"} <= set(ids(found))


def test_interleaved_groups_of_unequal_size():
    found = analyze(MADE / "a03_unequal_groups_interleaved.jsonl")
    assert found.summary()["groups"] == 3
    sizes = {name: sum(t.task == name for t in found.table.trajectories) for name in found.table.tasks}
    assert sizes == {"a": 3, "b": 2, "c": 3}


def test_rollouts_that_died_are_outside_and_counted_by_cause():
    found = analyze(MADE / "a04_infra_zero.jsonl")
    assert found.summary()["dropped"] == {"error: sandbox timeout": 1, "error: TimeoutError": 1}
    assert [t.name for t in found.table.trajectories] == ["ok", "wrong"]
    assert ids(found)["failed-rollouts"].count == 2


def test_a_judge_is_no_peer_of_a_solver():
    found = analyze(MADE / "a05_two_roles.jsonl")
    assert found.table.tasks == ["q [solver]", "q [judge]"]
    assert found.summary()["trajectories"] == 4


def test_two_segments_are_one_rollout_with_one_reward():
    found = analyze(MADE / "a06_two_segments_same_rollout.jsonl")
    assert [(len(t.steps), sum(s.reward for s in t.steps)) for t in found.table.trajectories] == [
        (3, 1.0),
        (1, 0.5),
    ]


def test_parallel_calls_have_one_order_and_written_calls_the_native_key():
    found = analyze(MADE / "a07_parallel_and_textual_tool_calls.jsonl")
    first, second, leaked = found.table.trajectories
    assert [s.action for s in first.steps] == [s.action for s in second.steps]
    assert [s.observation for s in first.steps] == [s.observation for s in second.steps]
    assert first.steps[1].observation == "sun\nrain"
    assert (leaked.steps[0].form, leaked.steps[0].action) == ("written", 'weather({"city": "A"})')
    assert ids(found)["calls-as-text"].title.startswith("1 tool calls (33.3% of all calls)")


def test_verl_calls_without_a_uid_are_joined_by_their_texts_and_said_so():
    found = analyze(MADE / "a08_verl_multicall_without_uid.jsonl")
    assert found.summary()["groups"] == 1
    assert [(len(t.steps), sum(s.reward for s in t.steps)) for t in found.table.trajectories] == [
        (2, 1.0),
        (2, 0.0),
    ]
    assert ids(found)["missing-uid"].count == 4


def test_ghost_steps_after_a_cut_answer_are_named():
    found = analyze(MADE / "a09_ghost_turns_after_truncation.jsonl")
    named = ids(found)
    assert (named["truncated-answers"].count, named["ghost-steps"].count) == (1, 1)
    places = [(found.table.trajectories[p.trajectory].name, p.t) for p in named["ghost-steps"].places]
    assert places == [("x", 2)]
