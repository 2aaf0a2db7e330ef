"""An iteration in shards: the same bits from one process and from two, and no process left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.train.config import ConfigError, load_config
from bipace.train.loop import Run, RunStopped, train
from bipace.train.run_folder import saved_config
from bipace.train.split import Split, choose_split, cut, shard_seeds

SETTINGS = (
    "rollout.tasks=4", "rollout.group_size=4", "env.max_steps=6", "env.held_out=[]", "run.iterations=2",
    "env.panel=depth4-panel", "run.validate_every=1", "run.save_every=1", "run.save_rollouts=true",
    "actor.threads=1", "actor.shards=2",
)  # fmt: skip
TIMES = ("timing_s/", "perf/")
HANGS = """
import os, time
from dataclasses import replace
from bipace.envs.textcraft import suite

class Slow:
    def __init__(self): self.inner = suite().make()
    def reset(self, task): return self.inner.reset(task)
    def step(self, action):
        if os.environ.get("SLOW_PARENT") != str(os.getpid()): time.sleep(1000)
        return self.inner.step(action)
    def copy(self): return self

class Suite:
    def __getattr__(self, name): return getattr(suite(), name)
    def make(self): return Slow()
slow = Suite()
"""


def settings(*overrides):
    return load_config(overrides=(*SETTINGS, *overrides))


def go(folder, *overrides, resume=False):
    train(settings(*overrides), folder, resume=resume, on_iteration=lambda *_: None)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "metrics": [{k: v for k, v in line.items() if not k.startswith(TIMES)} for line in lines],
        "rollouts": (folder / "rollouts.jsonl").read_text(),
        "weights": (folder / "last" / "actor" / "model.safetensors").read_bytes(),
        "optimizer": (folder / "last" / "optimizer.safetensors").read_bytes(),
    }


def test_one_process_and_two_and_a_resume_from_one_to_the_other_give_the_same_bits(tmp_path):
    one = go(tmp_path / "one", "actor.processes=1")
    assert any(line.get("update/grad_norm", 0) > 0 for line in one["metrics"])
    assert go(tmp_path / "two", "actor.processes=2") == one
    go(tmp_path / "parts", "actor.processes=2", "run.iterations=1")
    assert go(tmp_path / "parts", "actor.processes=1", resume=True) == one
    with pytest.raises(ConfigError, match=r"these keys differ: actor\.shards"):
        go(tmp_path / "parts", "actor.shards=1", resume=True)
    origin = json.loads((tmp_path / "two" / "provenance.json").read_text())
    assert (origin["shards"], origin["processes"]) == (2, 2)


def test_a_process_that_dies_or_fails_is_one_sentence_and_leaves_nothing(tmp_path):
    run = Run(settings("actor.processes=2"), tmp_path)
    run.step()
    (other,) = run.shards.processes
    os.kill(other, signal.SIGKILL)
    with pytest.raises(RunStopped, match=rf"second process \({other}\) was killed by SIGKILL .*--resume"):
        run.step()
    assert run.shards.processes == []
    broken = Run(settings("actor.processes=2"), tmp_path)
    broken.shards._checkpoint = tmp_path / "nowhere"
    with pytest.raises(RunStopped, match="second process failed: FileNotFoundError"):
        broken.step()


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_it_ends_with_its_parent_even_while_an_environment_hangs(tmp_path):
    suite = tmp_path / "hangs.py"
    suite.write_text(HANGS)
    script = (
        "import os, sys; os.environ['SLOW_PARENT'] = str(os.getpid())\n"
        "from pathlib import Path\nfrom bipace.train.config import load_config\n"
        "from bipace.train.loop import Run\nimport threading, time\n"
        "run = Run(load_config(overrides=sys.argv[2:]), Path(sys.argv[1]))\n"
        "def tell():\n"
        "    while not run.shards.processes or not run.shards._others[0]._started: time.sleep(0.1)\n"
        "    print(run.shards.processes[0], flush=True)\n"
        "threading.Thread(target=tell, daemon=True).start()\nrun.step()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run"), *SETTINGS, "actor.processes=2"]
    with subprocess.Popen([*command, f"env.suite={suite}:slow"], stdout=subprocess.PIPE, text=True) as parent:
        other = int(parent.stdout.readline())
        time.sleep(1)
        assert alive(other)
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while alive(other) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(other)


def test_processes_fit_the_cores_and_never_change_the_shards():
    assert choose_split(load_config(), threads=1, cores=2) == Split(1, 1)
    two = settings()
    assert choose_split(two, threads=1, cores=2) == Split(2, 2)
    assert choose_split(two, threads=1, cores=1) == Split(2, 1)
    assert choose_split(two, threads=2, cores=2) == Split(2, 1)
    assert choose_split(settings("actor.processes=1"), threads=1, cores=2) == Split(2, 1)
    assert choose_split(settings("actor.device=cuda"), threads=1, cores=2) == Split(2, 1)
    with pytest.raises(ConfigError, match=r"actor\.processes: 2, but only"):
        choose_split(settings("actor.device=cuda", "actor.processes=2"), threads=1, cores=2)
    for preset in ("alfworld", "webshop"):
        assert load_config(Path(preset)).actor.shards == 2


def test_the_cuts_hold_every_task_once_and_one_shard_draws_as_an_unsplit_run():
    for n in range(6):
        for shards in (1, 2, 3):
            parts = cut([str(i) for i in range(n)], shards)
            assert [task for part in parts for task in part] == [str(i) for i in range(n)]
            assert len(parts) == shards
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert shard_seeds(7, 1) == [7]
    assert shard_seeds(7, 3)[:2] == shard_seeds(7, 2)
    assert len(set(shard_seeds(7, 64))) == 64


def test_a_folder_from_before_shards_goes_on_in_one(tmp_path):
    go(tmp_path / "run", "actor.shards=1", "run.iterations=1")
    place = tmp_path / "run" / "config.json"
    tree = json.loads(place.read_text())
    del tree["actor"]["shards"], tree["actor"]["processes"]
    place.write_text(json.dumps(tree))
    assert saved_config(tmp_path / "run").actor.shards == 1
    go(tmp_path / "run", "actor.shards=1", resume=True)
