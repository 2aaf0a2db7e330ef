"""The number of CPU threads and how they wait, the shown slowness, and what the command line does without
torch.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="needs the cli extra")

from bipace.train.threads import SMALL, choose_threads, usable_cores
from bipace.train.timing import Clock, Slowness

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}


def python(code, **more):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**ENVIRONMENT, **more}, check=True
    )
    return done.stdout.strip()


def test_a_small_model_gets_one_thread_and_a_large_one_every_core(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    small, large = (choose_threads(n, None, cores=8, asleep=True) for n in (160_000, SMALL))
    assert (small.number, large.number) == (1, 8)
    assert "0.16 M parameters" in small.why
    assert choose_threads(SMALL, None, cores=8, asleep=False).number == 1


def test_what_the_user_says_comes_first_and_never_exceeds_the_cores(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert choose_threads(1000, 2, cores=4).number == 2
    assert choose_threads(1000, None, cores=4).number == 3
    many = choose_threads(1000, 100_000, cores=4)
    assert many.number == 4
    assert many.why == "actor.threads=100000 is more than the 4 cores this process may use"
    for nonsense in ("", "0", "x", "9", "2,1"):
        monkeypatch.setenv("OMP_NUM_THREADS", nonsense)
        assert choose_threads(1000, None, cores=4).number == (2 if nonsense == "2,1" else 1)


def test_the_cores_are_those_of_the_affinity_and_the_containers_quota(monkeypatch, tmp_path):
    monkeypatch.setattr("bipace.train.threads._QUOTA", tmp_path / "cpu.max")
    free = usable_cores()
    for text, cores in (
        ("150000 100000", min(free, 2)),
        ("max 100000", free),
        ("50000 100000", 1),
        ("junk", free),
    ):
        (tmp_path / "cpu.max").write_text(text)
        assert usable_cores() == cores


def test_threads_wait_asleep_before_torch_is_imported():
    pytest.importorskip("torch", reason="needs the train extra")
    assert python("import bipace, os; print(os.environ['OMP_WAIT_POLICY'])") == "PASSIVE"
    assert python("import bipace.waiting as w; print(w.WAITS_ASLEEP)") == "True"
    assert python("import torch; import bipace.waiting as w; print(w.WAITS_ASLEEP)") == "False"
    assert python("import bipace.waiting as w; print(w.WAITS_ASLEEP)", OMP_WAIT_POLICY="active") == "False"


SPIN = """
{first}
import os, time, torch
torch.set_num_threads(2)
a = torch.randn(64, 64)
def burnt():
    for _ in range(20):
        torch.randn(200_000).exp_()
    before = time.process_time()
    time.sleep(0.05)
    return time.process_time() - before
print(sorted(burnt() for _ in range(9))[4] < 0.0005)
"""


@pytest.mark.skipif(usable_cores() < 2, reason="one core: OpenMP never spins there")
def test_a_thread_without_work_burns_no_time():
    pytest.importorskip("torch", reason="needs the train extra")
    assert python(SPIN.format(first="import bipace")) == "True"


def metrics(rate, waited=0.0):
    return {"perf/tokens_per_s": rate, "perf/waited_share": waited}


def test_a_slow_spell_is_told_once_with_its_reason():
    slowness = Slowness()
    assert [slowness.notice(metrics(r)) for r in (100, 90, 110)] == ["", "", ""]
    assert (
        slowness.notice(metrics(20, 0.7))
        == "5 x slower than the first iterations: other processes are using the cores"
    )
    assert slowness.notice(metrics(20, 0.7)) == ""
    assert slowness.notice(metrics(95)) == ""
    assert "although this process had its core" in slowness.notice(metrics(20, 0.0))
    assert slowness.notice({}) == ""


def test_a_machine_that_is_busy_from_the_start_is_told():
    slowness = Slowness()
    assert "other processes are using the cores" in slowness.notice(metrics(100, 0.6))
    assert slowness.notice(metrics(100, 0.6)) == ""


def test_an_iteration_knows_how_long_it_waited_for_a_core():
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("this system does not tell")
    found = Clock().metrics(1)
    assert 0 <= found["perf/waited_share"] <= 1


TORCH_FREE = """
import sys, io, contextlib
sys.argv = ["bipace", *{words!r}]
from bipace.cli import main
try:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main()
except SystemExit as leaving:
    status = leaving.code
import json
print(json.dumps([status, [m for m in ("torch", "transformers", "matplotlib") if m in sys.modules]]))
"""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--help", 0), ("--version", 0), ("recipes", 0), ("config", 0), ("models", 0), ("envs", 0),
        ("trian", 2),
        ("train run.sead=1", 2), ("train env.suite=textcrat", 2), ("train env.panel=no-such", 2),
        ("train actor.folder=textcraft-smal", 2), ("train estimator=bipaces", 2),
        ("train --resume nowhere", 2),
        ("train runs/x", 2), ("eval nowhere", 2), ("eval textcraft-small --panel nowhere", 2),
        ("imitate new --suite textcrat", 2), ("credit textcraft-small --recipe gigp0", 2),
        ("credit world:nowhere", 2),
        ("analyze nowhere.jsonl", 2),
    ],
)  # fmt: skip
def test_a_slip_is_answered_before_torch_is_imported(words, status, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TORCH_FREE.format(words=words.split())],
        capture_output=True, text=True, cwd=tmp_path, check=True,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == [status, []], done.stderr
