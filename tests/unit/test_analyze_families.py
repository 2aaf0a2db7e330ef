# long: a case a format, in the order of docs/analyze.md, with the writers above them
"""Every reader on the hand-written sample of its format, against numbers counted by hand."""

from __future__ import annotations

import json
import zipfile

import pytest

from analyze_samples import ATIF_CONTINUED, ATIF_FIRST, OPENHANDS_V0, SAMPLES, mini, own, swe, user
from bipace.analyze import NotTrajectories, read_file
from bipace.analyze.reading import read_files
from bipace.analyze.table import build_table


def read(tmp_path, name, records=None, suffix="jsonl"):
    path = tmp_path / f"file.{suffix}"
    path.write_text("".join(json.dumps(r) + "\n" for r in (records or SAMPLES[name])), encoding="utf-8")
    reading = read_file(path, strict=True)
    assert reading.format == name
    assert reading.understood == 1.0
    return reading


def shown(trajectory):
    return [(s.observation, s.action, s.reward) for s in trajectory.steps]


def test_nemo_gym_joins_what_one_model_call_said_and_masks_what_its_gym_masks(tmp_path):
    first, second, masked = read(tmp_path, "nemo_gym").trajectories
    looks = 'look({"at": "bed"})\nlook({"at": "desk"})'
    assert shown(first) == [("Where is the mug?", looks, 0.0), ("a cat\na mug", "desk.", 1.0)]
    assert (first.task, first.name, first.context, first.role) == (
        "task 0",
        "task 0, rollout 0",
        "Be brief.",
        "finder",
    )
    assert first.steps[0].response.startswith("Hm.\nI look.\n")
    assert second.steps[-1].reward == 0.0
    assert masked.out == "masked: agent timed out"


def test_inspect_reads_scores_epochs_and_attachments(tmp_path):
    right, wrong, died = read(tmp_path, "inspect").trajectories
    assert shown(right) == [("2+2?", 'add({"a": 2, "b": 2})', 0.0), ("4", "4", 1.0)]
    assert (right.task, right.name, right.context) == ("sample 1", "sample 1, epoch 1", "Answer briefly.")
    assert right.notes == ("reward = score match", "other scores: length")
    assert wrong.steps[-1].reward == 0.0
    assert died.out == "error: sandbox died"


def test_an_inspect_archive_is_its_samples_with_the_task_of_its_header(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "eval": {"task": "sums"}}))
        for i, sample in enumerate(SAMPLES["inspect"]):
            archive.writestr(f"samples/1_epoch_{i}.json", json.dumps(sample))
    reading = read_file(tmp_path / "log.eval")
    assert [t.task for t in reading.trajectories] == ["sums sample 1"] * 3
    whole = (tmp_path / "log.eval").read_bytes()
    (tmp_path / "cut.eval").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NotTrajectories, match="the archive is damaged or cut off"):
        read_file(tmp_path / "cut.eval")


def test_an_inspect_log_streams_its_samples_and_keeps_its_head(tmp_path):
    log = {
        "version": 2,
        "eval": {"task": "sums"},
        "samples": SAMPLES["inspect"],
        "reductions": [{"samples": []}],
    }
    (tmp_path / "log.json").write_text(json.dumps(log, indent=2))
    assert [t.task for t in read_file(tmp_path / "log.json").trajectories] == ["sums sample 1"] * 3


def test_terminal_bench_finds_the_transcript_beside_the_results(tmp_path):
    for number, answer in enumerate(('{"commands": [{"keystrokes": "ls\\n"}]}', "done")):
        folder = tmp_path / "run" / "hello" / "hello.1" / "agent-logs" / f"episode-{number}"
        folder.mkdir(parents=True)
        (folder / "prompt.txt").write_text(f"screen {number}")
        (folder / "response.txt").write_text(answer)
    trial, late = SAMPLES["terminal_bench"]
    (tmp_path / "run" / "results.json").write_text(json.dumps({"results": [trial, late]}))
    (tmp_path / "run" / "hello" / "hello.1" / "results.json").write_text(json.dumps(trial))
    whole = read_file(tmp_path / "run" / "results.json").trajectories
    assert shown(whole[0]) == [
        ("screen 0", 'bash_command({"keystrokes": "ls\\n"})', 0.0),
        ("screen 1", "done", 1.0),
    ]
    assert (whole[0].task, whole[0].outcome, whole[1].out) == ("hello", 1.0, "time-out: agent timeout")
    walked = read_files([tmp_path / "run"])
    assert [len(r.trajectories) for r in walked.files] == [1]  # the trial's own results, not the run's again


