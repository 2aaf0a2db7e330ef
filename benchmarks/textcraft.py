"""Speed of TextCraft on one core: resets and steps. Writes benchmarks/results/textcraft.json.

Steps are measured twice: on the commands agents send (plans with wrong commands between them, mostly seen
before) and on commands never seen before, where each must be compiled: the same plans, getting and naming
ever other counts.

    PYTHONPATH=src python benchmarks/textcraft.py
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import random
import sys
import time
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from bipace.envs.textcraft import suite

RESULT = Path(__file__).parent / "results" / "textcraft.json"
STEPS_FLOOR = 200_000.0  # steps per second the suite promises
RESET_CEILING = 1e-3  # seconds per reset the suite promises
REPEATS = 5
PASSES = 20  # of steps: each takes some hundredths of a second, and the machine may be shared


def reset_seconds() -> float:
    """Mean seconds per reset over tasks not seen before, best of the repeats."""
    environment = suite().make()
    tasks = suite().splits["train"]
    environment.reset(tasks[0])
    times = []
    for repeat in range(REPEATS):
        chosen = tasks[1 + repeat * 2000 : 1 + (repeat + 1) * 2000]
        start = time.perf_counter()
        for task in chosen:
            environment.reset(task)
        times.append((time.perf_counter() - start) / len(chosen))
    return min(times)


NUMBERS = itertools.count(1000)  # more than any plan gets of anything


def never_seen(command: str) -> str:
    """The command with a number that no other has: more to get, another output (which is not checked), or
    nonsense.
    """
    verb, _, rest = command.partition(" ")
    counted = verb in ("get", "craft") and rest[:1].isdigit()
    return f"{verb} {next(NUMBERS)} {rest.partition(' ')[2]}" if counted else f"{command} {next(NUMBERS)}"


def scripts(fresh: bool) -> list[tuple[str, list[str]]]:
    """(task, commands) of episodes; about half of the commands are invalid.

    Fresh commands are all different.
    """
    generator = random.Random(0)
    wrong = ["dance", "get 1 planks", "craft 1 stick using bamboo", "craft 1 torch using 1 coal", "inventory"]
    episodes = []
    for task in suite().splits["train-panel"] * (1 if fresh else 20):
        commands = []
        for command in suite().expert(task):
            commands += [generator.choice(wrong), command]
        if fresh:
            commands = [never_seen(command) for command in commands]
        episodes.append((task, commands))
    return episodes


def steps_per_second(fresh: bool) -> float:
    """Steps per second without the resets, best of the passes."""
    rates = []
    for _ in range(PASSES):
        episodes = scripts(fresh)
        total = sum(len(commands) for _, commands in episodes)
        environments = []
        for task, commands in episodes:
            environment = suite().make()
            environment.reset(task)
            environments.append((environment, commands))
        start = time.perf_counter()
        for environment, commands in environments:
            step = environment.step
            for command in commands:
                step(command)
        rates.append(total / (time.perf_counter() - start))
    return max(rates)


def entry(figure: str, unit: str, value: float, floor: float, ratio: float) -> dict[str, object]:
    return {"figure": figure, "unit": unit, "value": value, "floor": floor, "ratio": round(ratio, 2)}


def main() -> None:
    reset = reset_seconds()
    usual, fresh = steps_per_second(fresh=False), steps_per_second(fresh=True)
    figures = [
        entry("reset of a task not seen before", "seconds", reset, RESET_CEILING, RESET_CEILING / reset),
        entry("steps, agent-like commands", "steps/s", usual, STEPS_FLOOR, usual / STEPS_FLOOR),
        entry(
            "steps, worst case: no command seen before", "steps/s", fresh, STEPS_FLOOR, fresh / STEPS_FLOOR
        ),
    ]
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "versions": {"python": platform.python_version(), "textcraft": version("textcraft")},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "PYTHONPATH=src python benchmarks/textcraft.py",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    json.dump(figures, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
