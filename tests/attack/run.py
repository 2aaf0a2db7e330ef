"""Attack the command line: thousands of inputs that make no sense, each with the outcome it must have.

    python tests/attack/run.py                    # all of them
    python tests/attack/run.py --only folders     # one kind
    python tests/attack/run.py --every 20         # each twentieth, for a test

Prints `tried N, right N, wrong N` and every wrong one; the exit status is 1 where there is one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", COLUMNS="200")

import files
import folders
import machine
import matplotlib.pyplot  # noqa: F401  (what the commands import late is imported once, here)
import settings
import torch
import worlds
from harness import Case, run

KINDS = {"settings": settings, "worlds": worlds, "folders": folders, "files": files, "machine": machine}


def chosen(only: str | None, every: int) -> Iterator[Case]:
    for name, kind in KINDS.items():
        if only in (None, name):
            yield from (case for number, case in enumerate(kind.cases()) if number % every == 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=KINDS, help="one kind")
    parser.add_argument("--every", type=int, default=1, help="each so-manieth case")
    parser.add_argument("--match", default="", help="cases whose name holds this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tried, wrong, told = 0, 0, time.monotonic()
    for case in chosen(options.only, options.every):
        if options.match not in case.name:
            continue
        tried += 1
        if problem := run(case):
            wrong += 1
            print(f"WRONG {case.name!r}: {problem}", flush=True)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"  {tried} tried, {wrong} wrong; at {case.name[:60]!r}", flush=True)
    print(f"tried {tried}, right {tried - wrong}, wrong {wrong}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
