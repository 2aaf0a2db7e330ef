"""Run folders and study folders as records: who ran what, with which configuration, and what was logged."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bipace.report.curve import read_metrics

__all__ = ["RunRecord", "StudyRecord", "config_differences", "flatten", "read_runs"]


@dataclass(frozen=True)
class RunRecord:
    """One run, as it stands in its folder.

    Attributes:
        folder: where it lies.
        environment: name of the environment.
        method: name of the method.
        seed: `run.seed`.
        config: every key, dotted, with its value.
        metrics: the lines of metrics.jsonl.
        panels: names of the panels played: first the validation panel.
        tasks: tasks of each panel, where a checkpoint says so.
    """

    folder: Path
    environment: str
    method: str
    seed: int
    config: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    panels: tuple[str, ...]
    tasks: Mapping[str, int]

    @property
    def name(self) -> str:
        """Environment, method and seed."""
        return f"{self.environment}/{self.method}/seed-{self.seed}"

    @property
    def iterations(self) -> int:
        """The last iteration logged."""
        return int(self.metrics[-1]["iteration"])


@dataclass(frozen=True)
class StudyRecord:
    """Everything a report is made from.

    Attributes:
        name: of the study, or of the first folder.
        runs: those that have a log.
        missing: planned runs without one, by name.
        baseline: the method to compare with, where a study names one.
        thresholds: success rates, where a study names some.
    """

    name: str
    runs: tuple[RunRecord, ...]
    missing: tuple[str, ...]
    baseline: str | None
    thresholds: tuple[float, ...]


def read_runs(paths: Sequence[Path]) -> StudyRecord:
    """Read run folders, study folders, and folders that hold run folders at any depth.

    Runs of a study bear the study's names. Loose runs are named by their estimator; those of one estimator
    that differ in more than the seed also by the settings that differ.

    Raises:
        ValueError: a path that is no folder or holds no run; two runs of one environment, method and seed.
    """
    named: list[RunRecord] = []
    loose: list[RunRecord] = []
    missing: list[str] = []
    plans: list[dict[str, Any]] = []
    for path in paths:
        plan = path / "study.json"
        if plan.is_file():
            plans.append(json.loads(plan.read_text(encoding="utf-8")))
            for run in plans[-1]["runs"]:
                record = _record(path / run["folder"])
                if record is None:
                    missing.append(f"{run['environment']}/{run['method']}/seed-{run['seed']}")
                else:
                    named.append(replace(record, environment=run["environment"], method=run["method"]))
        else:
            loose += _loose(path)
    runs = (*named, *_name_apart(loose))
    if not runs:
        raise ValueError(f"report: no run in {', '.join(map(str, paths))} has logged anything yet")
    twice = [name for name, n in Counter(run.name for run in runs).items() if n > 1]
    if twice:
        where = ", ".join(str(run.folder) for run in runs if run.name == twice[0])
        raise ValueError(f"report: {twice[0]} is there twice: {where}; name only one of them")
    return StudyRecord(
        plans[0]["name"] if plans else paths[0].resolve().name,
        runs,
        tuple(missing),
        next((plan["baseline"] for plan in plans if plan["baseline"]), None),
        next((tuple(plan["thresholds"]) for plan in plans if plan["thresholds"]), ()),
    )


def config_differences(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Key -> name -> value, for every key in which the named configurations differ.

    None where a name lacks the key.
    """
    keys = sorted({key for config in configs.values() for key in config})
    found: dict[str, dict[str, Any]] = {}
    for key in keys:
        values = {name: config.get(key) for name, config in configs.items()}
        if len({json.dumps(value, sort_keys=True) for value in values.values()}) > 1:
            found[key] = values
    return found


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of tables as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _loose(path: Path) -> list[RunRecord]:
    if not path.is_dir():
        raise ValueError(f"report: no folder {path}; name run folders or a study folder")
    folders = (
        [path]
        if (path / "metrics.jsonl").is_file()
        else sorted(p.parent for p in path.rglob("metrics.jsonl"))
    )
    found = [record for folder in folders if (record := _record(folder)) is not None]
    if not found:
        raise ValueError(f"report: {path} holds no run (a folder with metrics.jsonl and config.json)")
    return found


def _record(folder: Path) -> RunRecord | None:
    saved = folder / "config.json"
    if (
        not saved.is_file()
        or not (folder / "metrics.jsonl").is_file()
        or not (metrics := read_metrics(folder))
    ):
        return None
    config = flatten(json.loads(saved.read_text(encoding="utf-8")))
    panels = [k.split("/")[1] for line in metrics for k in line if re.fullmatch("val/[^/]+/success", k)]
    # The validation panel is the one that is played most often.
    order = tuple(name for name, _ in Counter(panels).most_common())
    suite, method = str(config.get("env.suite", "")), str(config.get("estimator", ""))
    seed = int(config.get("run.seed", 0))
    return RunRecord(folder, suite, method, seed, config, metrics, order, _tasks(folder))


def _tasks(folder: Path) -> dict[str, int]:
    """Tasks of each panel from the last checkpoint."""
    try:
        state = json.loads((folder / "last" / "trainer_state.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    histories = state.get("validations", {})
    return {panel: int(next(iter(history.values()))["n"]) for panel, history in histories.items() if history}


def _short(value: Any, key: str, same: Mapping[str, Mapping[str, Any]]) -> Any:
    """A folder or file without the way to it, where that is enough to tell the runs apart."""
    values = {str(config.get(key)) for config in same.values()}
    names = {Path(v).name for v in values}
    return Path(value).name or value if isinstance(value, str) and len(names) == len(values) else value


def _name_apart(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Loose runs with settings in the method's name where one estimator was run with several."""
    runs = list(runs)
    named: list[RunRecord] = []
    for run in runs:
        same = {
            str(r.folder): r.config
            for r in runs
            if (r.environment, r.method) == (run.environment, run.method)
        }
        ignored = ("run.seed", "run.iterations", "actor.threads")
        keys = [key for key in config_differences(same) if key not in ignored]
        settings = ", ".join(f"{key}={_short(run.config.get(key), key, same)}" for key in keys)
        named.append(replace(run, method=f"{run.method} ({settings})") if settings else run)
    return named
