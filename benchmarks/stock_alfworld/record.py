"""Record what the stock stack answers, as commands and digests, for the tests that run without it.

    PYTHONPATH=src python benchmarks/stock_alfworld/record.py     (in an environment with
    requirements-alfworld.lock)

Writes tests/golden/alfworld_generated.json and tests/golden/alfworld_official.json. A digest covers one turn:
observation, admissible commands in order, reward, won, done. No text of a game is stored.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from parity import next_command
from stock import ROOT, make_stock, official_games, remember_pure_parts

from bipace.envs.alfworld import FAMILIES, generate

GOLDEN = ROOT / "tests" / "golden"
STEPS = 50


def digest(turn: tuple[Any, ...]) -> str:
    """Twelve hexadecimal digits of one turn."""
    return hashlib.sha256(json.dumps(turn, ensure_ascii=False).encode()).hexdigest()[:12]


def transcript(path: Path, seed: str) -> list[dict[str, list[str]]]:
    """An expert and a random episode as the stock stack plays them."""
    rng = random.Random(seed)
    stock = make_stock()
    stock.load(str(path))
    episodes = []
    for script in (json.loads(path.read_text())["walkthrough"], None):
        state = stock.reset()
        commands: list[str] = []
        digests = [digest((state.feedback, list(state["admissible_commands"]), 0, bool(state["won"]), False))]
        for i in range(len(script) if script is not None else STEPS):
            command = (
                script[i] if script is not None else next_command(list(state["admissible_commands"]), rng)
            )
            state, reward, done = stock.step(command)
            commands.append(command)
            digests.append(
                digest(
                    (
                        state.feedback,
                        list(state["admissible_commands"]),
                        int(reward),
                        bool(state["won"]),
                        bool(done),
                    )
                )
            )
        episodes.append({"commands": commands, "digests": digests})
    return episodes


def main() -> None:
    remember_pure_parts()
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        made = []
        for i in range(24):
            game = {"family": FAMILIES[i % 6], "seed": i // 6, "held_out": i >= 12, "older": i >= 18}
            path = scratch / "game.tw-pddl"
            path.write_text(json.dumps(generate(**game)))
            made.append({**game, "episodes": transcript(path, f"generated/{i}")})
        _write("alfworld_generated.json", made)
        official = []
        games = official_games(scratch)
        for split in ("valid_seen", "valid_unseen"):
            for family in FAMILIES:
                paths = [path for path in games[split] if path.parts[-3].split("-")[0] == family]
                for path in random.Random(family).sample(paths, 3):
                    task = "/".join(path.parts[-4:-1])
                    official.append({"task": task, "episodes": transcript(path, task)})
        _write("alfworld_official.json", official)


def _write(name: str, games: list[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(game, separators=(",", ":")) for game in games)
    (GOLDEN / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