@pytest.mark.parametrize("where", ["result.json", "reward.txt", "reward.json"])
def test_a_harbor_trial_takes_its_reward_from_its_own_file(tmp_path, where):
    trial = tmp_path / "job" / "hello__abc"
    (trial / "agent").mkdir(parents=True)
    (trial / "verifier").mkdir()
    (trial / "agent" / "trajectory.json").write_text(json.dumps(ATIF_FIRST))
    (trial / "agent" / "trajectory.cont-1.json").write_text(json.dumps(ATIF_CONTINUED))
    (trial / "config.json").write_text(json.dumps({"task": {"path": "tasks/hello"}}))
    if where == "result.json":
        result = {
            "task_name": "hello",
            "trial_name": "hello__abc",
            "verifier_result": {"rewards": {"reward": 0.5}},
        }
        (trial / where).write_text(json.dumps(result))
    else:
        (trial / "verifier" / where).write_text(
            "0.5\n" if where == "reward.txt" else '{"speed": 3, "reward": 0.5}'
        )
    (reading,) = read_files([tmp_path / "job"]).files
    (trajectory,) = reading.trajectories
    assert (trajectory.task, trajectory.name) == ("hello", "hello__abc")
    assert shown(trajectory) == [("Fix the bug.", "ls({})", 0.0), ("Go on from: looked.", "done.", 0.5)]


def test_a_harbor_trial_without_a_transcript_or_with_a_failure_is_outside(tmp_path):
    for name, kind in (("a__1", "AgentTimeoutError"), ("a__2", "VerifierTimeoutError"), ("a__3", "ApiError")):
        (tmp_path / name / "agent").mkdir(parents=True)
        result = {"task_name": "a", "trial_name": name, "exception_info": {"exception_type": kind}}
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    outs = [t.out for r in read_files([tmp_path]).files for t in r.trajectories]
    assert outs == ["time-out: AgentTimeoutError", "time-out: VerifierTimeoutError", "error: ApiError"]


def test_openhands_v0_takes_parallel_calls_of_one_answer_for_one_step(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(OPENHANDS_V0, indent=1))
    (trajectory,) = read_file(tmp_path / "t.json").trajectories
    runs = 'run({"command": "ls"})\nrun({"command": "pwd"})'
    assert shown(trajectory) == [
        ("Make a game.", runs, 0.0),
        ("empty\n/work", 'finish({"outputs": {}})', None),
    ]
    assert (trajectory.task, trajectory.context) == ("Make a game.", "You are helpful.")


def test_openhands_evaluations_are_grouped_by_instance_and_errors_are_outside(tmp_path):
    done, died = read(tmp_path, "openhands_eval").trajectories
    assert (done.task, len(done.steps), done.steps[-1].reward, done.outcome) == ("repo__1", 2, 1.0, 1.0)
    assert died.out == "error: RuntimeError: died"


def test_openhands_sdk_events_in_a_file_and_in_a_folder(tmp_path):
    (trajectory,) = read(tmp_path, "openhands").trajectories
    runs = 'terminal({"command": "ls"})\nterminal({"command": "pwd"})'
    assert shown(trajectory) == [("Make a game.", runs, 0.0), ("empty\n/work", "all done.", None)]
    events = tmp_path / "conversation" / "events"
    events.mkdir(parents=True)
    for i, event in enumerate(SAMPLES["openhands"]):
        (events / f"event-{i:05}-x.json").write_text(json.dumps(event))
    (tmp_path / "conversation" / "base_state.json").write_text("{}")
    (reading,) = read_files([tmp_path / "conversation"]).files
    assert shown(reading.trajectories[0]) == shown(trajectory)


def test_prime_rl_episodes_keep_trained_agents_branches_versions_and_failed_graders(tmp_path):
    right, wrong, ungraded = read(tmp_path, "verifiers_traces").trajectories
    assert shown(right) == [("2+2?", "i think.", 0.0), ("Summary: thinking about 2+2", "4", 2.0)]
    assert (right.task, right.role, right.context) == ("g", "solver", "Solve.")
    assert [(s.cut, s.version) for s in right.steps] == [(True, "3-5"), (False, "3-5")]
    assert wrong.steps[-1].reward == 0.0
    assert ungraded.out == "grader: every reward is null"


