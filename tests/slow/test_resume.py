# long: cases of one sentence, that a resumed run is the run, over one tiny suite
"""Stopped and resumed is never stopped, bit for bit; Ctrl-C and a full disk keep the last complete state."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytestmark = pytest.mark.slow

from bipace.train.config import ConfigError, load_config
from bipace.train.files import FolderInUse
from bipace.train.loop import train
from bipace.train.places import actor_folder

REPOSITORY = Path(__file__).resolve().parents[2]
SUITE = """
from dataclasses import replace
from bipace.envs.textcraft import suite
easy = [task for task in suite().splits["demo"] if suite().family(task) == "depth-1"]
few = tuple(easy[:5])
small = replace(suite(), splits={"train": few, "train-panel": few[:3]})
"""
SETTINGS = (
    "rollout.tasks=2", "rollout.group_size=4", "env.max_steps=6", "env.held_out=[]", "run.iterations=4",
    "run.validate_every=2", "run.save_every=1", "run.save_rollouts=true", "actor.threads=1",
)  # fmt: skip
TIMES = ("timing_s/", "perf/")
COMMAND = (sys.executable, "-c", "from bipace.cli import main; main()", "train")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "tiny.py"
    path.write_text(SUITE)
    return f"env.suite={path}:small"


@pytest.fixture
def run(suite):
    def go(folder, *overrides, resume=False, on_iteration=lambda *_: None):
        config = load_config(overrides=(suite, *SETTINGS, *overrides))
        return train(config, folder, resume=resume, on_iteration=on_iteration)

    return go


def contents(folder):
    """Every file of the run that has no timing in it, and the metrics without theirs."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("metrics.jsonl", "provenance.json", "summary.json", ".lock")
    }
    if (folder / "summary.json").is_file():
        found["summary"] = json.loads((folder / "summary.json").read_text())["panels"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in line.items() if not k.startswith(TIMES)} for line in lines]
    found["links"] = [(folder / link).readlink().name for link in ("last", "best")]
    return found


@pytest.mark.parametrize("order", ["draws", "passes"])
def test_four_iterations_are_two_and_two_more_across_the_end_of_a_pass(order, run, tmp_path):
    run(tmp_path / "whole", f"rollout.order={order}")
    run(tmp_path / "parts", f"rollout.order={order}", "run.iterations=2")
    run(tmp_path / "parts", f"rollout.order={order}", resume=True)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    assert sum(line.get("update/grad_norm", 0) > 0 for line in contents(tmp_path / "whole")["metrics"]) >= 2


