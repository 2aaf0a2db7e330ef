"""WebShop on one core: steps, search times at two sizes, memory over 100,000 episodes of 1,000 sessions.

Writes benchmarks/results/webshop.json. `--peer` also times tantivy's queries (pip install tantivy), the
search engine that bm25s was chosen over.

    PYTHONPATH=src python benchmarks/webshop.py --peer
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bipace.envs.webshop import WebShopSuite, generated_suite
from bipace.envs.webshop.catalogue import search_text

RESULT = Path(__file__).parent / "results" / "webshop.json"
STEPS_FLOOR = 5_000.0  # steps per second the suite promises, besides search
QUERY_CEILING = {1_000: 1e-3, 100_000: 5e-3}  # seconds per query the suite promises
EPISODES, SESSIONS = 100_000, 1_000
REPEATS = 3


def resident_megabytes() -> float:
    """Memory of this process that is really in use, from /proc (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def scripts(suite: WebShopSuite, count: int) -> list[tuple[str, list[str]]]:
    """(task, actions): expert plans with sub-pages, paging and wrong actions between them, as agents do."""
    rng = random.Random(0)
    episodes = []
    for task in suite.splits["gen-train"][:count]:
        search, *rest = suite.expert(task)
        product = rest.index("click[buy now]")
        wander = ["click[next >]", "click[< prev]", "dance"]
        looks = ["click[description]", "click[< prev]", "click[features]", "click[< prev]"]
        place = next(index for index, action in enumerate(rest) if action.startswith("click[b0"))
        before, after = rest[: place + 1], rest[place + 1 : product]
        episodes.append(
            (task, [search, *rng.choice((wander, [])), *before, *rng.choice((looks, [])), *after, rest[-1]])
        )
    return episodes


def steps_per_second(suite: WebShopSuite) -> float:
    """Steps per second without resets; every search was made before, so that its result is remembered."""
    episodes = scripts(suite, 1000)
    total = sum(len(actions) for _, actions in episodes)
    rates = []
    for _ in range(REPEATS):
        sessions = []
        for task, actions in episodes:
            environment = suite.make()
            environment.reset(task)
            suite.shop.search(actions[0][len("search[") : -1])
            sessions.append((environment, actions))
        start = time.perf_counter()
        for environment, actions in sessions:
            for action in actions:
                environment.step(action)
        rates.append(total / (time.perf_counter() - start))
    return max(rates)


def query_seconds(queries: list[str], search: Callable[[str], Any]) -> float:
    """Median seconds of a query seen for the first time."""
    search("warm up")
    times = []
    for query in queries:
        start = time.perf_counter()
        search(query)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def tantivy_search(texts: list[str]) -> Callable[[str], Any]:
    tantivy = importlib.import_module("tantivy")
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True)
    builder.add_text_field("text", tokenizer_name="en_stem")
    index = tantivy.Index(builder.build())
    writer = index.writer(num_threads=1)
    for number, text in enumerate(texts):
        writer.add_document(tantivy.Document(id=number, text=[text]))
    writer.commit()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> list[int]:
        plain = "".join(letter if letter.isalnum() else " " for letter in query)
        found = searcher.search(index.parse_query(plain, ["text"]), 50).hits
        return [searcher.doc(address)["id"][0] for _, address in found]

    return search


def memory_over_episodes(suite: WebShopSuite) -> tuple[float, float]:
    """Megabytes after the first tenth and after all episodes, played in turn by sessions that stay open."""
    episodes = scripts(suite, SESSIONS)
    sessions = [suite.make() for _ in range(SESSIONS)]
    marks = []
    for number in range(EPISODES):
        task, actions = episodes[(number * 7) % len(episodes)]
        session = sessions[number % SESSIONS]
        session.reset(task)
        for action in actions:
            session.step(action)
        if number + 1 in (EPISODES // 10, EPISODES):
            gc.collect()
            marks.append(resident_megabytes())
    return marks[0], marks[1]


def search_figures(suite: WebShopSuite, peer: bool) -> list[dict[str, Any]]:
    products = len(suite.shop.products)
    queries = [goal.instruction.lower() for goal in suite.goals[:400]]
    index = suite.shop.index
    seconds = query_seconds(queries, index.top)
    ceiling = QUERY_CEILING[products]
    figures = [
        entry(f"search, {products:,} products: median of one query", "seconds", seconds, "ceiling", ceiling),
        entry(f"search, {products:,} products: arrays of the index", "megabytes", index.nbytes / 1e6),
    ]
    if peer:
        other = query_seconds(
            queries, tantivy_search([search_text(product) for product in suite.shop.products])
        )
        figures[0] |= {
            "peer": f"tantivy {version('tantivy')}",
            "peer_value": other,
            "peer_ratio": other / seconds,
        }
    return figures


def entry(figure: str, unit: str, value: float, kind: str = "", bound: float = 0.0) -> dict[str, Any]:
    known: dict[str, Any] = {"figure": figure, "unit": unit, "value": value}
    if kind:
        known |= {kind: bound, "ratio": round(value / bound if kind == "floor" else bound / value, 2)}
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="store_true", help="time tantivy too")
    peer = parser.parse_args().peer
    small = generated_suite(1_000)
    figures = search_figures(small, peer)
    figures.append(entry("steps, besides search", "steps/s", steps_per_second(small), "floor", STEPS_FLOOR))
    early, late = memory_over_episodes(small)
    figures += [
        entry(f"memory, {SESSIONS:,} sessions, after {EPISODES // 10:,} episodes", "megabytes", early),
        entry(f"memory, {SESSIONS:,} sessions, after {EPISODES:,} episodes", "megabytes", late),
    ]
    # Files and index are made by another process: what it frees would otherwise hide what the shop takes
    # here.
    prepare = "from bipace.envs.webshop import generated_suite; generated_suite(100_000)"
    subprocess.run([sys.executable, "-c", prepare], check=True)
    before = resident_megabytes()
    start = time.perf_counter()
    large = generated_suite(100_000)
    opened = time.perf_counter() - start
    figures.append(entry("opening the shop of 100,000 products, files and index there", "seconds", opened))
    figures.append(
        entry("memory of the shop of 100,000 products", "megabytes", resident_megabytes() - before)
    )
    figures += search_figures(large, peer)
    document = {
        "figures": figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "versions": {name: version(name) for name in ("bm25s", "PyStemmer", "rapidfuzz", "numpy")}
        | {"python": platform.python_version()},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "PYTHONPATH=src python benchmarks/webshop.py" + (" --peer" if peer else ""),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    json.dump(figures, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
