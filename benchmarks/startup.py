"""How soon the command line answers, as a ratio to `python -c pass` in the same minute.

    python benchmarks/startup.py

Every command is run in turn with the bare interpreter, nine times; the medians' ratio is reported, for the
machine may be doing other things. A command with a slip in it counts like any other. Writes
benchmarks/results/startup.json.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "startup.json"
REPEATS = 9
COMMANDS = {
    "import bipace": ["-c", "import bipace"],
    "bipace --help": ["-m", "bipace", "--help"],
    "bipace recipes": ["-m", "bipace", "recipes"],
    "bipace config": ["-m", "bipace", "config"],
    "bipace models": ["-m", "bipace", "models"],
    "bipace trian (no such command)": ["-m", "bipace", "trian"],
    "bipace train run.sead=1 (a slip)": ["-m", "bipace", "train", "run.sead=1"],
    "bipace eval nowhere (a slip)": ["-m", "bipace", "eval", "nowhere"],
    "bipace analyze nowhere.jsonl (a slip)": ["-m", "bipace", "analyze", "nowhere.jsonl"],
}
TARGET = 1.0  # seconds, warm


def seconds(arguments: list[str], folder: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    figures: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in COMMANDS.items():
            seconds(arguments, folder)  # warm: the files are in memory
            pairs = [(seconds(["-c", "pass"], folder), seconds(arguments, folder)) for _ in range(REPEATS)]
            bare, taken = (statistics.median(column) for column in zip(*pairs, strict=True))
            figures.append(
                {"figure": name, "unit": "ratio to python -c pass", "value": taken / bare, "seconds": taken,
                 "bare_seconds": bare, "target_seconds": TARGET}
            )  # fmt: skip
            print(f"{taken / bare:6.1f} x  {taken:.2f} s  {name}", flush=True)
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version()},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "python benchmarks/startup.py",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