def test_another_thread_count_may_go_on_and_draws_the_same_tasks(run, tmp_path):
    run(tmp_path / "whole")
    run(tmp_path / "parts", "run.iterations=2")
    run(tmp_path / "parts", "actor.threads=2", resume=True)
    whole, parts = (
        [json.loads(line) for line in (tmp_path / name / "rollouts.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    )
    assert [(r["iteration"], r["task"], r["member"]) for r in parts] == [
        (r["iteration"], r["task"], r["member"]) for r in whole
    ]
    assert parts[:16] == whole[:16]  # the two iterations before; later sums of floats may round otherwise


def test_a_finished_run_resumed_stays_as_it_is(run, tmp_path):
    run(tmp_path / "run", "run.iterations=1")
    before = contents(tmp_path / "run")
    run(tmp_path / "run", "run.iterations=1", resume=True)
    assert contents(tmp_path / "run") == before


def test_what_a_kill_leaves_behind_is_cleared(run, tmp_path):
    run(tmp_path / "whole")
    folder = tmp_path / "run"
    run(folder, "run.iterations=2")
    for name in ("metrics.jsonl", "rollouts.jsonl"):
        with (folder / name).open("ab") as file:
            file.write(b'{"iteration": 3}\n{"iteration": 4, "text": "\xe2\x80')
    (folder / "validation" / "iteration-000003.train-panel.jsonl").write_text("{}")
    (folder / "checkpoints" / ".building-iteration-000003" / "actor").mkdir(parents=True)
    (folder / "checkpoints" / "iteration-000001").mkdir(exist_ok=True)
    (folder / ".config.json.tmp").write_text("{")
    (folder / ".last.tmp").symlink_to("nowhere")
    run(folder, resume=True)
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_run_stopped_before_its_first_checkpoint_starts_over(run, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", on_iteration=stop)
    assert not (tmp_path / "run" / "last").exists()
    run(tmp_path / "run", resume=True)
    run(tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_another_configuration_recipe_or_task_list_is_refused_by_name(suite, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("from functools import partial\nfrom bipace.core.estimators import gigpo as mine\n")
    tiny = tmp_path / "suite.py"
    tiny.write_text(SUITE)

    def go(*overrides, resume=True):
        base = (*SETTINGS, f"env.suite={tiny}:small", f"estimator={own}:mine", "run.iterations=1")
        train(
            load_config(overrides=(*base, *overrides)),
            tmp_path / "run",
            resume=resume,
            on_iteration=lambda *_: None,
        )

    go(resume=False)
    with pytest.raises(ConfigError, match=r"these keys differ: credit\.w, update\.lr$"):
        go("credit.w=0.5", "update.lr=0.1")
    go("actor.threads=2")
    script = (
        "from bipace.train.loop import train; from bipace.train.config import load_config; import sys, "
        "pathlib\n"
    )
    script += "train(load_config(overrides=sys.argv[2:]), pathlib.Path(sys.argv[1]), resume=True, "
    script += "on_iteration=lambda *_: None)"
    arguments = (*SETTINGS, f"env.suite={tiny}:small", f"estimator={own}:mine", "run.iterations=1")
    own.write_text("from bipace.core.estimators import grpo as mine\n")
    tiny.write_text(SUITE.replace("[:5]", "[:4]"))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    for key in ("files.", "own.py", "recipe.name", "recipe.terms", "tasks.train.n", "tasks.train.sha256"):
        assert key in done.stderr


def test_a_longer_run_is_the_one_planned_so_long(run, tmp_path):
    """The last iteration's validation, with the held-out panel, was made because the run ended there."""
    more = ("run.validate_every=3", 'env.held_out=["train"]')
    run(tmp_path / "whole", *more)
    run(tmp_path / "parts", *more, "run.iterations=2")
    ended = contents(tmp_path / "parts")
    run(tmp_path / "parts", *more, "run.iterations=2", resume=True)
    assert contents(tmp_path / "parts") == ended
    run(tmp_path / "parts", *more, resume=True)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_the_validation_at_the_end_may_be_the_best_and_costs_the_best_before_nothing(run, tmp_path):
    folder = tmp_path / "run"
    run(folder, "run.iterations=1", "run.validate_every=3")
    state = json.loads((folder / "last" / "trainer_state.json").read_text())
    better = state["validations"]["train-panel"]["1"]["success"] > state["best"]
    assert state["final_best"] == better
    assert (folder / "best").readlink().name == f"iteration-{int(better):06d}"
    assert (folder / "checkpoints" / "iteration-000000").is_dir()


@pytest.mark.parametrize("copy", ["without links", "with links followed", "followed, without checkpoints"])
def test_a_copy_of_a_run_goes_on_as_the_run_would(copy, run, tmp_path):
    run(tmp_path / "whole")
    run(tmp_path / "run", "run.iterations=2")
    shutil.copytree(tmp_path / "run", tmp_path / "copy", symlinks=copy == "without links")
    if copy == "without links":
        for link in ("last", "best"):
            (tmp_path / "copy" / link).unlink()
    if copy == "followed, without checkpoints":
        shutil.rmtree(tmp_path / "copy" / "checkpoints")
    run(tmp_path / "copy", resume=True)
    assert contents(tmp_path / "copy") == contents(tmp_path / "whole")


def test_a_run_whose_checkpoints_are_gone_is_refused_and_left_alone(run, tmp_path):
    folder = tmp_path / "run"
    run(folder, "run.iterations=2")
    for link in ("last", "best"):
        (folder / link).unlink()
    shutil.rmtree(folder / "checkpoints")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(ConfigError, match="its log reaches iteration 2, but it holds no whole checkpoint"):
        run(folder, resume=True)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_a_damaged_line_refuses_and_cuts_nothing(run, tmp_path):
    folder = tmp_path / "run"
    run(folder, "run.iterations=2")
    log = folder / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0], b"\x00" * 30 + b"\n", *lines[2:]])
    log.write_bytes(damaged)
    with pytest.raises(ConfigError, match=r"metrics\.jsonl: line 2 is damaged; mend it, or delete it"):
        run(folder, resume=True)
    assert log.read_bytes() == damaged
    log.write_bytes(b"".join(lines)[:-1])  # an editor took the last line's end away
    run(folder, "run.iterations=2", resume=True)
    assert log.read_bytes() == b"".join(lines)


def test_what_the_user_puts_among_the_checkpoints_stays(run, tmp_path):
    folder = tmp_path / "run"

    def put(found, _metrics):
        if found.iteration == 1:
            for name in ("mine", "iteration-000007", "iteration-000000"):
                (folder / "checkpoints" / name).mkdir(exist_ok=True)
                (folder / "checkpoints" / name / "notes.txt").write_text("kept")

    run(folder, on_iteration=put)
    for name in ("mine", "iteration-000007", "iteration-000000"):
        assert (folder / "checkpoints" / name / "notes.txt").read_text() == "kept"


def test_an_optimizer_of_another_model_or_a_damaged_file_is_one_error(run, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "run"
    run(folder, "run.iterations=1")
    path = folder / "last" / "optimizer.safetensors"
    whole = load_file(path)
    for name in ("0.exp_avg", "3.exp_avg_sq"):
        save_file({**whole, name: torch.zeros(3)}, path)
        with pytest.raises(ConfigError, match=r"optimizer\.safetensors: does not fit the actor"):
            run(folder, resume=True)
    save_file({k: v for k, v in whole.items() if not k.startswith("0.")}, path)
    with pytest.raises(ConfigError, match="entries for the actor's"):
        run(folder, resume=True)
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(ConfigError, match=r"optimizer\.safetensors: is damaged"):
        run(folder, resume=True)
    save_file(whole, path)
    state = folder / "last" / "trainer_state.json"
    for text in ("", "[]", "{", '{"iteration": "x"}', '{"iteration": 1}'):
        state.write_text(text)
        with pytest.raises(ConfigError, match="damaged"):
            run(folder, resume=True)


HOLD = """
import pathlib, sys, time
from bipace.train.files import held
with held(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_process_in_the_folder_is_refused(run, tmp_path):
    folder = tmp_path / "run"
    run(folder, "run.iterations=1")
    before = contents(folder)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match=rf"process {other.pid} on .* is writing into it"):
            run(folder, resume=True)
        other.communicate("\n")
    assert contents(folder) == before
    run(folder, resume=True)


def test_the_code_and_the_actor_that_a_run_is_made_of_are_compared_by_content(suite, tmp_path, monkeypatch):
    package, actor = tmp_path / "own_package", tmp_path / "actor"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("W = 0.5\n")
    (package / "made.py").write_text(
        "from own_package import part\nfrom bipace.core.estimators import gigpo as mine\n"
    )
    shutil.copytree(actor_folder("textcraft-small"), actor)
    base = (suite, *SETTINGS, "estimator=own_package.made:mine", f"actor.folder={actor}", "run.iterations=1")
    command = [*COMMAND, *base, "--out", str(tmp_path / "run")]
    again = [*COMMAND, "--resume", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}

    def go(words):
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)

    assert go(command).returncode == 0
    assert go(again).returncode == 0
    (package / "part.py").write_text("W = 0.25\n")
    done = go(again)
    assert (done.returncode, "files.own_package/part.py" in done.stderr) == (2, True), done.stderr
    (package / "part.py").write_text("W = 0.5\n")
    (actor / "generation_config.json").write_text("{}")
    done = go(again)
    assert (done.returncode, "actor.generation_config.json" in done.stderr) == (2, True), done.stderr
    shutil.rmtree(actor)
    assert go(again).returncode == 0  # its checkpoint has all that it needs


def test_a_lost_checkpoint_is_an_error_not_a_new_start(run, tmp_path):
    run(tmp_path / "run", "run.iterations=1")
    shutil.rmtree((tmp_path / "run" / "last").resolve())
    with pytest.raises(ConfigError, match="the last checkpoint, checkpoints/iteration-000001, is gone"):
        run(tmp_path / "run", resume=True)


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_keeps_the_last_complete_state(presses, run, tmp_path):
    def press(found, _metrics):
        if found.iteration == 2:
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "run"
    if presses == 1:
        assert run(folder, on_iteration=press).iteration == 2
    else:
        with pytest.raises(KeyboardInterrupt):
            run(folder, on_iteration=press)
    state = json.loads((folder / "last" / "trainer_state.json").read_text())
    assert state["iteration"] == (2 if presses == 1 else 1)
    run(folder, resume=True)
    run(tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_file_that_may_not_grow_is_one_clear_error_and_the_checkpoint_stays(run, suite, tmp_path):
    folder = tmp_path / "run"
    run(folder, "run.iterations=1", "run.save_rollouts=false")
    before = contents(folder)
    done = subprocess.run(
        [*COMMAND, suite, *SETTINGS, "run.save_rollouts=false", "--out", str(folder), "--resume"],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "error: no space left on the disk" in done.stderr
    assert "Traceback" not in done.stderr
    after = contents(folder)
    assert after["links"] == before["links"]
    assert {k: v for k, v in after.items() if k.startswith("checkpoints")} == {
        k: v for k, v in before.items() if k.startswith("checkpoints")
    }


FULL = """
import pathlib, sys
from bipace.cli import main
from bipace.policies.hf import Actor
from bipace.train.checkpoints import read_state
folder = pathlib.Path(sys.argv[1])
sys.argv = ["bipace", "train", *sys.argv[2:], "--out", str(folder)]
try:
    main()
except SystemExit as leaving:
    print("status", leaving.code)
last = folder / "last"
Actor.load(last / "actor")
print("last good", read_state(last)["iteration"], sorted(p.name for p in (folder / "checkpoints").iterdir()))
"""


def test_a_full_disk_is_one_clear_error_and_the_checkpoint_stays(suite, tmp_path):
    mounted = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], check=False,
                             capture_output=True) if shutil.which("unshare") else None  # fmt: skip
    if mounted is None or mounted.returncode:
        pytest.skip("this system lets no user mount a small file system of their own")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" && shift && exec "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(disk), sys.executable, "-c", FULL, str(disk / "run"),
        suite,
         *SETTINGS, "run.iterations=9", "run.validate_every=99"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "error: no space left on the disk" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    status, last = done.stdout.splitlines()[-2:]
    assert status == "status 4"
    assert last.startswith("last good ")
    assert ".building" not in last


def test_killed_runs_resume_to_the_same_bits():
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "benchmarks" / "kill.py"), "--kills", "5", "--seed", "1",
        "--out", "-"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "5/5 resumed identical", done.stdout + done.stderr
