"""Differential test: bipace's ALFWorld engine against the stock stack, byte for byte.

    make parity-alfworld          (or, in an environment with requirements-alfworld.lock:)
    PYTHONPATH=src python benchmarks/stock_alfworld/parity.py

Plays official games of all families and splits and generated games (new and older text form) on both sides:
the expert's walkthrough, then random commands with some that do not apply. After every step the observation,
the whole admissible list in order, reward, won and done must be equal. Writes
benchmarks/results/alfworld_parity.json; the exit status is 1 when anything differed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stock import ROOT, machine, make_stock, official_games, remember_pure_parts

from bipace.envs.alfworld import FAMILIES, AlfworldGame, generate

SENSELESS = (
    "go to nowhere",
    "take apple 99 from fridge 1",
    "",
    "LOOK",
    "  look ",
    "go to  desk 1",
    "help",
    "inventory",
)


def sample(games: dict[str, list[Path]], count: int, seed: int) -> list[Path]:
    """About `count` games, the same number from every family and split as far as there are that many."""
    rng = random.Random(seed)
    cells: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for split, paths in games.items():
        for path in paths:
            cells[split, path.parts[-3].split("-")[0]].append(path)
    for paths in cells.values():
        rng.shuffle(paths)
    chosen: list[Path] = []
    rank = 0
    while len(chosen) < count and any(rank < len(paths) for paths in cells.values()):
        chosen += [paths[rank] for _, paths in sorted(cells.items()) if rank < len(paths)]
        rank += 1
    return chosen


def generated(count: int, older: bool, scratch: Path) -> list[Path]:
    """`count` generated games, written as files."""
    paths = []
    for i in range(count):
        path = scratch / f"{'older' if older else 'gen'}-{FAMILIES[i % 6]}-{i // 6}.tw-pddl"
        path.write_text(json.dumps(generate(FAMILIES[i % 6], i // 6, held_out=i % 2 == 1, older=older)))
        paths.append(path)
    return paths


def next_command(admissible: list[str], rng: random.Random) -> str:
    """A random command; every verb gets its turn, and one in 25 makes no sense."""
    draw = rng.random()
    if draw < 0.04:
        return rng.choice(SENSELESS)
    if draw < 0.5:
        return rng.choice(admissible)
    verb = rng.choice(sorted({command.split()[0] for command in admissible}))
    return rng.choice([command for command in admissible if command.split()[0] == verb])


def episodes(
    stock: Any, ours: AlfworldGame, walkthrough: list[str], steps: int, rng: random.Random
) -> Iterator[tuple]:
    """Pairs (stock's turn, our turn) of an expert and a random episode."""
    for script in (walkthrough, None):
        state = stock.reset()
        observation, info = ours.reset()
        theirs = (state.feedback, list(state["admissible_commands"]), 0, bool(state["won"]), False)
        yield "reset", theirs, (observation, info["admissible_commands"], 0, info["won"], False)
        for i in range(len(script) if script is not None else steps):
            command = script[i] if script is not None else next_command(theirs[1], rng)
            state, reward, done = stock.step(command)
            theirs = (
                state.feedback,
                list(state["admissible_commands"]),
                reward,
                bool(state["won"]),
                bool(done),
            )
            observation, our_reward, our_done, _, info = ours.step(command)
            yield (
                command,
                theirs,
                (observation, info["admissible_commands"], our_reward, info["won"], our_done),
            )


def compare(path: Path, steps: int, seed: int) -> tuple[int, list[str]]:
    """Turns compared and differences found in one game."""
    stock = make_stock()
    stock.load(str(path))
    walkthrough = json.loads(path.read_text())["walkthrough"]
    rng = random.Random(f"{seed}/{path.parts[-3:]}")
    turns, differences = 0, []
    for command, theirs, ours in episodes(stock, AlfworldGame(path), walkthrough, steps, rng):
        turns += 1
        if theirs != ours:
            differences.append(f"{path}: {command!r}: stock {theirs!r}, bipace {ours!r}")
    return turns, differences


# long: a script read from top to bottom
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=324, help="official games (default: %(default)s)")
    parser.add_argument("--generated", type=int, default=66, help="generated games (default: %(default)s)")
    parser.add_argument("--older", type=int, default=12, help="generated games in the older form")
    parser.add_argument("--steps", type=int, default=60, help="random steps a game (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exact", action="store_true", help="the stock stack as it is, twenty times slower")
    # Taken now: the stock stack's translator overwrites sys.argv.
    given = sys.argv[1:]
    command = (
        "make parity-alfworld"
        if not given
        else " ".join(["python benchmarks/stock_alfworld/parity.py", *given])
    )
    options = parser.parse_args()
    if not options.exact:
        remember_pure_parts()
    counts: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    differences: list[str] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        official = sample(official_games(scratch), options.games, options.seed) if options.games else []
        made = generated(options.generated, False, scratch) + generated(options.older, True, scratch)
        for path in (*official, *made):
            kind = "generated" if path.suffix == ".tw-pddl" and path.parent == scratch else path.parts[-4]
            cells[
                f"{kind}/{path.parts[-3].split('-')[0]}"
                if kind != "generated"
                else f"generated/{path.stem.split('-')[1]}"
            ] += 1
            turns, found = compare(path, options.steps, options.seed)
            counts["generated" if kind == "generated" else "official"] += 1
            counts["turns"] += turns
            differences += found
    for line in differences[:5]:
        print(line)
    print(
        f"games {counts['official']} official + {counts['generated']} generated, turns {counts['turns']}, ",
        end="",
    )
    print(f"differences {len(differences)}, {time.monotonic() - begin:.0f} s")
    result = {
        "figure": "turns that differ from the stock stack (observation, admissible list, reward, won, done)",
        "unit": "turns",
        "value": len(differences),
        "peer": f"alfworld {version('alfworld')} + textworld {version('textworld')}",
        "floor": 0,
        "official_games": counts["official"],
        "generated_games": counts["generated"],
        "turns": counts["turns"],
        "games_by_split_and_family": dict(sorted(cells.items())),
        "random_steps_a_game": options.steps,
        "stock_unmodified": options.exact,
        "machine": machine(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
    }
    # A partial run must not take the place of the full one.
    name = "alfworld_parity_partial.json" if given else "alfworld_parity.json"
    if options.exact:
        name = "alfworld_parity_exact.json"
    out = ROOT / "benchmarks" / "results" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
