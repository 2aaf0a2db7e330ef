"""A study: methods x environments x seeds over one base configuration, planned before anything runs.

A study file holds `seeds`, an optional `base` (preset or TOML file), a table `config` of what all runs share,
one table `methods.NAME` a method and, where there are several, one table `environments.NAME` an environment.
Later tables win: base < config < environment < method < command line < seed. A shared credit option goes to
the methods whose estimator takes it, and is refused where none does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bipace.core.estimators import recipe_options
from bipace.core.names import unknown
from bipace.envs.registry import get_suite
from bipace.rollout.panel import choose_panels
from bipace.train.checkpoints import read_state
from bipace.train.config import Config, ConfigError, add_override, config_from, read_tree
from bipace.train.files import write_json
from bipace.train.finish import read_summary
from bipace.train.run_folder import check_folder

__all__ = ["PlannedRun", "Study", "iterations_done", "load_study", "run_state", "write_plan"]

Tree = Mapping[str, Any]

_KEYS = {
    "name": "name of the study and of its folder; default: the file's",
    "seeds": "run.seed of the repetitions",
    "base": "a preset or a TOML file beside the study",
    "config": "what every run shares",
    "methods": "one table a method",
    "environments": "one table an environment; default: the one of config",
    "baseline": "method that speed-up and improvement are measured against",
    "thresholds": "success rates whose first iteration is reported",
}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        environment: the environment's name in the study.
        method: the method's name in the study.
        seed: `run.seed`.
        config: the whole configuration.
    """

    environment: str
    method: str
    seed: int
    config: Config

    @property
    def name(self) -> str:
        """The run's folder below the study's, also what is shown for it."""
        return f"{self.environment}/{self.method}/seed-{self.seed}"


@dataclass(frozen=True)
class Study:
    """The plan.

    Attributes:
        name: of the study.
        runs: all runs, first seeds first: a study that was stopped compares every method on the seeds it
            finished.
        baseline: the method others are compared with; None leaves the choice to the report.
        thresholds: success rates to reach; empty leaves the choice to the report.
    """

    name: str
    runs: tuple[PlannedRun, ...]
    baseline: str | None = None
    thresholds: tuple[float, ...] = ()


def load_study(path: Path, overrides: Iterable[str] = ()) -> Study:
    """Read a study file and check every run's configuration and panels.

    Args:
        path: the TOML file.
        overrides: `section.key=value`, for every run.

    Raises:
        ConfigError: an unreadable file, an unknown key, no seeds or methods, or a run whose configuration is
            refused (the message names the run).
    """
    if not path.is_file():
        raise ConfigError(
            f"study: no file {path}; the repository ships examples/studies/textcraft-small.toml"
        )
    tree = read_tree(path)
    for key in tree:
        if key not in _KEYS:
            raise ConfigError(f"study: {path}: {unknown('key', key, _KEYS)}")
    seeds = _seeds(tree.get("seeds"))
    methods = _tables(tree, "methods")
    environments = _tables(tree, "environments") if "environments" in tree else None
    shared = _merge(_base(tree.get("base"), path), _table(tree.get("config", {}), "config"))
    over: dict[str, Any] = {}
    for override in overrides:
        add_override(over, override)
    places = environments or {_suite_name(_merge(shared, over)): {}}
    for name in (*places, *methods):
        _check_name(name)
    runs = tuple(
        PlannedRun(
            place,
            method,
            seed,
            _config(f"{place}/{method}", seed, shared, places[place], methods[method], over),
        )
        for seed in seeds
        for place in places
        for method in methods
    )
    _check_credit((shared, over, *places.values()), runs)
    _check_panels(runs)
    name = str(tree.get("name", path.stem))
    _check_name(name)
    return Study(name, runs, _baseline(tree.get("baseline"), methods), _thresholds(tree.get("thresholds")))


def run_state(run: PlannedRun, folder: Path) -> Literal["new", "unfinished", "finished"]:
    """What the folder of a run holds; one killed before its first checkpoint or its summary is "unfinished".

    Raises:
        ConfigError: the folder was made under another configuration, is longer than planned, or holds no run.
    """
    if not (folder / "config.json").is_file():
        check_folder(run.config, folder, resume=False)
        return "new"
    check_folder(run.config, folder, resume=True)
    done = iterations_done(folder)
    if done is not None and done > run.config.run.iterations:
        raise ConfigError(
            f"{folder}: has {done} iterations, the study plans run.iterations={run.config.run.iterations}"
        )
    # A kill can fall between the last checkpoint and the summary.
    summarized = (read_summary(folder) or {}).get("iterations")
    return "finished" if done == run.config.run.iterations == summarized else "unfinished"


