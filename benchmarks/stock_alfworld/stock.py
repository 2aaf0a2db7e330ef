"""The stock ALFWorld stack (alfworld 0.4.2 + textworld 1.7.0), for the parity and speed benchmarks only.

Needs the packages of requirements-alfworld.lock; nothing in `src` imports this.
"""

from __future__ import annotations

import copy
import os
import tarfile
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SPLITS = ("train", "valid_seen", "valid_unseen")


def make_stock() -> Any:
    """A stock environment with admissible commands and `won`, names not shuffled."""
    # Importing alfworld.info creates a cache folder in the home directory unless this is set.
    os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.core import EnvInfos
    from textworld.envs.pddl import PddlEnv

    infos = EnvInfos(won=True, admissible_commands=True, extras=["gamefile", "walkthrough"])
    return AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))


def remember_pure_parts() -> None:
    """Make the stock stack about twenty times faster without touching what it does: remember its pure
    functions.

    Parsed grammar strings and queries, and the translation of a problem, depend on their text alone; names,
    variables and placeholders are never changed and need no deep copy. The second translation of each problem
    serves only replanning, which is not used here. `--exact` in the parity benchmark runs without any of
    this.
    """
    import fast_downward
    import textworld.envs.pddl.textgen as textgen
    import textworld.logic as logic
    from textworld.generator.game import EntityInfo

    parse = textgen._parse_and_convert
    parsed: dict[tuple[str, str | None], Any] = {}

    def parse_once(text: str, rule_name: str | None = None, trace: bool = False) -> Any:
        del trace
        if (text, rule_name) not in parsed:
            parsed[text, rule_name] = parse(text, rule_name=rule_name)
        return copy.deepcopy(parsed[text, rule_name])

    translate = lru_cache(maxsize=1)(fast_downward.pddl2sas)
    textgen._parse_and_convert = parse_once
    logic.Rule.parse_conjunctive_query = staticmethod(
        lru_cache(maxsize=None)(logic.Rule.parse_conjunctive_query)
    )
    fast_downward.pddl2sas = lambda domain, problem, **_options: translate(domain, problem)
    for kind in (EntityInfo, logic.Variable, logic.Placeholder):
        kind.__deepcopy__ = lambda self, _memo: self


def official_games(scratch: Path) -> dict[str, list[Path]]:
    """Paths of the official games by split: from ALFWORLD_DATA, or from the archives in BIPACE_SAMPLES.

    Raises FileNotFoundError where there are none.
    """
    from bipace.envs.alfworld.suite import official_folder

    folder = official_folder()
    if folder is None:
        samples = os.environ.get("BIPACE_SAMPLES")
        archives = sorted((Path(samples) / "alfworld").glob("*.tar.xz")) if samples else []
        if not archives:
            raise FileNotFoundError(
                "no official games: set ALFWORLD_DATA (alfworld-download), or BIPACE_SAMPLES to a folder "
                "with alfworld/alfworld_SPLIT.tar.xz"
            )
        for archive in archives:
            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter="data")
        folder = scratch / "json_2.1.1"
    return {split: sorted((folder / split).glob("*/*/game.tw-pddl")) for split in SPLITS}


def machine() -> dict[str, Any]:
    """What a result was measured on."""
    import platform

    model = next(
        (x.split(":")[1].strip() for x in _cpu_lines() if x.startswith("model name")), platform.processor()
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
