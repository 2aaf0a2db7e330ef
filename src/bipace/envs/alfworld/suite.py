"""ALFWorld's tasks by id: games made here, and the official ones where they are present.

Ids: `gen/<family>/<seed>` (any seed; rooms of the training scenes), `gen-small/<family>/<seed>` (the smaller
ones of those rooms), `gen-panel/<family>/<number>` (rooms kept out of training) and `<split>/<task>/<trial>`
for official games. The panels of generated games are fixed for ever; scores on generated games are not
ALFWorld scores.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from zlib import crc32

from bipace.envs.alfworld.engine import Game, load_game
from bipace.envs.alfworld.environment import AlfworldEnvironment
from bipace.envs.alfworld.generator import generate_game
from bipace.envs.alfworld.planner import FAMILIES, plan
from bipace.envs.alfworld.search import search
from bipace.envs.base import Environment, Offers, UnknownTask

__all__ = ["HOW_TO_GET_GAMES", "OFFICIAL_SPLITS", "AlfworldSuite", "official_folder", "suite"]

OFFICIAL_SPLITS = ("train", "valid_seen", "valid_unseen")
OFFICIAL_GAMES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
HOW_TO_GET_GAMES = (
    "the official games: pip install alfworld && alfworld-download, then set ALFWORLD_DATA to the folder "
    "that holds json_2.1.1 (default ~/.cache/alfworld)"
)
_SENTENCE = "Your task is to: "
_GENERATED = {"gen": {}, "gen-small": {"small": True}, "gen-panel": {"held_out": True}}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_TRAIN_SEEDS = 1000
_PANEL, _DEMO_PANEL, _STUDY_PANEL = 128, 256, 512
_CACHED_GAMES = 128


def official_folder(root: str | Path | None = None) -> Path | None:
    """The folder that holds `train`, `valid_seen` and `valid_unseen`, or None when there is none.

    Looked for in `root` or else $ALFWORLD_DATA or else ~/.cache/alfworld: the folder itself, or json_2.1.1
    below it.
    """
    base = Path(root or os.environ.get("ALFWORLD_DATA") or Path.home() / ".cache" / "alfworld").expanduser()
    for folder in (base, base / "json_2.1.1"):
        if any((folder / split).is_dir() for split in OFFICIAL_SPLITS):
            return folder
    return None


def task_sentence(first: str) -> str:
    """The sentence that states the task, from a first observation; the whole of it where there is none."""
    return first.partition(_SENTENCE)[2].strip() or first


def _is_played(path: Path) -> bool:
    """One of the six families, and not among the layouts that ALFWorld's own loader passes over."""
    task = path.parts[-3]
    return task.split("-")[0] in FAMILIES and "movable" not in task and "Sliced" not in task


