"""An iteration of every CPU preset, quiet and beside busy processes, with 1, 2 and the default threads.

Times are ratios to one thread under the same load.

    python benchmarks/busy.py              # about eight minutes; goes on where it was stopped
    python benchmarks/busy.py --fresh      # begin again
    python benchmarks/busy.py --smoke      # a few seconds: one small cell, written nowhere

The number of threads is changed between iterations of one process; the default is the preset as it is, with
its second process where it has two shards. Each measures the same iteration (the same tasks and random
numbers, a learning rate of 1e-12) of a quarter of the preset's prompt
groups. The cells of one load are measured in turns, so that a drift of the machine falls on all of them. A
busy process is a Python loop that never waits. Beside them, random models of four sizes: one training step
and one decoding step with two threads, as ratios to one; where two begin to pay is what
`bipace.train.threads` goes by. What is measured must not share the machine with anything else. Writes
benchmarks/results/busy.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import bipace  # noqa: F401  (before torch: threads that wait sleep)

RESULT = Path(__file__).parent / "results" / "busy.json"
PRESETS = {
    "demo": ("demo", ()),
    "textcraft-medium": (None, ("actor.folder=textcraft-medium",)),
    "alfworld": ("alfworld", ()),
    "webshop": ("webshop", ()),
}
SHAPES = ((128, 4), (256, 6), (384, 8), (512, 12))  # 1, 5, 15 and 38 million parameters
LOADS, THREADS, TURNS = (0, 1, 2), ("1", "2", "default"), 3
TARGET = 1.1


def measure(name: str, loads: tuple[int, ...], turns: int, tasks: int) -> list[dict[str, Any]]:
    """The cells of one preset, in this process."""
    import torch

    from bipace.train.config import load_config
    from bipace.train.loop import Run

    preset, more = PRESETS[name]
    overrides = (*more, "env.held_out=[]", "update.lr=1e-12", "update.lr_decay=0", f"rollout.tasks={tasks}")
    config = load_config(Path(preset) if preset else None, overrides)
    cells: list[dict[str, Any]] = []
    os.environ.pop("OMP_NUM_THREADS", None)
    with tempfile.TemporaryDirectory() as folder:
        # The default has a second process where the preset has two shards; what it is compared with has not.
        alone = config.model_copy(update={"actor": config.actor.model_copy(update={"processes": 1})})
        run, shipped = Run(alone, Path(folder) / "alone"), Run(config, Path(folder) / "shipped")
        default = shipped.threads
        numbers = {"1": 1, "2": 2, "default": default.number}
        runs = {"1": run, "2": run, "default": shipped}
        run.step(), shipped.step()  # warm
        for load in loads:
            times: dict[str, list[float]] = {threads: [] for threads in THREADS}
            with ExitStack() as stack:
                for _ in range(load):
                    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                    stack.callback(busy.wait)
                    stack.callback(busy.kill)
                time.sleep(0.2)
                for turn in range(turns):
                    for threads in THREADS if turn % 2 == 0 else THREADS[::-1]:
                        torch.set_num_threads(numbers[threads])
                        runs[threads].iteration = 0
                        times[threads].append(runs[threads].step()["timing_s/iteration"])
            seconds = {threads: statistics.median(found) for threads, found in times.items()}
            cells += [
                {"figure": f"{name}, {threads} thread(s), {load} busy", "preset": name, "busy": load,
                 "threads": threads, "number": numbers[threads], "seconds": seconds[threads],
                 "unit": "ratio to one thread",
                 "value": seconds[threads] / seconds["1"], "target": TARGET if threads == "default" else None}
                for threads in THREADS
            ]  # fmt: skip
        shipped.shards.close()
    return cells


def sizes() -> list[dict[str, Any]]:
    """Random Qwen2 models of growing size.

    Seconds with one thread, two threads' ratio, training and decoding.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    found: list[dict[str, Any]] = []
    for width, layers in SHAPES:
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(
            Qwen2Config(vocab_size=1280, hidden_size=width, intermediate_size=3 * width,
            num_hidden_layers=layers,
                        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
        )  # fmt: skip
        batch, one = torch.randint(0, 1280, (16, 128)), torch.randint(0, 1280, (128, 1))
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(TURNS):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                start = time.perf_counter()
                model(batch, labels=batch).loss.backward()
                middle = time.perf_counter()
                with torch.no_grad():
                    for _ in range(5):
                        model(one)
                times.setdefault(("update", threads), []).append(middle - start)
                times.setdefault(("decoding", threads), []).append((time.perf_counter() - middle) / 5)
        least = {key: min(values) for key, values in times.items()}
        found.append({"parameters": sum(p.numel() for p in model.parameters()),
                      "update, two threads to one": least["update", 2] / least["update", 1],
                      "decoding, two threads to one": least["decoding", 2] / least["decoding",
                      1]})  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--smoke", action="store_true", help="one small cell, written nowhere")
    parser.add_argument("--only", choices=PRESETS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smoke:
        json.dump(measure("demo", (0, 1), 1, 2), sys.stdout, indent=1)
        return
    if options.only:
        json.dump(measure(options.only, LOADS, TURNS, 4), sys.stdout)
        return
    figures: list[dict[str, Any]] = []
    grown: list[dict[str, Any]] = []
    if RESULT.is_file() and not options.fresh:
        before = json.loads(RESULT.read_text(encoding="utf-8"))
        figures, grown = before["figures"], before["sizes"]
    grown = grown or sizes()
    for name in PRESETS:
        if any(figure["preset"] == name for figure in figures):
            continue
        command = [sys.executable, __file__, "--only", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures += json.loads(done.stdout)
        write(figures, grown)
        for figure in figures[-len(LOADS) * len(THREADS) :]:
            print(f"{figure['value']:5.2f}  {figure['seconds']:6.2f} s  {figure['figure']}", flush=True)


def write(figures: list[dict[str, Any]], grown: list[dict[str, Any]]) -> None:
    import torch

    defaults = [f["value"] for f in figures if f["threads"] == "default"]
    document = {
        "figures": figures,
        "sizes": grown,
        "worst default": max(defaults),
        "target": TARGET,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "python benchmarks/busy.py",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