def test_atif_joins_a_continuation_and_links_a_sub_agent(tmp_path):
    reading = read(tmp_path, "atif")
    joined, parent, child = reading.trajectories
    assert shown(joined) == [("Fix the bug.", "ls({})", 0.0), ("Go on from: looked.", "done.", 1.0)]
    assert shown(parent) == [("Write a book.\nhired", "published.", 0.5)]
    assert shown(child) == [("Write chapter 1.", "it was a dark night.", None)]
    assert (child.parent, child.role, parent.role) == ("boss", "writer", "terminus")
    assert [d.cause for d in build_table([reading]).dropped] == ["sub-agent without a reward of its own"]


def test_a_continuation_in_a_file_of_its_own_is_joined_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ATIF_FIRST))
    (tmp_path / "b.json").write_text(json.dumps(ATIF_CONTINUED))
    first, second = read_files([tmp_path / "a.json", tmp_path / "b.json"]).files
    assert [len(t.steps) for t in first.trajectories] == [2]
    assert (second.trajectories, second.notes) == ([], [f"continues a trajectory of {tmp_path / 'a.json'}"])
    alone = read_file(tmp_path / "b.json")
    (doubt,) = alone.doubts
    assert doubt.text == f"{tmp_path / 'b.json'}: the beginning of run-cont-1 is in a file that was not given"


def test_swe_agent_steps_read_the_observation_before_them(tmp_path):
    (trajectory,) = read(tmp_path, "swe_agent", suffix="traj").trajectories
    assert [(s.observation, s.action) for s in trajectory.steps] == [
        ("ISSUE: it crashes", "ls"),
        ("a.py", "cat a.py"),
    ]
    assert (trajectory.task, trajectory.name, trajectory.context) == (
        "ISSUE: it crashes",
        "repo__1",
        "You fix bugs.",
    )
    assert trajectory.notes == ("1 entries without an answer are the harness's",)


def test_swe_agent_infrastructure_is_outside_and_limits_are_not(tmp_path):
    ends = ["exit_environment_error", "submitted (exit_cost)", "exit_context"]
    outs = [read(tmp_path, "swe_agent", [swe([("ls", "a.py")], end)]).trajectories[0].out for end in ends]
    assert outs == ["error: exit_environment_error", "", ""]


def test_swe_agent_attempts_are_trajectories_of_one_group(tmp_path):
    record = {**swe([]), "attempts": [swe([("ls", "x")]), swe([("pwd", "y"), ("ls", "z")])]}
    found = read(tmp_path, "swe_agent", [record]).trajectories
    assert [(t.name, len(t.steps)) for t in found] == [("repo__1, attempt 0", 1), ("repo__1, attempt 1", 2)]
    assert len({t.task for t in found}) == 1


def test_mini_swe_agent_keys_what_was_done(tmp_path):
    (trajectory,) = read(tmp_path, "mini_swe_agent", suffix="traj.json").trajectories
    assert [(s.observation, s.action) for s in trajectory.steps] == [
        ("Please solve: it crashes", "ls"),
        ("<output>a.py</output>", "submit"),
    ]
    assert (trajectory.task, trajectory.out) == ("repo__1", "")
    crashed = mini("RateLimitError", traceback="Traceback ...")
    assert read(tmp_path, "mini_swe_agent", [crashed]).trajectories[0].out == "error: RateLimitError"
    assert read(tmp_path, "mini_swe_agent", [mini("LimitsExceeded")]).trajectories[0].out == ""


def test_mini_swe_agent_reads_responses_too(tmp_path):
    record = mini()
    output = [{"type": "function_call", "call_id": "c", "name": "bash", "arguments": '{"command": "ls"}'}]
    record["messages"][2] = {
        "object": "response",
        "output": output,
        "extra": {"actions": [{"command": "ls"}]},
    }
    record["messages"][3] = {"type": "function_call_output", "call_id": "c", "output": "a.py"}
    (trajectory,) = read(tmp_path, "mini_swe_agent", [record]).trajectories
    assert [(s.observation, s.action) for s in trajectory.steps] == [
        ("Please solve: it crashes", "ls"),
        ("a.py", "submit"),
    ]


def test_own_rollouts_keep_their_iterations_apart(tmp_path):
    reading = read(tmp_path, "bipace")
    assert [t.task for t in reading.trajectories] == ["t @ iteration 1", "t @ iteration 1", "t @ iteration 2"]
    assert reading.trajectories[0].steps[0].action == "go north"
    refused = own(0, 0.0)
    refused["steps"][0] |= {"executed": None, "valid": False}
    assert read(tmp_path, "bipace", [refused]).trajectories[0].steps[0].action == "refused: go"