def _is_solvable(path: Path) -> bool:
    """As the file says: ALFWorld's own loader plays no others.

    Read only where a folder holds more than are played.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("solvable") is True
    except (ValueError, AttributeError):
        return False


class AlfworldSuite:
    """The ALFWorld family of tasks; see `bipace.envs.base.Suite`.

    Args:
        root: folder of the official games; default as for `official_folder`. Without one the official splits
            are absent and everything else works.
    """

    name = "alfworld"
    max_steps = 50
    instructions = (
        "You are an expert agent operating in the ALFRED Embodied Environment: a household in text. "
        "You are given a task and, at each step, an observation and the admissible actions. "
        "First reason step by step about the current situation inside <think> </think> tags. "
        "Then choose one admissible action and give it inside <action> </action> tags."
    )

    def __init__(self, root: str | Path | None = None) -> None:
        self.folder = official_folder(root)
        self._game = lru_cache(maxsize=_CACHED_GAMES)(self._load)

    @cached_property
    def offers(self) -> Offers:
        """Official games that are absent or incomplete, panels, demonstrations, the sentence of a task."""
        return Offers(
            absent=""
            if self.folder
            else f"; to play {HOW_TO_GET_GAMES}, or take generated ones with env.split=gen-train",
            incomplete=self._incomplete(),
            panels={"train": ("valid_seen", "valid_unseen")},
            demonstration=self.demonstration,
            task_text=task_sentence,
        )

    def _incomplete(self) -> dict[str, str]:
        if self.folder is None:
            return {}
        here = {split: len(self.splits.get(split, ())) for split in OFFICIAL_SPLITS}
        return {
            split: f"{self.folder / split} holds {here[split]:,} of its {whole:,} games; get "
            f"{HOW_TO_GET_GAMES}"
            for split, whole in OFFICIAL_GAMES.items()
            if here[split] < whole
        }

    @cached_property
    def splits(self) -> Mapping[str, Sequence[str]]:
        """The generated splits and the official ones that are present, in an order no file system can change.

        gen-train, gen-small: 6,000 games each. gen-panel: rooms that neither has. gen-small-panel: other
        games in the rooms of gen-small. gen-256-panel and gen-small-512-panel begin with these two and go on:
        128 games have a standard error of four points, too much to tell methods apart.
        """
        splits: dict[str, Sequence[str]] = {
            "gen-train": tuple(f"gen/{family}/{seed}" for seed in range(_TRAIN_SEEDS) for family in FAMILIES),
            "gen-panel": _held_out_rooms(_PANEL),
            "gen-small": tuple(
                f"gen-small/{family}/{seed}" for seed in range(_TRAIN_SEEDS) for family in FAMILIES
            ),
            "gen-small-panel": _small_rooms(_PANEL),
            "gen-256-panel": _held_out_rooms(_DEMO_PANEL),
            "gen-small-512-panel": _small_rooms(_STUDY_PANEL),
        }
        for split in OFFICIAL_SPLITS if self.folder else ():
            games = sorted((self.folder / split).glob("*/*/game.tw-pddl")) if self.folder else []
            games = [path for path in games if _is_played(path)]
            if len(games) > OFFICIAL_GAMES[split]:
                games = [path for path in games if _is_solvable(path)]
            if games:
                splits[split] = tuple(sorted(f"{split}/{path.parts[-3]}/{path.parts[-2]}" for path in games))
        return splits

    def make(self) -> Environment:
        """A fresh environment."""
        return AlfworldEnvironment(self._game)

    def family(self, task: str) -> str:
        """One of the six families, read from the id.

        Raises UnknownTask for an id without one in its place.
        """
        parts = task.split("/")
        family = parts[1].split("-")[0] if len(parts) == 3 else ""
        if family not in FAMILIES:
            raise self._unknown(task)
        return family

    def expert(self, task: str) -> tuple[str, ...]:
        """A shortest plan.

        Raises UnknownTask, and ValueError when the game has no plan of the expert's form.
        """
        found = plan(self._game(task))
        if found is None:
            raise ValueError(f"the planner finds no solution of {task!r}")
        return found

    def demonstration(self, task: str) -> tuple[str, ...]:
        """Commands that solve the task by looking for what it needs (`search`).

        What the shipped actor imitates.

        Raises UnknownTask, and ValueError when looking everywhere leads to no plan.
        """
        found = search(self._game(task), seed=crc32(task.encode()))
        if found is None:
            raise ValueError(f"the search finds no solution of {task!r}")
        return found

    def game(self, task: str) -> Game:
        """The compiled game of a task; the latest ones are kept. Raises UnknownTask or GameFileError."""
        return self._game(task)

    def _load(self, task: str) -> Game:
        split, _, rest = task.partition("/")
        family, _, number = rest.partition("/")
        if split in _GENERATED:
            if family not in FAMILIES or not _NUMBER.fullmatch(number):
                raise self._unknown(task)
            return generate_game(family, int(number), **_GENERATED[split])[1]
        if split not in OFFICIAL_SPLITS or self.folder is None or not self._is_plain(rest):
            raise self._unknown(task)
        path = self.folder / split / rest / "game.tw-pddl"
        if not path.is_file():
            raise self._unknown(task)
        return load_game(path)

    @staticmethod
    def _is_plain(rest: str) -> bool:
        """Exactly `<task>/<trial>`, so that an id cannot name a file elsewhere."""
        parts = rest.split("/")
        return len(parts) == 2 and all(part not in ("", ".", "..") and "\\" not in part for part in parts)

    def _unknown(self, task: str) -> UnknownTask:
        example = f"an id reads like 'gen/{FAMILIES[0]}/17'"
        return UnknownTask(f"unknown alfworld task {task!r}; {example}{self.offers.absent}")


def _held_out_rooms(count: int) -> tuple[str, ...]:
    return tuple(f"gen-panel/{FAMILIES[i % 6]}/{i // 6}" for i in range(count))


def _small_rooms(count: int) -> tuple[str, ...]:
    return tuple(f"gen-small/{FAMILIES[i % 6]}/{_TRAIN_SEEDS + i // 6}" for i in range(count))


@cache
def suite() -> AlfworldSuite:
    """The suite with the official games that are present when it is first asked for."""
    return AlfworldSuite()