def iterations_done(folder: Path) -> int | None:
    """The iteration of the last complete checkpoint, or None where there is none."""
    try:
        return int(read_state(folder / "last")["iteration"])
    except FileNotFoundError:
        return None


def write_plan(study: Study, folder: Path) -> None:
    """Put study.json into the study's folder: what the report reads names and order from."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = [
        {"folder": r.name, "environment": r.environment, "method": r.method, "seed": r.seed}
        for r in study.runs
    ]
    plan = {
        "name": study.name,
        "baseline": study.baseline,
        "thresholds": list(study.thresholds),
        "runs": runs,
    }
    write_json(folder / "study.json", plan)


def _config(
    name: str, seed: int, shared: Tree, place: Tree, method: Tree, over: Tree
) -> Config:  # fmt: skip
    # One thread a run: runs share the machine, and a small model gains nothing from more.
    merged: dict[str, Any] = {"actor": {"threads": 1, "processes": 1}}
    for tree in (shared, place, method, over, {"run": {"seed": seed}}):
        merged = _merge(merged, tree)
    try:
        if not isinstance(merged.get("estimator", ""), str):
            raise ValueError(f"estimator: {merged['estimator']!r}, expected the name of a recipe")
        taken = {*recipe_options(merged.get("estimator", "bipace")), *method.get("credit", {})}
        return config_from(
            {**merged, "credit": {k: v for k, v in merged.get("credit", {}).items() if k in taken}}
        )
    except ValueError as error:
        raise ConfigError(f"study: {name}: {error}") from error


def _check_credit(trees: Iterable[Tree], runs: Iterable[PlannedRun]) -> None:
    """A shared credit option that no method takes is a slip."""
    taken = {option for run in runs for option in recipe_options(run.config.estimator)}
    for option in [option for tree in trees for option in tree.get("credit", {})]:
        if option not in taken:
            raise ConfigError(
                f"study: credit.{option}: no method's estimator takes it; known: {', '.join(sorted(taken))}"
            )


def _check_panels(runs: Iterable[PlannedRun]) -> None:
    """Unknown suites, splits and panels are found before the first run starts."""
    seen: set[str] = set()
    for run in runs:
        env = run.config.env
        if (key := env.model_dump_json()) in seen:
            continue
        seen.add(key)
        try:
            choose_panels(get_suite(env.suite), env.split, env.panel, env.held_out)
        except ValueError as error:
            raise ConfigError(f"study: {run.environment}: {error}") from error


def _suite_name(tree: Tree) -> str:
    suite = str(tree.get("env", {}).get("suite", "textcraft"))
    return Path(suite).stem if ".py:" in suite else suite.replace(":", "-")


def _base(base: Any, path: Path) -> dict[str, Any]:
    if base is None:
        return {}
    if not isinstance(base, str):
        raise ConfigError(f"study: base: {base!r}, expected a preset's name or a file beside the study")
    beside = path.parent / base
    return read_tree(beside if beside.is_file() else Path(base))


def _seeds(seeds: Any) -> list[int]:
    whole = isinstance(seeds, list) and all(
        isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds
    )
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"study: seeds: {seeds!r}, expected different whole numbers, e.g. seeds = [0, 1, 2]"
        )
    return seeds


def _tables(tree: Tree, key: str) -> dict[str, dict[str, Any]]:
    tables = tree.get(key)
    if not isinstance(tables, dict) or not tables:
        raise ConfigError(f"study: {key}: expected at least one table [{key}.NAME]")
    return {name: _table(table, f"{key}.{name}") for name, table in tables.items()}


def _table(table: Any, key: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"study: {key}: {table!r}, expected a table of settings")
    return table


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise ConfigError(f"study: name {name!r}: letters, digits and . _ + - only (it names a folder)")


def _baseline(baseline: Any, methods: Tree) -> str | None:
    if baseline is not None and baseline not in methods:
        raise ConfigError(f"study: baseline: {baseline!r} is no method of the study: {', '.join(methods)}")
    return baseline


def _thresholds(thresholds: Any) -> tuple[float, ...]:
    found = thresholds if thresholds is not None else []
    if not isinstance(found, list) or not all(isinstance(t, (int, float)) and 0 < t <= 1 for t in found):
        raise ConfigError(f"study: thresholds: {found!r}, expected success rates in (0, 1], e.g. [0.6, 0.7]")
    return tuple(float(t) for t in found)


def _merge(below: Tree, above: Tree) -> dict[str, Any]:
    """A new tree: tables are joined, values of `above` win."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
