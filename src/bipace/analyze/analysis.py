# long: every public part carries an example that a test runs; without them it has 300 lines.
"""The whole analysis as one object: what the terminal, the page, `--json` and a notebook show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bipace.analyze.credit import (
    BY_FEATURES,
    Credit,
    agreement,
    credit_of,
    feature_clusters,
    options_of,
    own_credit,
)
from bipace.analyze.evidence import SEVERITIES, Evidence, Finding, as_json
from bipace.analyze.features import TEXT_LABEL, hidden_states, text_vectors
from bipace.analyze.findings import find
from bipace.analyze.health import Health, assess
from bipace.analyze.options import Options
from bipace.analyze.outside import join_rewards
from bipace.analyze.reading import Readings, Source, read_files
from bipace.analyze.records import Problem, Reading
from bipace.analyze.table import Table, build_table, with_features
from bipace.core.calibrate import prediction_error
from bipace.core.estimators import RECIPES
from bipace.core.returns import return_to_go
from bipace.core.steps import Ints

__all__ = ["SWEEP", "Analysis", "Options", "Sweep", "analyze", "read"]

SCRIPTS = (
    "data.js", "address.js", "overview.js", "compare.js", "statemap.js", "mapview.js", "detail.js",
    "groups.js",
    "main.js",
)  # fmt: skip
SWEEP = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Sweep:
    """One radius: its clusters, how well they foretell returns, and the credit of the recipes that use them.

    `error` is the label-free criterion of `bipace.core.calibrate.prediction_error`: the mean squared error of
    a step's return predicted from its cluster without its own trajectory. Lower is better; 0 where every
    group is lone.
    """

    eps: float
    labels: Ints
    error: float
    credits: Mapping[str, Credit]


@dataclass(frozen=True, eq=False)
class Analysis:
    """What was read, and what it says.

    Attributes:
        options: how it was computed.
        readings: the files.
        table: the steps.
        feature_kind: "text" or "hidden".
        feature_label: the same in words.
        health: groups, copies, loops, aliasing.
        credits: recipe name -> advantages [N] with their arithmetic.
        sweep: the radii of SWEEP and the chosen one, in order.
        findings: the gravest first.
        foreign: files of a folder that hold no trajectories, and why.

    Examples:
        >>> from bipace.analyze import analyze
        >>> rows = [
        ...     dict(task="cup", trajectory=name, step=0, observation="a door", action=action, reward=reward)
        ...     for name, action, reward in (("first", "open", 1), ("second", "wait", 0))
        ... ]
        >>> found = analyze([rows])
        >>> found.health.numbers["groups"], found.health.numbers["trajectories"]
        (1.0, 2.0)
    """

    options: Options
    readings: Sequence[Reading]
    table: Table
    feature_kind: str
    feature_label: str
    health: Health
    credits: Mapping[str, Credit]
    sweep: Sequence[Sweep]
    findings: Sequence[Finding]
    foreign: Sequence[Problem] = ()

    def __repr__(self) -> str:
        names = ", ".join(Path(reading.file).name for reading in self.readings[:3])
        more = f" and {len(self.readings) - 3} more" if len(self.readings) > 3 else ""
        counts = ", ".join(f"{self.health.numbers[name]:.0f} {name}" for name in ("groups", "trajectories"))
        found = f"{len(self.table.batch)} steps, {len(self.findings)} findings, worst: {self.worst()}"
        return f"<Analysis of {names}{more}: {counts}, {found}>"

    def worst(self) -> str:
        """The gravest severity among the findings ("info" where there is none)."""
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default="info")

    def best_eps(self) -> float | None:
        """The radius of the sweep with the least prediction error; None where nothing can be predicted."""
        best = min(self.sweep, key=lambda s: (s.error, s.eps))
        return best.eps if max(s.error for s in self.sweep) > 0 else None

    def agreement(self) -> dict[str, Any]:
        """Correlation and sign agreement of the recipes' advantages."""
        correlation, sign = agreement(list(self.credits.values()))
        return {"recipes": list(self.credits), "correlation": correlation, "same_sign": sign}

    def findings_json(self) -> list[dict[str, Any]]:
        """The findings with their places named."""
        return [as_json(finding, self.table) for finding in self.findings]

    @property
    def understood(self) -> float:
        """Share of the files' records that were read."""
        total = sum(reading.records for reading in self.readings)
        return (
            sum(reading.understood * reading.records for reading in self.readings) / total if total else 1.0
        )

    @property
    def dropped(self) -> dict[str, int]:
        """Cause -> number of rollouts that stand outside every baseline."""
        return dict(Counter(d.cause for d in self.table.dropped))

    def summary(self) -> dict[str, Any]:
        """What was read, for machines.

        Format, trajectories, steps, groups, what was dropped (cause -> count), what was understood.
        """
        formats = sorted({reading.format for reading in self.readings})
        return {
            "format": formats[0] if len(formats) == 1 else ", ".join(formats),
            "trajectories": len(self.table.trajectories),
            "steps": len(self.table.steps),
            "groups": len(self.table.tasks),
            "dropped": self.dropped,
            "understood": round(self.understood, 6),
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything the page shows, as JSON-able values."""
        from bipace.analyze.payload import payload

        return payload(self)

    def to_json(self) -> str:
        """`to_dict` with `summary` before it, as text."""
        return json.dumps({"summary": self.summary(), **self.to_dict()}, ensure_ascii=False, allow_nan=False)

    def export(self, path: str | Path) -> None:
        """Write every step with every recipe's advantage, cluster, Q and V as a table.

        See `bipace.analyze.export`.

        Raises:
            ValueError: a file that ends neither in .parquet nor in .csv.
        """
        from bipace.analyze.export import export_steps

        export_steps(self, Path(path))

    def write_page(self, path: str | Path) -> None:
        """Write the self-contained HTML page."""
        from bipace.analyze.page_data import page_data
        from bipace.files import write_text
        from bipace.page.html import build_page

        data, blocks = page_data(self)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_text(Path(path), build_page("bipace.analyze", "Credit report", SCRIPTS, data, blocks))


def analyze(
    paths: Sequence[Source] | str | Path,
    options: Options | None = None,
    progress: Progress = lambda _what: None,
) -> Analysis:
    """Read files and analyse their credit.

    Args:
        paths: a file or folder, or several; or records in memory: objects as they stand in a file, lists of
            messages.
        options: how to compute.
        progress: called with what begins next, in words.

    Raises:
        ValueError: nothing readable (NotTrajectories), no rollout that counts, bad options.
        FileNotFoundError: no such file, or no such model folder.

    Examples:
        >>> from bipace.analyze import analyze
        >>> rows = [
        ...     dict(task="cup", trajectory=name, step=0, observation="a door", action=action, reward=reward)
        ...     for name, action, reward in (("first", "open", 1), ("second", "wait", 0))
        ... ]
        >>> found = analyze([rows])
        >>> found.credits["grpo"].values.round(3).tolist()
        [0.707, -0.707]
        >>> found.worst()
        'warning'
    """
    options = options or Options()
    found = read(paths, options, progress)
    table = build_table(found.files, options.action_key, options.merge)
    kind, label, table = _featured(table, options, progress)
    progress("groups, copies and loops")
    health = assess(table)
    sweep = _sweep(table, options, progress)
    chosen = next(s for s in sweep if s.eps == options.eps)
    credits: dict[str, Credit] = {}
    for name in RECIPES:
        progress(f"advantages of {name}")
        credits[name] = (
            chosen.credits[name] if name in BY_FEATURES else _credit(table, name, options, options.eps)
        )
    for where in options.recipes:
        progress(f"advantages of {where}")
        credits |= own_credit(table.batch, where, options.gamma, options.w, options.mode, options.eps)
    errors = {s.eps: s.error for s in sweep}
    findings = find(Evidence(table, health, credits, found.files, kind, options.eps, errors))
    return Analysis(options, found.files, table, kind, label, health, credits, sweep, findings, found.foreign)


def read(
    paths: Sequence[Source] | str | Path, options: Options, progress: Progress = lambda _what: None
) -> Readings:
    """The files as the options say how to read them, with rewards kept elsewhere joined.

    Raises:
        ValueError: nothing readable (NotTrajectories), bad options.
        FileNotFoundError: no such file.
    """
    sources: list[Source] = [paths] if isinstance(paths, (str, Path, Mapping)) else list(paths)
    how = {"format": options.format, "columns": options.columns, "strict": options.strict}
    found = read_files(sources, progress, **how, row_reward=options.row_reward)
    if options.rewards is not None:
        join_rewards(found.files, Path(options.rewards))
    return found


def _sweep(table: Table, options: Options, progress: Progress) -> list[Sweep]:
    returns = return_to_go(table.batch, options.gamma)
    sweep: list[Sweep] = []
    for eps in sorted({*SWEEP, options.eps}):
        progress(f"clusters at eps {eps:g}")
        labels = feature_clusters(table.batch, eps)
        error = prediction_error(table.batch, labels, returns)
        credits = {name: _credit(table, name, options, eps, labels) for name in BY_FEATURES}
        sweep.append(Sweep(eps, labels, error, credits))
    return sweep


def _credit(table: Table, name: str, options: Options, eps: float, labels: Ints | None = None) -> Credit:
    return credit_of(table.batch, name, options_of(name, options.gamma, options.w, options.mode, eps), labels)


def _featured(table: Table, options: Options, progress: Progress) -> tuple[str, str, Table]:
    if options.model is None:
        progress("text vectors")
        return "text", TEXT_LABEL, with_features(table, text_vectors(table))
    done = 0

    def tick(steps: int) -> None:
        nonlocal done
        done += steps
        progress(f"hidden states: {done} of {len(table.steps)} steps")

    features = hidden_states(table, options.model, options.layer, tick)
    label = (
        f"hidden states of {Path(options.model).name}, layer {options.layer}, last token before the response"
    )
    return "hidden", label, with_features(table, features)
