"""The report of 40 runs of 150 iterations: seconds to make it, to open it in headless Chromium, and its size.

    python benchmarks/report.py

Writes benchmarks/results/report.json. The floor is the issue's target: open in under 3 s.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from bipace.report.write import make_report
from run_folders import write_study

METHODS, SEEDS, ITERATIONS, OPENINGS = 8, 5, 150, 5
SECONDS = 3.0


def opened(page):
    """Seconds from navigation to the page's own ready mark, every time in a fresh tab."""
    seconds = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(OPENINGS):
            view = browser.new_page(viewport={"width": 1280, "height": 900})
            begun = time.perf_counter()
            view.goto(page.as_uri())
            view.wait_for_selector("html[data-ready=yes]")
            seconds.append(time.perf_counter() - begun)
            view.close()
        browser.close()
    return seconds


def main():
    common = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, shared",
        "versions": {p: version(p) for p in ("numpy", "matplotlib")},
        "date": datetime.date.today().isoformat(),
        "command": "python benchmarks/report.py",
    }
    with tempfile.TemporaryDirectory() as place:
        methods = {f"method-{i}": 0.05 * i for i in range(METHODS)}
        study = write_study(Path(place) / "study", methods, range(SEEDS), iterations=ITERATIONS, every=10)
        begun = time.perf_counter()
        found = make_report([study], out=Path(place) / "out")
        made = time.perf_counter() - begun
        assert len(found["runs"]) == METHODS * SEEDS
        page = Path(place) / "out" / "report.html"
        seconds, size = opened(page), page.stat().st_size / 1e6
    rows = [
        figure(
            "open the report of 40 runs, median of five", "s", statistics.median(seconds), SECONDS, common
        ),
        figure("open the report of 40 runs, slowest of five", "s", max(seconds), SECONDS, common),
        figure("make the report of 40 runs, pictures included", "s", made, None, common),
        figure("the page", "MB", size, None, common),
    ]
    out = Path(__file__).parent / "results" / "report.json"
    out.write_text(json.dumps(rows, indent=1) + "\n")
    print(json.dumps({row["figure"]: round(row["value"], 2) for row in rows}))


def figure(name, unit, value, floor, common):
    ratio = None if floor is None else value / floor
    return {"figure": name, "unit": unit, "value": value, "floor": floor, "ratio": ratio, **common}


if __name__ == "__main__":
    main()
