"""Processes side by side: order, failures, signals."""

import os
import signal
import sys
import threading
import time

from bipace.train.workers import Job, run_jobs

TELL = "import json, sys, time; "


def job(tmp_path, name, code):
    return Job(name, (sys.executable, "-c", TELL + code), tmp_path / "logs" / f"{name}.log")


def run(jobs, workers=2, on_message=lambda *_: None):
    found: dict[str, list] = {"start": [], "message": [], "end": []}

    def message(job, said):
        found["message"].append((job.name, said))
        on_message(job, said)

    found["whole"] = run_jobs(
        jobs, workers,
        on_start=lambda j: found["start"].append(j.name),
        on_message=message,
        on_end=lambda j, status: found["end"].append((j.name, status)),
    )  # fmt: skip
    return found


def test_every_job_runs_and_a_failure_costs_its_own_run_alone(tmp_path):
    jobs = [
        job(tmp_path, str(i), f"print(json.dumps({{'i': {i}}})); sys.exit({i == 1} and 'broken')")
        for i in range(4)
    ]
    found = run(jobs)
    assert sorted(found["end"]) == [("0", 0), ("1", 1), ("2", 0), ("3", 0)]
    assert sorted(found["message"]) == [(str(i), {"i": i}) for i in range(4)]
    assert found["whole"]
    assert "broken" in (tmp_path / "logs" / "1.log").read_text()


def test_a_killed_process_is_told_by_its_signal(tmp_path):
    found = run(
        [job(tmp_path, "a", "import os; os.kill(os.getpid(), 9)"), job(tmp_path, "b", "pass")], workers=1
    )
    assert found["end"] == [("a", -9), ("b", 0)]


def test_workers_bound_how_many_run_side_by_side(tmp_path):
    code = "print('{}', flush=True); time.sleep(0.3); print('{}')"
    found = run([job(tmp_path, str(i), code) for i in range(3)], workers=1)
    assert [name for name, _ in found["message"]] == ["0", "0", "1", "1", "2", "2"]


def test_the_first_interrupt_lets_running_jobs_finish_and_starts_no_more(tmp_path):
    polite = (
        "import signal; noted = []; signal.signal(signal.SIGINT, lambda *_: noted.append(1)); print('{}', "
        "flush=True)\n"
        "while not noted: time.sleep(0.01)\n"
        "print(json.dumps({'saved': 1}))"
    )
    jobs = [job(tmp_path, name, polite) for name in ("a", "b")]
    found = run(jobs, workers=1, on_message=lambda _, said: said or os.kill(os.getpid(), signal.SIGINT))
    assert not found["whole"]
    assert found["end"] == [("a", 0)]
    assert found["message"] == [("a", {}), ("a", {"saved": 1})]


def test_outside_the_main_thread_signals_are_left_to_others(tmp_path):
    before, done = signal.getsignal(signal.SIGINT), []
    thread = threading.Thread(target=lambda: done.append(run([job(tmp_path, "a", "pass")])))
    thread.start()
    while thread.is_alive():
        assert signal.getsignal(signal.SIGINT) is before
        time.sleep(0.01)
    assert done[0]["end"] == [("a", 0)]
