"""`bipace analyze` on 100,000 steps in every format: steps per second and peak memory, a fresh process each.

    python benchmarks/analyze.py

Writes benchmarks/results/analyze.json. The floors are the issue's targets: 60 s and 2 GB for 100,000 steps.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

STEPS, GROUP, LENGTH = 100_000, 8, 10
FORMATS = ("tau_bench", "openai", "verifiers", "atif", "bipace", "verl", "trl", "rows")
SECONDS, MEGABYTES = 60.0, 2000.0
WORDS = [f"word{i}" for i in range(3000)]


def turns(rng, task):
    """(observation, response) pairs of one episode; some observations are shared inside the group."""
    shared = random.Random(task)
    base = [" ".join(shared.choices(WORDS, k=60)) for _ in range(LENGTH)]
    return [
        (
            text if rng.random() < 0.4 else f"{text} {rng.random()}",
            f"<action>{rng.choice(WORDS[:6])}</action>",
        )
        for text in base
    ]


def messages(pairs):
    return [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]  # fmt: skip


def atif(pairs, task, i, reward):
    steps = [
        {"source": source, "message": text}
        for pair in pairs
        for source, text in zip(("user", "agent"), pair, strict=True)
    ]
    return {
        "schema_version": "ATIF-v1.4", "session_id": str(i), "agent": {}, "steps": steps,
        "extra": {"reward": reward, "task_id": task},
    }  # fmt: skip


def own(pairs, task, i, reward):
    steps = [
        {"observation": o, "response": a, "action": a, "parsed": True, "reward": reward * (t == LENGTH - 1)}
        for t, (o, a) in enumerate(pairs)
    ]
    return {"task": task, "member": i, "won": bool(reward), "steps": steps}


def records(name):
    rng = random.Random(0)
    for i in range(STEPS // LENGTH):
        task, reward = f"task-{i // GROUP}", float(rng.random() < 0.5)
        pairs = turns(rng, task)
        if name == "tau_bench":
            yield {"task_id": task, "trial": i % GROUP, "reward": reward, "traj": messages(pairs)}
        elif name == "openai":
            yield {"task_id": task, "reward": reward, "messages": messages(pairs)}
        elif name in ("verifiers", "trl"):
            chat = messages(pairs)
            row = {"prompt": chat[:1], "completion": chat[1:], "reward": reward}
            yield {**row, "example_id": task} if name == "verifiers" else {**row, "step": 1, "advantage": 0.0}
        elif name == "atif":
            yield atif(pairs, task, i, reward)
        elif name == "bipace":
            yield own(pairs, task, i, reward)
        else:
            for t, (o, a) in enumerate(pairs):
                last = reward * (t == LENGTH - 1)
                if name == "verl":
                    uid = f"{task}_{i % GROUP}_{t}"
                    yield {"input": o, "output": a, "gts": None, "score": last, "step": 1, "uid": uid}
                else:
                    yield {
                        "task": task,
                        "trajectory": i,
                        "step": t,
                        "observation": o,
                        "action": a,
                        "reward": last,
                    }


def write(name, folder):
    if name == "trl":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(list(records(name))), folder / "trl.parquet")
        return folder / "trl.parquet"
    path = folder / f"{name}.json"
    with path.open("w") as file:
        if name == "tau_bench":
            file.write("[\n" + ",\n".join(json.dumps(r) for r in records(name)) + "\n]")
        else:
            file.writelines(json.dumps(r) + "\n" for r in records(name))
    return path


def measure(path):
    """In its own process: read and analyse, then print seconds and peak memory."""
    begun = time.perf_counter()
    from bipace.analyze import analyze, read_file

    reading = read_file(path, strict=True)
    read = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    del reading
    begun = time.perf_counter()
    found = analyze(path)
    found.write_page(Path(path).with_suffix(".html"))
    whole = time.perf_counter() - begun
    total = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    numbers = {"format": found.readings[0].format, "steps": len(found.table.batch)}
    print(json.dumps({**numbers, "read": read, "whole": whole, "read_peak": peak, "peak": total}))


def main():
    rows = []
    out = Path(__file__).parent / "results" / "analyze.json"
    common = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, shared",
        "versions": {p: version(p) for p in ("numpy", "scikit-learn", "pyarrow", "ijson")},
        "date": datetime.date.today().isoformat(),
        "command": "python benchmarks/analyze.py",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or FORMATS:
            path = write(name, Path(folder))
            done = subprocess.run(
                [sys.executable, __file__, "--measure", str(path)], check=True, capture_output=True, text=True
            )
            m = json.loads(done.stdout)
            assert (m["format"], m["steps"]) == (name, STEPS), m
            rows += [
                figure(f"{name}: reader", "steps/s", m["steps"] / m["read"], STEPS / SECONDS, common),
                figure(f"{name}: reader, peak memory", "MB", m["read_peak"], MEGABYTES, common),
                figure(f"{name}: analysis and page of 100,000 steps", "s", m["whole"], SECONDS, common),
                figure(f"{name}: analysis and page, peak memory", "MB", m["peak"], MEGABYTES, common),
            ]
            print(name, {k: v if isinstance(v, str) else round(v, 1) for k, v in m.items()}, flush=True)
            path.unlink()
            out.write_text(json.dumps(rows, indent=1) + "\n")


def figure(name, unit, value, floor, common):
    return {"figure": name, "unit": unit, "value": value, "floor": floor, "ratio": value / floor, **common}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
    else:
        main()