def test_art_parquet_keeps_given_answers_out_and_histories_together(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is absent")
    from pyarrow import parquet

    parquet.write_table(arrow.Table.from_pylist(SAMPLES["art"]), tmp_path / "0001.parquet")
    right, _ = read_file(tmp_path / "0001.parquet").trajectories
    assert shown(right) == [("2+2?\nAn example: 3\nNow you.", 'add({"a": 2})', 0.0), ("4", "4", 1.0)]
    assert (right.task, right.name, right.outcome) == ("group 0 (s0)", "group 0, trajectory 0", 1.0)
    choice = {"finish_reason": "length", "index": 0, "message": {"role": "assistant", "content": "cut"}}
    whole = {
        "messages_and_choices": [user("2+2?"), choice],
        "additional_histories": [
            {"messages_and_choices": [user("Again."), {**choice, "finish_reason": "stop"}]}
        ],
        "initial_policy_version": 4,
    }
    row = {**SAMPLES["art"][0], "format_version": 2, "trajectory_json": json.dumps(whole), "messages": None}
    (joined,) = read(tmp_path, "art", [row]).trajectories
    assert [(s.observation, s.cut, s.reward, s.version) for s in joined.steps] == [
        ("2+2?", True, 0.0, "4"),
        ("Again.", False, 1.0, "4"),
    ]


def test_claude_code_joins_blocks_drops_copies_and_links_sidechains(tmp_path):
    reading = read(tmp_path, "claude_code")
    main, side = reading.trajectories
    assert shown(main) == [("Where is the mug?", 'Task({"p": 1})', 0.0), ("A mug.", "on the desk.", None)]
    assert shown(side) == [("Look at the desk.", "a mug.", None)]
    assert (main.name, side.parent, side.role) == ("session s", "session s", "sub-agent")
    assert dict(reading.folded) == {"lines copied from an earlier session": 1}


def test_langfuse_orders_generations_and_takes_the_score_that_says_correct(tmp_path):
    right, wrong = read(tmp_path, "langfuse").trajectories
    assert shown(right) == [("Where is the mug?", "look({})", 0.0), ("On the desk.", "on the desk.", 1.0)]
    assert (right.task, right.name, wrong.steps[-1].reward) == ("mug", "t1", 0.0)
    assert right.notes == ("reward = score correct", "other scores: verbosity")


def test_langfuse_observations_alone_are_joined_by_their_trace(tmp_path):
    rows = [o for trace in SAMPLES["langfuse"] for o in trace["observations"]]
    assert [len(t.steps) for t in read(tmp_path, "langfuse", rows).trajectories] == [2, 2]


def test_openinference_reads_flat_and_nested_attributes_and_links_inner_agents(tmp_path):
    outer, inner = sorted(read(tmp_path, "openinference").trajectories, key=lambda t: len(t.name))
    assert shown(outer) == [("Where is the mug?", "look({})", 0.0), ("A mug.", "on the desk.", 1.0)]
    assert shown(inner) == [("Look at the desk.", "a mug.", None)]
    assert (inner.parent, outer.parent) == ("t", "")


def test_openinference_reads_otlp(tmp_path):
    def pairs(attributes):
        return [
            {"key": k, "value": {"doubleValue" if isinstance(v, float) else "stringValue": v}}
            for k, v in attributes.items()
        ]

    spans = []
    for record in SAMPLES["openinference"][:2]:
        ids = {
            "traceId": "t",
            "spanId": record["context"]["span_id"],
            "parentSpanId": record["parent_id"] or "",
        }
        spans.append(
            {**ids, "name": "x", "startTimeUnixNano": "1", "attributes": pairs(record["attributes"])}
        )
    (trajectory,) = read(
        tmp_path, "openinference", [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}]
    ).trajectories
    assert shown(trajectory) == [("Where is the mug?", "look({})", 1.0)]


def test_adapt_thoughts_belong_to_the_next_command(tmp_path):
    reading = read(tmp_path, "adapt")
    (trajectory,) = reading.trajectories
    assert shown(trajectory) == [("Find it.", "go to desk", 0.0), ("A mug.", "take mug", 1.0)]
    assert trajectory.steps[0].response == "think: where?\ngo to desk"
    assert dict(reading.folded) == {"thoughts answered by OK.": 1}


def test_a_null_in_the_first_row_drops_nothing(tmp_path):
    first, second = read(tmp_path, "rows").trajectories
    assert [s.reward for s in first.steps] == [0.0, 1.0]
    assert [s.reward for s in second.steps] == [0.0]
