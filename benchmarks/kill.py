"""Kill training runs with SIGKILL at random moments, resume them, and compare with a run never stopped, bit
for bit.

A warm parent forks the runs, so that fifty of them do not import torch fifty times; each child runs the real
command line on real files and is killed for real: half of them at a random moment, half right before a random
file operation inside the run folder (most of which belong to saving). A resumed run may be killed again, up
to three times.

Compared are the bytes of every checkpoint file that `last` and `best` point at, per-task results, rollouts,
and the metrics except timings. Prints `N/N resumed identical`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import matplotlib.pyplot  # noqa: F401  (drawing the curve should find it imported)
import torch

import bipace.cli
import bipace.cli.session
from bipace.policies.hf import Actor
from bipace.train.actors import actor_folder

RESULT = Path(__file__).resolve().parent / "results" / "kill.json"
SUITE = """
from dataclasses import replace
from bipace.envs.textcraft import suite
shipped = suite()
easy = [task for task in shipped.splits["demo"] if shipped.family(task) == "depth-1"]
few = tuple(easy[:5])  # two tasks an iteration: a pass ends after every second one
small = replace(shipped, splits={"train": few, "train-panel": few + tuple(easy[5:8])})
"""
ACTOR = actor_folder("textcraft-small")
TIMES = ("timing_s/", "perf/")
SETTINGS = (
    "rollout.tasks=2", "rollout.group_size=4", "rollout.order=passes", "env.max_steps=6", "env.held_out=[]",
    "run.iterations=5", "run.validate_every=2", "run.save_every=1", "run.save_rollouts=true",
    "actor.threads=1",
)  # fmt: skip
OPERATIONS = {
    "open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.truncate", "shutil.rmtree",
    "os.scandir", "os.listdir",
}  # fmt: skip


def start(folder: Path, suite: Path, kill_at: int | None = None, count: Path | None = None) -> int:
    """Fork a child that trains in the folder, resuming what is there; returns its process id.

    Args:
        folder: the run folder.
        suite: file of the tiny suite.
        kill_at: the child kills itself with SIGKILL right before this file operation inside the folder.
        count: where the child writes how many such operations it made.
    """
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(os.open(folder.parent / f"{folder.name}.err", os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)
        seen = watch_operations(folder, kill_at)
        resume = ["--resume"] if (folder / "config.json").is_file() else []
        sys.argv = ["bipace", "train", f"env.suite={suite}:small", *SETTINGS, "--out", str(folder), *resume]
        try:
            bipace.cli.main()
            status = 0
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        if count is not None:
            count.write_text(str(seen[0]))
    finally:
        os._exit(status)


def watch_operations(folder: Path, kill_at: int | None) -> list[int]:
    """Count the file operations inside the folder, and die before the one asked for."""
    seen, inside = [0], str(folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in OPERATIONS or not any(str(a).startswith(inside) for a in arguments[:2]):
            return
        seen[0] += 1
        if seen[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return seen


def finish(child: int, after: float | None = None) -> bool:
    """Wait for a child, killing it after so many seconds; True where it came to its own end.

    Raises:
        RuntimeError: it failed on its own account.
    """
    began = time.perf_counter()
    while after is not None and time.perf_counter() - began < after:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return own_end(status)
        time.sleep(0.001)
    if after is not None:
        os.kill(child, signal.SIGKILL)
    return own_end(os.waitpid(child, 0)[1])


def own_end(status: int) -> bool:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if status:
        raise RuntimeError(f"a run ended with status {status}")
    return True


def state(folder: Path) -> dict[str, Any]:
    """Everything of a finished run that must be the same: digests of files, and the metrics except
    timings.
    """
    found: dict[str, object] = {}
    for link in ("last", "best"):
        found[link] = (folder / link).readlink().name
        for path in sorted((folder / link).resolve().rglob("*")):
            if path.is_file():
                found[f"{link}/{path.relative_to((folder / link).resolve())}"] = digest(path)
    for path in (
        *sorted((folder / "validation").iterdir()),
        folder / "rollouts.jsonl",
        folder / "config.json",
    ):
        found[path.name] = digest(path)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in line.items() if not k.startswith(TIMES)} for line in lines]
    found["summary"] = json.loads((folder / "summary.json").read_text())["panels"]
    found["leftovers"] = sorted(p.name for p in folder.rglob(".*"))
    found["checkpoints"] = sorted(p.name for p in (folder / "checkpoints").iterdir())
    return found


def moved_often(metrics: list[dict[str, float]]) -> bool:
    """True where at least three iterations had a gradient."""
    return sum(line.get("update/grad_norm", 0) > 0 for line in metrics) >= 3


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def killed_run(
    folder: Path, suite: Path, chance: random.Random, seconds: float, operations: int
) -> list[str]:
    """One run, killed one to three times and then left to finish; returns where it was killed."""
    kills = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        if chance.random() < 0.5:
            after = chance.uniform(0, seconds)
            ended, where = finish(start(folder, suite), after), f"after {after:.3f} s"
        else:
            at = chance.randint(1, operations)
            ended, where = finish(start(folder, suite, at)), f"before file operation {at}"
        if ended:
            break
        kills.append(f"{where} (iteration {reached(folder)})")
    finish(start(folder, suite))
    return kills


def reached(folder: Path) -> str:
    last = folder / "last"
    return str(int(last.readlink().name.split("-")[1])) if last.is_symlink() else "none"


def measure(kills: int, every: bool, seed: int) -> dict[str, object]:
    """Run the experiment; every: one run killed before each single file operation instead of random ones."""
    chance, cases, differing = random.Random(seed), [], []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        suite, counted = work / "tiny.py", work / "count"
        suite.write_text(SUITE)
        began = time.perf_counter()
        finish(start(work / "whole", suite, count=counted))
        seconds, operations = time.perf_counter() - began, int(counted.read_text())
        expected = state(work / "whole")
        trained, start_of_it = (folder / "model.safetensors" for folder in (work / "whole/last/actor", ACTOR))
        if digest(trained) == digest(start_of_it) or not moved_often(expected["metrics"]):
            raise RuntimeError(
                "the run to compare with learned nothing, so its resumption would prove nothing"
            )
        number = 0
        while number < (operations if every else kills):
            folder = work / f"run-{number}"
            if every:
                where = (
                    []
                    if finish(start(folder, suite, number + 1))
                    else [f"before file operation {number + 1}"]
                )
                finish(start(folder, suite))
            else:
                where = killed_run(folder, suite, chance, seconds, operations)
            if where or every:  # a run that ended before its moment came was not killed: another one instead
                number += 1
                cases.append(where)
                found = state(folder)
                differing += [
                    f"run {number} ({'; '.join(where)}): {key}"
                    for key in expected
                    if found.get(key) != expected[key]
                ]
                same = number - len({case.split(":")[0] for case in differing})
                print(f"{same}/{number} resumed identical  killed {'; '.join(where)}", flush=True)
            shutil.rmtree(folder)
    same = len(cases) - len({case.split(":")[0] for case in differing})
    return {
        "figure": "runs killed with SIGKILL, resumed, and equal bit for bit to a run never stopped",
        "unit": "runs", "value": same, "of": len(cases), "peer or floor": len(cases),
        "ratio": same / len(cases),
        "kills": sum(len(where) for where in cases), "file_operations": operations,
        "seconds_a_run": round(seconds, 2),
        "differing": differing,
        "where": sorted(where for case in cases for where in case),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, help="runs to kill")
    parser.add_argument(
        "--every", action="store_true", help="a run killed before each file operation in turn"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file; - for none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    Actor.load(ACTOR)  # what is imported late is imported once, here
    found = measure(options.kills, options.every, options.seed)
    if str(options.out) != "-":
        document = {
            "figures": [found],
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "date": datetime.now(timezone.utc).date().isoformat(),
            "command": "python benchmarks/kill.py "
            f"{'--every' if options.every else f'--kills {options.kills}'}",
        }
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{found['value']}/{found['of']} resumed identical")
    sys.exit(found["value"] != found["of"])


if __name__ == "__main__":
    main()
