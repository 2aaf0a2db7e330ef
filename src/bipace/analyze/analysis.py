"""The whole analysis as one object: what the terminal, the page, `--json` and a notebook show."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bipace.analyze.credit import BY_FEATURES, Credit, agreement, credit_of, feature_clusters, options_of
from bipace.analyze.features import TEXT_LABEL, hidden_states, text_vectors
from bipace.analyze.findings import SEVERITIES, Evidence, Finding, as_json, find
from bipace.analyze.formats import read_files
from bipace.analyze.health import Health, assess
from bipace.analyze.records import Reading
from bipace.analyze.table import Table, build_table, with_features
from bipace.core.calibrate import prediction_error
from bipace.core.estimators import RECIPES
from bipace.core.returns import return_to_go
from bipace.core.steps import Ints

__all__ = ["SWEEP", "Analysis", "Options", "Sweep", "analyze"]

SWEEP = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to compute.

    Attributes:
        gamma: discount of the return-to-go.
        w: weight of the step terms.
        mode: "mean_std_norm" or "mean_norm" for both terms; None: each recipe its own.
        eps: cosine radius of the recipes that cluster by features.
        action_key: "action_tag" or "first_word".
        model: local Hugging Face folder for hidden states; text vectors where None.
        layer: of the hidden states: index, negative from the end, or fraction of the depth.
        format: reader; None detects.
        columns: part -> column of a flat table.
        merge: join equal task names of several files; None: only where each file holds one trajectory.
        strict: stop at the first place that cannot be read.
        page_steps: at most this many steps go into the page; larger inputs are sampled by group.
    """

    gamma: float = 0.95
    w: float = 1.0
    mode: str | None = None
    eps: float = 0.1
    action_key: str = "action_tag"
    model: str | None = None
    layer: int | float = 0.75
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    merge: bool | None = None
    strict: bool = False
    page_steps: int = 10_000

    def __post_init__(self) -> None:
        if not 0.0 <= self.eps <= 2.0:
            raise ValueError(f"--eps {self.eps}: expected a cosine distance in [0, 2]")
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"--gamma {self.gamma}: expected a discount in [0, 1]")
        if self.page_steps < 1:
            raise ValueError(f"--page-steps {self.page_steps}: expected at least 1")


@dataclass(frozen=True, eq=False)
class Sweep:
    """One radius: its clusters, how well they foretell returns, and the credit of the three recipes that use them.

    `error` is the label-free criterion of `bipace.core.calibrate.prediction_error`: the mean squared error of a step's
    return predicted from its cluster without its own trajectory. Lower is better; 0 where every group is lone.
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

    def to_dict(self) -> dict[str, Any]:
        """Everything the page shows, as JSON-able values."""
        from bipace.analyze.payload import payload

        return payload(self)

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def write_page(self, path: str | Path) -> None:
        """Write the self-contained HTML page."""
        from bipace.page.html import build_page, write_text

        scripts = ("data.js", "charts.js", "overview.js", "detail.js", "groups.js", "main.js")
        write_text(Path(path), build_page("bipace.analyze", "Credit report", scripts, self.to_dict()))


def analyze(
    paths: Sequence[str | Path] | str | Path, options: Options | None = None, progress: Progress = lambda _what: None
) -> Analysis:
    """Read files and analyse their credit.

    Args:
        paths: a file or folder, or several.
        options: how to compute.
        progress: called with what begins next, in words.

    Raises:
        ValueError: nothing readable (NotTrajectories), no usable reward, bad options.
        FileNotFoundError: no such file, or no such model folder.
    """
    options = options or Options()
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    readings = read_files(paths, progress, format=options.format, columns=options.columns, strict=options.strict)
    table = build_table(readings, options.action_key, options.merge)
    kind, label, table = _featured(table, options, progress)
    progress("groups, copies and loops")
    health = assess(table)
    credits: dict[str, Credit] = {}
    sweep: list[Sweep] = []
    returns = return_to_go(table.batch, options.gamma)
    for eps in sorted({*SWEEP, options.eps}):
        progress(f"clusters at eps {eps:g}")
        labels = feature_clusters(table.batch, eps)
        error = prediction_error(table.batch, labels, returns)
        found = {name: _credit(table, name, options, eps, labels) for name in BY_FEATURES}
        sweep.append(Sweep(eps, labels, error, found))
    chosen = next(s for s in sweep if s.eps == options.eps)
    for name in RECIPES:
        progress(f"advantages of {name}")
        credits[name] = chosen.credits[name] if name in BY_FEATURES else _credit(table, name, options, options.eps)
    findings = find(Evidence(table, health, credits, readings, kind, options.eps))
    return Analysis(options, readings, table, kind, label, health, credits, sweep, findings)


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
    label = f"hidden states of {Path(options.model).name}, layer {options.layer}, last token before the response"
    return "hidden", label, with_features(table, features)
