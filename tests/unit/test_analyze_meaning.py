# long: a case a thing that files leave unsaid, with the writers above them
"""What a file means: never a silent misread, rewards kept elsewhere, columns that are nested, recipes of
one's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")

from typer.testing import CliRunner

from analyze_samples import CHAT, SAMPLES, call, heard, inspect_sample, row, said, user
from bipace.analyze import NotTrajectories, Options, analyze, read_file
from bipace.cli import app


def write(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def ids(found):
    return {f.id: f for f in found.findings}


def chat(reward=None, **more):
    return {"messages": CHAT, "task_id": "mug", **({} if reward is None else {"reward": reward}), **more}


@pytest.mark.parametrize(
    "records",
    [
        [{"response": {"output": []}, "reward": 1.0, "uid": "a"}],  # an action that is an object
        [{"action": "go", "reward": 1.0}],  # nothing says whose step it is
        [{"task": "t", "trajectory": "a", "observation": "x"}],  # no action
        [{"prompt": "p", "completion": "c"}],
    ],
)
def test_records_that_only_resemble_rows_are_refused_with_their_fields(tmp_path, records):
    with pytest.raises(
        NotTrajectories, match=rf"its records have the fields {', '.join(records[0])}.*--map task=COLUMN"
    ):
        read_file(write(tmp_path / "x.jsonl", records))


def test_a_file_of_two_formats_says_which_records_were_not_read(tmp_path):
    reading = read_file(write(tmp_path / "x.jsonl", [chat(1.0), SAMPLES["nemo_gym"][0], chat(0.0), {"a": 1}]))
    assert (reading.format, len(reading.trajectories), reading.understood) == ("openai", 2, 0.5)
    assert [p.why.split(",")[0] for p in reading.problems] == [
        "a record of the format nemo_gym in a file that is read as openai",
        "not of the format openai",
    ]
    found = analyze(tmp_path / "x.jsonl")
    assert found.summary()["understood"] == 0.5
    assert "50.0% of the file was understood" in ids(found)["skipped"].title


def test_a_bad_field_costs_its_record_and_is_named(tmp_path):
    bad = {**SAMPLES["nemo_gym"][0], "response": {"output": [7]}}
    reading = read_file(write(tmp_path / "x.jsonl", [SAMPLES["nemo_gym"][0], bad]))
    assert (len(reading.trajectories), reading.skipped) == (1, 1)
    assert reading.problems[0].where == "line 2"
    assert reading.problems[0].why == "response.output[0]: expected an object, found a number"


def test_a_foreign_file_does_not_cost_a_folder(tmp_path):
    write(tmp_path / "a.jsonl", [chat(1.0)])
    (tmp_path / "b.json").write_text('{"a": 1}')
    (tmp_path / "c.json").write_text("")
    found = analyze(tmp_path)
    assert found.summary()["trajectories"] == 1
    assert [os.path.basename(p.where) for p in found.foreign] == ["b.json", "c.json"]  # noqa: PTH119


def test_missing_columns_and_repeated_steps_are_findings_of_the_first_rank(tmp_path):
    rows = [{"action": "go", "reward": float(i), "when": 0} for i in range(4)]
    found = analyze(write(tmp_path / "x.jsonl", rows), Options(columns={"action": "action", "step": "when"}))
    first = [f for f in found.findings if f.first and f.severity == "error"]
    assert {"one-group", "one-step", "no-observations"} <= {f.id for f in first}
    assert found.findings[0].first
    twice = [row("t", "a", 0, 0.0), row("t", "a", 0, 1.0), row("t", "b", 0, 0.0)]
    assert ids(analyze(write(tmp_path / "y.jsonl", twice)))["duplicate-ids"].severity == "error"
    same = [chat(1.0, id="r"), chat(0.0, id="r")]
    assert ids(analyze(write(tmp_path / "z.jsonl", same)))["duplicate-ids"].severity == "warning"


def test_a_constant_reward_on_every_row_is_kept_and_doubted(tmp_path):
    rows = [row("t", name, i, 1.0) for name in "ab" for i in range(3 if name == "a" else 1)]
    found = analyze(write(tmp_path / "x.jsonl", rows))
    assert [sum(s.reward for s in t.steps) for t in found.table.trajectories] == [3.0, 1.0]
    assert "--row-reward last" in ids(found)["constant-reward"].advice
    once = analyze(tmp_path / "x.jsonl", Options(row_reward="last"))
    assert [sum(s.reward for s in t.steps) for t in once.table.trajectories] == [1.0, 1.0]
    with pytest.raises(ValueError, match="--row-reward never: expected one of auto, last, each"):
        analyze(tmp_path / "x.jsonl", Options(row_reward="never"))


def test_step_rewards_that_vary_stay_where_they_are(tmp_path):
    rows = [row("t", name, i, float(i == 1)) for name in "ab" for i in range(2)]
    found = analyze(write(tmp_path / "x.jsonl", rows))
    assert [s.reward for s in found.table.steps] == [0.0, 1.0, 0.0, 1.0]
    assert "repeated-reward" not in ids(found)


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"error": {"type": "SandboxError", "message": "died"}}, "error: SandboxError"),
        ({"error": "worker 17 at 0xfe12 died"}, "error: worker # at # died"),
        ({"timed_out": True}, "time-out"),
        ({"mask_sample": True}, "masked"),
        ({"aborted": True}, "aborted"),
        ({"error": None, "mask": False, "timeout": False}, ""),
    ],
)
def test_failures_are_outside_whatever_their_reward(tmp_path, more, cause):
    found = analyze(write(tmp_path / "x.jsonl", [chat(1.0), chat(0.0), chat(0.0, **more)]))
    assert found.dropped == ({cause: 1} if cause else {})


def test_all_rollouts_failed_is_said_with_the_causes(tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(0.0, error="died"), chat(0.0, timed_out=True)])
    with pytest.raises(ValueError, match=r"none of the 2 rollouts counts.*1 error: died; 1 time-out"):
        analyze(path)


def test_a_grader_without_a_value_is_outside(tmp_path):
    samples = [inspect_sample(1, 1, "C"), inspect_sample(1, 2, "?"), inspect_sample(1, 3, [1, 2])]
    for sample in samples[1:]:
        del sample["scores"]["length"]
    found = analyze(write(tmp_path / "x.jsonl", samples))
    assert found.dropped == {"grader: no score that is a value": 2}


def test_anthropic_blocks_keep_name_and_input(tmp_path):
    messages = [
        user("Where?"),
        said(
            [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t", "name": "look", "input": {"b": 1, "a": 2}},
            ]
        ),
        user([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a mug"}]}]),
        said("Desk."),
    ]
    (trajectory,) = read_file(write(tmp_path / "x.jsonl", [{"messages": messages, "reward": 1}])).trajectories
    assert [(s.observation, s.action) for s in trajectory.steps] == [
        ("Where?", 'look({"a": 2, "b": 1})'),
        ("a mug", "desk."),
    ]
    assert trajectory.steps[0].response == 'I look.\nlook({"a": 2, "b": 1})'


def test_parallel_results_follow_the_order_of_their_calls(tmp_path):
    calls = [call("look", "x", at="bed"), call("look", "y", at="desk")]
    results = [heard("a cat", "x"), heard("a mug", "y")]
    records = [
        {"messages": [user("?"), said("", tool_calls=c), *r, said("done")], "reward": 1.0, "task_id": "t"}
        for c in (calls, calls[::-1])
        for r in (results, results[::-1])
    ]
    found = read_file(write(tmp_path / "x.jsonl", records)).trajectories
    assert len({tuple((s.observation, s.action) for s in t.steps) for t in found}) == 1


@pytest.mark.parametrize("kind", ["object", "jsonl", "csv", "report"])
def test_rewards_kept_elsewhere_are_joined_by_id(tmp_path, kind):
    path = write(tmp_path / "x.jsonl", [chat(id=f"r{i}") for i in range(3)])
    rewards = tmp_path / ("rewards.csv" if kind == "csv" else "rewards.json")
    if kind == "object":
        rewards.write_text(json.dumps({"r0": 1, "r1": 0.5, "r2": None}))
    elif kind == "jsonl":
        write(rewards, [{"id": "r0", "reward": 1}, {"id": "r1", "reward": 0.5}, {"id": "r2", "reward": None}])
    elif kind == "csv":
        rewards.write_text("id,reward\nr0,1\nr1,0.5\nr2,\n")
    else:
        rewards.write_text(
            json.dumps({"resolved_ids": ["r0"], "unresolved_ids": ["r1"], "error_ids": ["r2"]})
        )
    found = analyze(path, Options(rewards=rewards))
    assert [t.steps[-1].reward for t in found.table.trajectories] == [1.0, 0.0 if kind == "report" else 0.5]
    assert found.dropped == {"grader: no reward in the rewards file": 1}


def test_rewards_that_fit_nothing_or_several_are_refused(tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(id="r0"), chat(id="same"), chat(id="same")])
    rewards = tmp_path / "rewards.json"
    rewards.write_text('{"other": 1}')
    with pytest.raises(ValueError, match=r"none of its ids names a rollout.*'other'.*'r0'"):
        analyze(path, Options(rewards=rewards))
    rewards.write_text('{"same": 1}')
    with pytest.raises(ValueError, match="1 of its ids name several rollouts each"):
        analyze(path, Options(rewards=rewards))
    with pytest.raises(FileNotFoundError, match=r"--rewards .*: no such file"):
        analyze(path, Options(rewards=tmp_path / "absent"))


def test_nested_columns_are_named_with_dots(tmp_path):
    rows = [
        {"who": {"run": r}, "did": "go", "info": {"scores": [0.0, float(r)]}, "task": "t"} for r in range(2)
    ]
    columns = {"trajectory": "who.run", "action": "did", "reward": "info.scores[1]"}
    found = read_file(write(tmp_path / "x.jsonl", rows), columns=columns).trajectories
    assert [(t.name, t.steps[0].reward) for t in found] == [("0", 0.0), ("1", 1.0)]
    with pytest.raises(ValueError, match="no such column; the file has who, did, info, task"):
        read_file(tmp_path / "x.jsonl", columns={**columns, "reward": "info.nope"})
    chats = write(tmp_path / "y.jsonl", [chat(info={"score": 0.5})])
    assert read_file(chats, columns={"reward": "info.score"}).trajectories[0].steps[-1].reward == 0.5


def test_csv_and_lists_in_memory_are_read_like_files(tmp_path):
    (tmp_path / "x.csv").write_text(
        'task,trajectory,step,observation,action,reward\nt,a,0,"x,y",go,\nt,a,1,z,stay,1\n'
    )
    (trajectory,) = read_file(tmp_path / "x.csv").trajectories
    assert [(s.observation, s.action, s.reward) for s in trajectory.steps] == [
        ("x,y", "go", 0.0),
        ("z", "stay", 1.0),
    ]
    assert analyze([chat(1.0), chat(0.0)]).summary()["trajectories"] == 2
    assert analyze([CHAT, CHAT]).summary()["steps"] == 4
    with pytest.raises(NotTrajectories, match="in memory: no trajectories found"):
        analyze([{"a": 1}])


def test_policy_versions_and_logged_advantages_are_findings(tmp_path):
    rows = [
        row(f"t{g}", f"{g}{i}", 0, float(i), advantage=float(i) - 0.5, policy_version=4 + i * (g == 0))
        for g in range(2)
        for i in range(2)
    ]
    found = ids(analyze(write(tmp_path / "x.jsonl", rows)))
    assert found["policy-versions"].title == (
        "1 of 2 prompt groups hold answers of several policy versions, at most 1 versions apart"
    )
    assert found["policy-versions"].groups == (0,)
    assert (found["logged-advantages"].severity, found["logged-advantages"].count) == ("info", 4)
    for record in rows:
        record["advantage"] = -record["advantage"]
    assert ids(analyze(write(tmp_path / "x.jsonl", rows)))["logged-advantages"].severity == "warning"


def test_unparsed_endings_without_reward_are_a_finding(tmp_path):
    rows = [row("t", n, 0, r, action=a) for n, r, a in (("a", 1.0, "<action>go</action>"), ("b", 0.0, "uh"))]
    found = ids(analyze(write(tmp_path / "x.jsonl", rows)))
    assert found["parse-failures"].count == 1
    assert "(100% of those)" in found["parse-failures"].title


def trl(tmp_path, columns):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is absent")
    from pyarrow import parquet

    table = {"step": [1] * 6, "prompt": ["p"] * 3 + ["q"] * 3, "completion": list("abcdef"), **columns}
    parquet.write_table(arrow.table(table), tmp_path / "c.parquet")
    return read_file(tmp_path / "c.parquet")


def test_trl_reward_columns_are_chosen_by_what_the_advantages_follow(tmp_path):
    accuracy, style = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0], [None, 0.3, 0.9, 0.0, 0.6, 0.3]
    columns = {"accuracy": accuracy, "style": style, "completion_length": [7, 9, 3, 1, 2, 2]}

    def centred(values):
        table = np.array(values, np.float64).reshape(2, 3)
        return ((table - table.mean(1, keepdims=True)) / table.std(1, keepdims=True, ddof=1)).ravel().tolist()

    follows = trl(tmp_path, {**columns, "advantage": centred(accuracy)})
    assert [t.steps[0].reward for t in follows.trajectories] == accuracy
    assert follows.notes == [
        "reward = sum of the columns accuracy, unweighted; not rewards: completion_length, style"
    ]
    both = [1.0, 0.3, 0.9, 1.0, 1.6, 0.3]
    summed = trl(tmp_path, {**columns, "advantage": centred(both)})
    assert [t.steps[0].reward for t in summed.trajectories] == both


def test_explain_shows_what_was_understood_and_dropped(tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(1.0, id="r\x1b[31m"), chat(0.0, error="died"), {"a": 1}])
    done = CliRunner().invoke(app, ["analyze", str(path), "--explain"])
    assert done.exit_code == 0
    assert list(tmp_path.iterdir()) == [path]
    lines = [line.strip() for line in done.output.splitlines()]
    assert "read as openai: 2 trajectories, 4 steps; 66.7% of 3 records understood" in lines
    assert "group:  mug" in lines
    assert "member: r\\x1b[31m" in lines
    assert "step 0: reward 0" in lines
    assert 'action:      look({"a": 2, "b": 1})   [tool call]' in lines
    assert "outside every baseline: error: died" in lines
    assert "1 rollouts outside every baseline: error: died" in lines


def test_json_carries_a_summary_and_findings_with_counts_and_groups(tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(0.0, id=str(i)) for i in range(2)] + [chat(0.0, error="died")])
    done = CliRunner().invoke(app, ["analyze", str(path), "--json"])
    told = json.loads(done.stdout)
    assert told["summary"] == {
        "format": "openai", "trajectories": 2, "steps": 4, "groups": 1, "dropped": {"error: died": 1},
        "understood": 1.0,
    }  # fmt: skip
    failed = next(f for f in told["findings"] if f["id"] == "failed-rollouts")
    assert (failed["severity"], failed["count"], failed["groups"]) == ("warning", 1, ["mug"])


def test_a_recipe_of_ones_own_stands_beside_the_shipped_ones(tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(float(i), id=str(i)) for i in range(2)])
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import bipace\n\ndef twice():\n    made = bipace.recipe('grpo')\n"
        "    return made.map(lambda t: __import__('dataclasses').replace(t, weight=2.0))\n"
        "def wrong():\n    return 1 / 0\n"
    )
    found = analyze(path, Options(recipes=(f"{mine}:twice",)))
    np.testing.assert_allclose(found.credits["twice"].values, 2 * found.credits["grpo"].values)
    assert found.to_dict()["recipes"]["twice"]["summary"] == f"your own, {mine}:twice"
    with pytest.raises(ValueError, match="wrong: it raised ZeroDivisionError"):
        analyze(path, Options(recipes=(f"{mine}:wrong",)))
    with pytest.raises(ValueError, match="has no attribute 'absent'"):
        analyze(path, Options(recipes=(f"{mine}:absent",)))


def test_nested_brackets_and_a_long_line_end_in_a_sentence_in_bounded_memory(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    good = json.dumps(chat(1.0))
    (tmp_path / "deep.jsonl").write_text(
        f"{good}\n" + '{"a":' * 100_000 + "1" + "}" * 100_000 + f"\n{good}\n"
    )
    script = (
        "import re\n"
        "from bipace.analyze import read_file\n"
        "from pathlib import Path\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "try: read_file(folder / 'deep.json')\n"
        "except ValueError as error: print(str(error)[:400])\n"
        "print(read_file(folder / 'deep.jsonl').problems[0].why)\n"
        # The high-water mark of this program: ru_maxrss would begin with that of the process that started it.
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    refused, skipped, peak = done.stdout.strip().splitlines()
    assert "nested more than 100 levels deep" in refused
    assert "nested more than 100 levels deep" in skipped
    assert int(peak) < 600
