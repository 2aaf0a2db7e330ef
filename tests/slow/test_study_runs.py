"""Whole studies through the command line: skipped, continued, refused, stopped, and failing in part."""

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

STUDY = """
seeds = [0]
[config]
run.iterations = 2
run.validate_every = 2
run.save_every = 1
rollout.tasks = 2
rollout.group_size = 2
env.panel = "depth4-panel"
env.held_out = []
[methods.gigpo]
estimator = "gigpo"
[methods.bipace]
estimator = "bipace"
"""
BROKEN = """
[methods.broken]
estimator = "dr_grpo"
env.reward_scale = 1e30
update.invalid_action_penalty = 1e30
update.epochs = 4
"""
COMMAND = (sys.executable, "-c", "from bipace.cli import main; main()", "study")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(STUDY)
    return path


def study(file, *arguments):
    command = [*COMMAND, str(file), *arguments, "--out", str(file.parent / "out"), "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def log(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(("timing_s/", "perf/"))} for line in lines]


def test_a_failed_run_costs_itself_alone_and_the_rest_is_skipped_next_time(file):
    file.write_text(STUDY + BROKEN)
    done = study(file, "--jobs", "2")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [(r["run"], r["state"]) for r in found["runs"]] == [
        ("textcraft/gigpo/seed-0", "finished"),
        ("textcraft/bipace/seed-0", "finished"),
        ("textcraft/broken/seed-0", "failed"),
    ]
    assert "non-finite loss or gradient" in found["runs"][2]["reason"]
    out = file.parent / "out"
    assert json.loads((out / "textcraft/gigpo/seed-0/summary.json").read_text())["iterations"] == 2
    assert found["report"] == str(out / "report" / "report.html")
    shown = json.loads((out / "report" / "report.json").read_text())
    assert [r["name"] for r in shown["runs"]] == [r["run"] for r in found["runs"]]
    assert "cluster/singleton_rate" in shown["environments"]["textcraft"]["diagnostics"]
    assert "1 runs are not finished: textcraft/broken/seed-0." in shown["notes"]
    printed = subprocess.run(
        [*COMMAND[:-1], "report", str(out), "--json"], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    assert json.loads(printed) == shown
    file.write_text(STUDY)
    before = (out / "textcraft/gigpo/seed-0/metrics.jsonl").stat().st_mtime_ns
    again = study(file)
    assert again.returncode == 0, again.stderr
    assert {r["state"] for r in json.loads(again.stdout)["runs"]} == {"finished"}
    assert (out / "textcraft/gigpo/seed-0/metrics.jsonl").stat().st_mtime_ns == before


def test_a_longer_study_goes_on_and_another_configuration_is_refused(file):
    assert study(file, "run.iterations=1").returncode == 0
    assert study(file).returncode == 0
    whole = subprocess.run(
        [*COMMAND, str(file), "--out", str(file.parent / "whole")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert whole.returncode == 0, whole.stderr
    for method in ("gigpo", "bipace"):
        parts = log(file.parent / "out/textcraft" / method / "seed-0")
        uninterrupted = log(file.parent / "whole/textcraft" / method / "seed-0")
        assert [line["iteration"] for line in parts] == [0, 1, 2]
        assert parts[2] == uninterrupted[2]
    refused = study(file, "update.lr=0.1")
    assert refused.returncode == 2
    assert "these keys differ: update.lr" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_interrupt_saves_and_the_same_command_goes_on(file):
    out = file.parent / "out"
    command = [*COMMAND, str(file), "run.iterations=60", "--out", str(out), "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = out / "textcraft/gigpo/seed-0/metrics.jsonl"
    while process.poll() is None and not (metrics.is_file() and metrics.read_text().count("\n") > 1):
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    shown, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "2 stopped of 2 runs" in shown
    state = json.loads((out / "textcraft/gigpo/seed-0/last/trainer_state.json").read_text())
    done = state["iteration"]
    assert 1 <= done < 60
    assert not (out / "textcraft/bipace").exists()
    assert study(file, f"run.iterations={done + 1}").returncode == 0
    assert [line["iteration"] for line in log(out / "textcraft/gigpo/seed-0")] == list(range(done + 2))


KILLED = STUDY.replace(
    "run.iterations = 2", "run.iterations = 4\nrun.save_rollouts = true\nenv.split = 'demo'"
).replace("rollout.group_size = 2", "rollout.group_size = 4")


def record(folder):
    """All of a finished run that a kill must not change: digests of its files, and the metrics without
    timings.
    """
    folder = folder.resolve()
    whole = {
        "last": (folder / "last").readlink().name,
        "best": (folder / "best").readlink().name,
        "log": log(folder),
    }
    files = [p for link in ("last", "best") for p in (folder / link).resolve().rglob("*") if p.is_file()]
    for path in (
        *files,
        *(folder / "validation").iterdir(),
        folder / "rollouts.jsonl",
        folder / "config.json",
    ):
        whole[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    whole["panels"] = json.loads((folder / "summary.json").read_text())["panels"]
    return whole


def children(process):
    """Its worker processes: each is the head of a session of its own."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are found through Linux's /proc")
def test_a_study_killed_at_random_moments_resumes_to_the_records_of_an_unbroken_one(file):
    file.write_text(KILLED)
    began = time.monotonic()
    assert study(file, "--jobs", "1").returncode == 0  # how many run side by side changes nothing either
    seconds = time.monotonic() - began
    (file.parent / "out").rename(file.parent / "whole")
    chance, killed = random.Random(), []
    while len(killed) < 4:
        command = [*COMMAND, str(file), "--out", str(file.parent / "out"), "--jobs", "2"]
        process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        after = chance.uniform(0.2, 0.6) * seconds
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert process.wait(timeout=after) == 0
            break  # it came to its end first
        # Every other time the workers are left behind alive; the next study must wait for them.
        workers = children(process) if len(killed) % 2 == 0 else []
        for pid in (process.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        killed.append((round(after, 2), len(workers)))
    assert killed
    last = study(file, "--jobs", "2")
    assert last.returncode == 0, (killed, last.stderr)
    for name in ("textcraft/gigpo/seed-0", "textcraft/bipace/seed-0"):
        expected = record(file.parent / "whole" / name)
        assert sum(line.get("update/grad_norm", 0) > 0 for line in expected["log"]) >= 2
        assert record(file.parent / "out" / name) == expected, killed
