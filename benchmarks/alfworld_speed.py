"""Speed of bipace's ALFWorld engine beside the stock stack, on one core, in one run.

    PYTHONPATH=src python benchmarks/alfworld_speed.py     (in an environment with requirements-alfworld.lock)

Both sides play the same official games with the same random admissible commands; a step includes the
admissible list. Load is the compilation of one file, cold steps are those of a game's first episode. The
stock stack is run as it is. Writes benchmarks/results/alfworld_speed.json. Where it is not installed only
this side is measured, into alfworld_speed_alone.json; without the official games this side plays generated
ones.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stock_alfworld.stock import ROOT, machine, make_stock, official_games

from bipace.envs.alfworld import FAMILIES, AlfworldGame, generate, generate_game, plan

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of `call`, and the seconds it took by each clock."""
    begin = {name: clock() for name, clock in CLOCKS.items()}
    result = call()
    return result, {name: clock() - begin[name] for name, clock in CLOCKS.items()}


def games_here(scratch: Path) -> dict[str, list[Path]]:
    """The official games, or where they are absent ten generated games of each family."""
    try:
        return official_games(scratch)
    except FileNotFoundError:
        paths = []
        for family in FAMILIES:
            for seed in range(10):
                paths.append(scratch / family / str(seed) / "game.tw-pddl")
                paths[-1].parent.mkdir(parents=True)
                paths[-1].write_text(json.dumps(generate(family, seed)), encoding="utf-8")
        return {"generated": paths}


def choose(games: dict[str, list[Path]], count: int) -> list[Path]:
    """`count` games, families in turn."""
    rng = random.Random(0)
    paths = [path for split in games.values() for path in split]
    by_family = {f: [p for p in paths if p.parts[-3].split("-")[0] == f] for f in FAMILIES}
    return [rng.choice(by_family[FAMILIES[i % 6]]) for i in range(count)]


def play_ours(game: AlfworldGame, steps: int, rng: random.Random) -> dict[str, float]:
    """Seconds of one episode's steps, the choice of commands left out."""
    _, info = game.reset()
    total = dict.fromkeys(CLOCKS, 0.0)
    for _ in range(steps):
        command = rng.choice(info["admissible_commands"])
        (_, _, _, _, info), seconds = timed(lambda command=command: game.step(command))
        total = {name: total[name] + seconds[name] for name in total}
    return total


def ours(paths: list[Path], episodes: int, steps: int) -> dict[str, Any]:
    """Load, reset, step, copy and plan on this side."""
    AlfworldGame(paths[0])
    loads, resets, copies, plans = [], [], [], []
    first, later = dict.fromkeys(CLOCKS, 0.0), dict.fromkeys(CLOCKS, 0.0)
    for path in paths:
        game, seconds = timed(lambda path=path: AlfworldGame(path))
        loads.append(seconds)
        for episode in range(episodes):
            resets.append(timed(game.reset)[1])
            total = play_ours(game, steps, random.Random(episode))
            spent = later if episode else first
            for name in CLOCKS:
                spent[name] += total[name]
        copies.append(timed(lambda game=game: [game.copy() for _ in range(100)])[1])
        plans.append(timed(lambda game=game: plan(game.game))[1])
    count = len(paths) * steps
    made = [timed(lambda i=i: generate_game(FAMILIES[i % 6], i // 6))[1] for i in range(30)]
    return {
        "games": len(paths),
        "load_ms": spread(loads, 1e3),
        "reset_ms": spread(resets, 1e3),
        "copy_us": spread(copies, 1e4),
        "plan_ms": spread(plans, 1e3),
        "generate_ms": spread(made, 1e3),
        "steps_per_second": {name: count * (episodes - 1) / later[name] for name in CLOCKS},
        "first_episode_steps_per_second": {name: count / first[name] for name in CLOCKS},
        "live_environment_mb": memory(paths[:12]),
    }


def spread(samples: list[dict[str, float]], scale: float) -> dict[str, float]:
    """Median by both clocks and the 95th percentile of wall time."""
    wall = sorted(sample["wall"] for sample in samples)
    return {
        "median_wall": scale * statistics.median(wall),
        "p95_wall": scale * wall[int(0.95 * (len(wall) - 1))],
        "median_cpu": scale * statistics.median(sample["cpu"] for sample in samples),
    }


def memory(paths: list[Path]) -> dict[str, float]:
    """Python memory of a live environment after an episode: with its own game, and sharing a game with
    others.
    """
    gc.collect()
    tracemalloc.start()
    games = [AlfworldGame(path) for path in paths]
    for game in games:
        play_ours(game, 50, random.Random(0))
    gc.collect()
    alone = tracemalloc.get_traced_memory()[0]
    copies = [game.copy() for game in games for _ in range(10)]
    shared = tracemalloc.get_traced_memory()[0] - alone
    tracemalloc.stop()
    return {"own_game": alone / len(games) / 1e6, "shared_game": shared / len(copies) / 1e6}


def stock(paths: list[Path], steps: int) -> dict[str, Any]:
    """Load, reset and step of the stock stack."""
    loads, resets = [], []
    total = dict.fromkeys(CLOCKS, 0.0)
    for path in paths:
        env = make_stock()
        loads.append(timed(lambda env=env, path=path: env.load(str(path)))[1])
        state, seconds = timed(env.reset)
        resets.append(seconds)
        rng = random.Random(0)
        for _ in range(steps):
            command = rng.choice(list(state["admissible_commands"]))
            (state, _, _), seconds = timed(lambda env=env, command=command: env.step(command))
            total = {name: total[name] + seconds[name] for name in total}
    return {
        "games": len(paths),
        "load_ms": spread(loads, 1e3),
        "reset_ms": spread(resets, 1e3),
        "steps_per_second": {name: len(paths) * steps / total[name] for name in CLOCKS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=60)
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--stock-games", type=int, default=6)
    # Taken now: the stock stack's translator overwrites sys.argv.
    command = " ".join(["python benchmarks/alfworld_speed.py", *sys.argv[1:]])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        games = games_here(Path(folder))
        mine = ours(choose(games, options.games), options.episodes, options.steps)
        installed = importlib.util.find_spec("textworld") is not None
        theirs = stock(choose(games, options.stock_games), options.steps) if installed else None
    value = mine["steps_per_second"]["wall"]
    result = {
        "figure": "ALFWorld steps per second with admissible commands, one core",
        "unit": "steps/s",
        "value": value,
        "peer": theirs and theirs["steps_per_second"]["wall"],
        "peer_name": "alfworld 0.4.2 + textworld 1.7.0, unmodified",
        "floor": 10_000,
        "ratio": theirs and value / theirs["steps_per_second"]["wall"],
        "games": sorted(games),
        "bipace": mine,
        "stock": theirs,
        "machine": {
            **machine(),
            "load_average_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        },
        "versions": {name: version(name) for name in ("alfworld", "textworld")} if installed else {},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
    }
    out = ROOT / "benchmarks" / "results" / ("alfworld_speed.json" if theirs else "alfworld_speed_alone.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({key: result[key] for key in ("value", "peer", "ratio", "bipace", "stock")}, indent=1))


if __name__ == "__main__":
    main()
