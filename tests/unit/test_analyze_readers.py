# long: a case a format or a damage, with the writers above them
"""Every reader on a real file or on lines shaped by the real writer; and everything that can be wrong with a
file.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from bipace.analyze import NotTrajectories, read_file
from bipace.rollout.records import Step, Trajectory
from samples import needs_sample, sample

REAL = sample("trajectories")
real_files = needs_sample("trajectories")

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is the mug?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": '{"b": 1, "a": 2}'}}],
    },
    {"role": "tool", "content": "On the desk."},
    {"role": "assistant", "content": "On the desk."},
]


def write(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def sizes(reading):
    steps = sum(len(t.steps) for t in reading.trajectories)
    return reading.format, len({t.task for t in reading.trajectories}), len(reading.trajectories), steps


@real_files
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tau_bench_airline_gpt4o.json", ("tau_bench", 50, 200, 2454)),
        ("reflexion_hotpotqa_react_base.txt", ("reflexion", 100, 500, 1795)),
        # 2,104 and 3,551 commands, of which the environment answered 642 and 1,421 thoughts with "OK.".
        ("adapt_alfworld_davinci003.json", ("adapt", 134, 134, 1462)),
        ("adapt_textcraft_gpt35.json", ("adapt", 200, 200, 2130)),
    ],
)
def test_public_files_are_read_whole(name, expected):
    reading = read_file(REAL / name, strict=True)
    assert sizes(reading) == expected
    assert reading.skipped == 0


@real_files
def test_reflexion_successes_match_the_summaries_of_its_trials():
    reading = read_file(REAL / "reflexion_hotpotqa_react_base.txt")
    assert sum(t.steps[-1].reward == 1.0 for t in reading.trajectories) == 5 * 34


@real_files
def test_adapt_successes_match_the_rate_in_the_file():
    reading = read_file(REAL / "adapt_alfworld_davinci003.json")
    assert np.mean([t.steps[-1].reward for t in reading.trajectories]) == pytest.approx(0.7985074626865671)


def test_one_assistant_message_is_one_step_and_the_reward_is_on_the_last(tmp_path):
    reading = read_file(write(tmp_path / "a.jsonl", [{"messages": CHAT, "reward": 1, "task_id": "mug"}]))
    (trajectory,) = reading.trajectories
    assert (reading.format, trajectory.task, trajectory.context) == ("openai", "mug", "Be brief.")
    assert [s.observation for s in trajectory.steps] == ["Where is the mug?", "On the desk."]
    assert [s.action for s in trajectory.steps] == ['look({"a": 2, "b": 1})', "on the desk."]
    assert [s.reward for s in trajectory.steps] == [0.0, 1.0]


def test_bare_message_lists_are_grouped_by_their_first_prompt(tmp_path):
    assert sizes(read_file(write(tmp_path / "a.jsonl", [CHAT, CHAT]))) == ("openai", 1, 2, 4)
    (tmp_path / "b.json").write_text(json.dumps([CHAT, CHAT], indent=1))
    assert sizes(read_file(tmp_path / "b.json")) == ("openai", 1, 2, 4)
    (tmp_path / "c.json").write_text(json.dumps(CHAT))
    assert sizes(read_file(tmp_path / "c.json")) == ("openai", 1, 1, 2)


def test_verl_rows_with_uids_become_trajectories_of_several_calls(tmp_path):
    rows = [
        {"input": f"q{g} t{t}", "output": f"<action>go {t}</action>", "gts": None, "score": float(t == 1),
        "step": 7,
         "uid": f"g{g}_{r}_{t}"}
        for g in range(2) for r in range(3) for t in range(2)
    ]  # fmt: skip
    reading = read_file(write(tmp_path / "7.jsonl", rows[::-1]))
    assert sizes(reading) == ("verl", 2, 6, 12)
    assert [s.observation for s in reading.trajectories[-1].steps] == ["q0 t0", "q0 t1"]
    assert [s.reward for s in reading.trajectories[-1].steps] == [0.0, 1.0]


def test_one_prompt_at_two_training_steps_is_two_groups(tmp_path):
    rows = [{"input": "q", "output": "a", "gts": None, "score": 1.0, "step": s} for s in (1, 1, 2)]
    assert sizes(read_file(write(tmp_path / "verl.jsonl", rows))) == ("verl", 2, 3, 3)


def test_verl_output_with_chat_markers_is_split_into_turns(tmp_path):
    output = "one<|im_end|>\n<|im_start|>user\nobs<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>"
    row = {"input": "q", "output": output, "gts": None, "score": 1.0, "step": 1}
    (trajectory,) = read_file(write(tmp_path / "verl.jsonl", [row])).trajectories
    assert [(s.observation, s.response) for s in trajectory.steps] == [("q", "one"), ("obs", "two")]


def test_a_file_written_by_verl_is_read(tmp_path):
    trainer = pytest.importorskip(
        "verl.trainer.ppo.v1.trainer_base", reason="verl is absent", exc_type=ImportError
    )
    trainer.PPOTrainer._write_generations(
        ["q", "q"], ["<action>a</action>", "b"], [None, None], [np.float32(1), np.float32(0)],
        {"uid": ["u_0_0", "u_1_0"]}, str(tmp_path), 3,
    )  # fmt: skip
    assert sizes(read_file(tmp_path / "3.jsonl")) == ("verl", 1, 2, 2)


@pytest.mark.parametrize("chat", [False, True])
def test_trl_parquet_sums_its_reward_columns(tmp_path, chat):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is absent")
    from pyarrow import parquet

    prompt = [{"role": "user", "content": "q"}] if chat else "q"
    answer = [{"role": "assistant", "content": "a"}] if chat else "a"
    table = {
        "step": [3, 3],
        "prompt": [prompt] * 2,
        "completion": [answer] * 2,
        "accuracy": [1.0, 0.0],
        "format": [0.5, None],
        "advantage": [1.0, -1.0],
    }
    parquet.write_table(arrow.table(table), tmp_path / "completions_00003.parquet")
    reading = read_file(tmp_path / "completions_00003.parquet")
    assert sizes(reading) == ("trl", 1, 2, 2)
    assert [t.steps[-1].reward for t in reading.trajectories] == [1.5, 0.0]


def test_results_written_by_verifiers_are_read(tmp_path):
    save = pytest.importorskip(
        "verifiers.utils.save_utils", reason="verifiers 0.1 is absent", exc_type=ImportError
    )
    outputs = [
        {
            "example_id": 4,
            "prompt": CHAT[:2],
            "completion": CHAT[2:],
            "reward": r,
            "is_completed": True,
            "metrics": {},
        }
        for r in (0.0, 1.0)
    ]
    save.save_outputs(outputs, tmp_path)
    assert sizes(read_file(tmp_path / "results.jsonl")) == ("verifiers", 1, 2, 4)


def test_verifiers_results_are_read(tmp_path):
    rows = [{"example_id": 4, "prompt": CHAT[:2], "completion": CHAT[2:], "reward": r} for r in (0.0, 1.0)]
    assert sizes(read_file(write(tmp_path / "results.jsonl", rows))) == ("verifiers", 1, 2, 4)


def test_the_branches_of_a_trace_are_one_trajectory(tmp_path):
    nodes = [
        {"parent": None, "message": CHAT[1]},
        {"parent": 0, "message": {"role": "assistant", "content": "first"}, "sampled": True},
        {"parent": 0, "message": {"role": "assistant", "content": "second"}, "sampled": True},
        {"parent": 0, "message": {"role": "assistant", "content": "written for it"}},
    ]
    trace = {
        "id": "x",
        "task": {"key": "k"},
        "agent": {"trainable": True},
        "nodes": nodes,
        "rewards": {"a": {"score": 1.0, "weight": 0.5}, "b": {"score": 2.0, "weight": 1.0}},
    }
    (trajectory,) = read_file(write(tmp_path / "traces.jsonl", [{"traces": [trace]}])).trajectories
    assert [(s.observation, s.response) for s in trajectory.steps] == [
        ("Where is the mug?", "first"),
        ("Where is the mug?", "second"),
    ]
    assert (trajectory.task, [s.reward for s in trajectory.steps]) == ("k", [0.0, 2.5])
    assert trajectory.notes == ("2 branches of one rollout, joined; what they share counts once",)


def test_atif_trajectories_of_several_files_share_a_prompt_group(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")
    from bipace.analyze import Options, analyze

    for i in range(2):
        record = {
            "schema_version": "ATIF-v1.4",
            "session_id": f"s{i}",
            "agent": {"name": "a", "version": "1"},
            "steps": [
                {"step_id": 1, "source": "user", "message": "Fix the bug."},
                {"step_id": 2, "source": "agent", "message": "Look.",
                 "tool_calls": [{"tool_call_id": "c", "function_name": "ls", "arguments": {}}],
                 "observation": {"results": [{"source_call_id": "c", "content": "a.py"}]}},
                {"step_id": 3, "source": "agent", "message": "Done."},
            ],
            "extra": {"reward": float(i)},
        }  # fmt: skip
        (tmp_path / f"{i}.json").write_text(json.dumps(record, indent=2))
    assert sizes(read_file(tmp_path / "0.json")) == ("atif", 1, 1, 2)
    found = analyze([tmp_path / "0.json", tmp_path / "1.json"], Options())
    assert found.health.numbers["groups"] == 1
    assert found.health.numbers["flat_groups"] == 0


def test_own_episodes_are_read_and_aborted_ones_are_outside(tmp_path):
    step = Step("room", "<action>go</action>", 3, "go", True, True, True, 1.0)
    whole, broken = Trajectory("t", 0, [step], won=True), Trajectory("t", 1, [step], error="crashed")
    reading = read_file(write(tmp_path / "e.jsonl", [whole.to_json(), broken.to_json()]))
    assert sizes(reading) == ("bipace", 1, 2, 2)
    assert [t.out for t in reading.trajectories] == ["", "aborted by the environment: crashed"]
    assert reading.trajectories[0].outcome == 1.0


def test_columns_of_a_flat_table_can_be_named(tmp_path):
    rows = [
        {"who": "g", "run": i, "n": t, "saw": {"x": t}, "did": "go", "got": t}
        for i in range(2)
        for t in (1, 0)
    ]  # fmt: skip
    columns = {
        "task": "who",
        "trajectory": "run",
        "step": "n",
        "observation": "saw",
        "action": "did",
        "reward": "got",
    }
    reading = read_file(write(tmp_path / "rows.jsonl", rows), columns=columns)
    assert sizes(reading) == ("rows", 1, 2, 4)
    assert [s.reward for s in reading.trajectories[0].steps] == [0.0, 1.0]
    with pytest.raises(ValueError, match="no such column; the file has who"):
        read_file(tmp_path / "rows.jsonl", columns={"reward": "nope"})


@pytest.mark.parametrize("how", ["gzip", "zstd", "utf-16", "cp1252", "bom"])
def test_compression_and_encodings(tmp_path, how):
    text = json.dumps(
        [{"messages": [{"role": "user", "content": "Ärger"}, CHAT[-1]], "reward": 1}], ensure_ascii=False
    )
    path = tmp_path / "file"
    if how == "gzip":
        path.write_bytes(gzip.compress(text.encode()))
    elif how == "zstd":
        zstandard = pytest.importorskip("zstandard", reason="zstandard is absent")
        path.write_bytes(zstandard.compress(text.encode()))
    else:
        path.write_text(text, encoding={"bom": "utf-8-sig"}.get(how, how))
    reading = read_file(path)
    assert reading.trajectories[0].steps[0].observation == "Ärger"
    assert bool(reading.notes) == (how == "cp1252")


def test_damaged_lines_are_skipped_and_counted_and_strict_stops(tmp_path):
    path = tmp_path / "a.jsonl"
    good = json.dumps({"messages": CHAT, "reward": 1})
    path.write_text(f"{good}\n{good[:40]}\n\n5\n{good}\n{good[:-3]}")
    reading = read_file(path)
    assert (len(reading.trajectories), reading.skipped) == (2, 3)
    assert sorted(p.where for p in reading.problems) == ["line 2", "line 4", "line 6"]
    with pytest.raises(ValueError, match="line 2: not JSON"):
        read_file(path, strict=True)


def test_a_cut_off_list_gives_what_was_whole(tmp_path):
    pytest.importorskip("ijson", reason="ijson is absent")
    text = json.dumps([{"task_id": 1, "trial": i, "reward": 1.0, "traj": CHAT} for i in range(3)], indent=1)
    (tmp_path / "a.json").write_text(text[:-200])
    reading = read_file(tmp_path / "a.json")
    assert (reading.format, len(reading.trajectories), reading.skipped) == ("tau_bench", 2, 1)
    assert reading.problems[0].where == "after item 2"


@pytest.mark.parametrize("content", ["hello\nworld\n", '{"a": 1}\n{"a": 2}\n', "[1, 2, 3]", "{", "\0\1\2"])
def test_what_is_no_trajectory_is_told_what_was_looked_for(tmp_path, content):
    (tmp_path / "x").write_text(content)
    with pytest.raises(
        NotTrajectories, match=r"no trajectories found.*Looked for: nemo_gym, .*--map task=COLUMN"
    ):
        read_file(tmp_path / "x")


def test_an_empty_file_a_missing_one_and_an_unknown_format_are_named(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(ValueError, match="the file is empty"):
        read_file(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_file(tmp_path / "y")
    (tmp_path / "x").write_text("{}")
    with pytest.raises(ValueError, match="the formats are nemo_gym"):
        read_file(tmp_path / "x", format="nope")


def test_a_trajectory_of_harbors_own_models_is_read(tmp_path):
    atif = pytest.importorskip("harbor.models.trajectories", reason="harbor is absent", exc_type=ImportError)
    call = atif.ToolCall(tool_call_id="c", function_name="ls", arguments={})
    heard = atif.Observation(results=[atif.ObservationResult(source_call_id="c", content="a.py")])
    steps = [
        atif.Step(step_id=1, source="user", message="Fix the bug."),
        atif.Step(step_id=2, source="agent", message="Look.", tool_calls=[call], observation=heard),
        atif.Step(step_id=3, source="agent", message="Done."),
    ]
    agent = atif.Agent(name="a", version="1", model_name="m")
    written = atif.Trajectory(session_id="s", agent=agent, steps=steps, extra={"reward": 1.0}).to_json_dict()
    (tmp_path / "trajectory.json").write_text(json.dumps(written, indent=2))
    (trajectory,) = read_file(tmp_path / "trajectory.json").trajectories
    assert [(s.observation, s.action) for s in trajectory.steps] == [
        ("Fix the bug.", "ls({})"),
        ("a.py", "done."),
    ]
    assert trajectory.steps[-1].reward == 1.0
