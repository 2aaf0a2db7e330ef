"""A report as JSON-able values: what the page shows and `--json` prints.

All statistics of a method are over its seeds, environment by environment; across environments they are
stratified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bipace.core.diagnostics import degenerate_clusters
from bipace.report.curves import curve, series
from bipace.report.diagnostics import DIAGNOSTICS
from bipace.report.episodes import sample_episodes
from bipace.report.method_tables import Methods, by_family, cost_by_part, settings_that_differ
from bipace.report.paired import training_success, whole_curves
from bipace.report.paper_tables import chosen_iterations, paper_tables
from bipace.report.runs import RunRecord, StudyRecord
from bipace.report.stats import (
    first_reaching,
    improvement,
    improvement_interval,
    interquartile_mean,
    mean_std,
    optimality_gap,
    performance_profile,
    stratified_interval,
)

__all__ = ["CONFIDENCE", "RESAMPLES", "summarize_study"]

CONFIDENCE, RESAMPLES = 0.95, 2000
_TAUS = np.linspace(0.0, 1.0, 51)  # success rates at which performance profiles are taken
_STEP = 0.05  # default thresholds are multiples of it
_MOST_THRESHOLDS = 6


def summarize_study(
    study: StudyRecord, baseline: str | None = None, thresholds: Sequence[float] = (), at: Sequence[int] = ()
) -> dict[str, Any]:
    """Everything the report shows.

    Args:
        study: the runs.
        baseline: the method others are compared with; default the study's, else gigpo, else the first.
        thresholds: success rates to reach; default the study's, else multiples of 5 % between where the
            methods start and the best mean any of them reaches.
        at: iterations of the cluster and branch tables; default the first, the tenth and the last.

    Raises:
        ValueError: a baseline that no run has; an iteration that none reached.
    """
    from bipace import __version__

    methods = list(dict.fromkeys(run.method for run in study.runs))
    chosen = baseline or study.baseline
    if chosen is None or (chosen not in methods and baseline is None):
        chosen = "gigpo" if "gigpo" in methods else methods[0]
    if chosen not in methods:
        raise ValueError(f"report: --baseline {chosen!r} is no method of these runs: {', '.join(methods)}")
    environments = {
        e: _methods(study, e, methods) for e in dict.fromkeys(run.environment for run in study.runs)
    }
    return {
        "bipace": __version__,
        "name": study.name,
        "baseline": chosen,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "methods": methods,
        "runs": [_run(run) for run in study.runs],
        "missing": list(study.missing),
        "notes": _notes(study, environments),
        "overall": _overall(environments, methods, chosen),
        "environments": {
            e: _environment(m, chosen, thresholds or study.thresholds, at) for e, m in environments.items()
        },
        "diagnostics": {d.key: {"label": d.label, "unit": d.unit} for d in DIAGNOSTICS},
        "config": settings_that_differ(study.runs),
        "episodes": sample_episodes(study.runs),
    }


def _methods(study: StudyRecord, environment: str, order: Sequence[str]) -> dict[str, list[RunRecord]]:
    found = {m: [r for r in study.runs if (r.environment, r.method) == (environment, m)] for m in order}
    return {method: runs for method, runs in found.items() if runs}


def _run(run: RunRecord) -> dict[str, Any]:
    _, success = series(run, _success(run))
    target = run.config.get("run.iterations")
    return {
        "name": run.name,
        "environment": run.environment,
        "method": run.method,
        "seed": run.seed,
        "iterations": run.iterations,
        "planned": target,
        "panel": run.panels[0] if run.panels else None,
        "first": success[0] if success else None,
        "best": max(success) if success else None,
        "last": success[-1] if success else None,
    }


def _success(run: RunRecord) -> str:
    return f"val/{run.panels[0]}/success" if run.panels else "episode/success_rate"


def _notes(study: StudyRecord, environments: Mapping[str, Methods]) -> list[str]:
    notes: list[str] = []
    if study.missing:
        notes.append(
            f"{len(study.missing)} planned runs have not logged anything: {', '.join(study.missing)}."
        )
    short = [r.name for r in study.runs if r.iterations < int(r.config.get("run.iterations") or 0)]
    if short:
        notes.append(f"{len(short)} runs are not finished: {', '.join(short)}.")
    notes += _degenerate(study.runs)
    for environment, methods in environments.items():
        seeds = {method: len(runs) for method, runs in methods.items()}
        if min(seeds.values()) < 3:
            few = ", ".join(f"{method} {n}" for method, n in seeds.items() if n < 3)
            notes.append(f"{environment}: fewer than three seeds ({few}): differences are anecdotes.")
        if len({r.panels[:1] for runs in methods.values() for r in runs}) > 1:
            notes.append(f"{environment}: the runs validate on different panels and cannot be compared.")
        if len({r.iterations for runs in methods.values() for r in runs}) > 1:
            notes.append(
                f"{environment}: the runs differ in length; best and last values are each run's own."
            )
    return notes


def _degenerate(runs: Sequence[RunRecord]) -> list[str]:
    """One note a method whose feature clusters, at some seed's end, compare hardly anything or all."""
    said: dict[str, str] = {}
    for run in runs:
        shape = {
            k.removeprefix("cluster/"): v for k, v in run.metrics[-1].items() if k.startswith("cluster/")
        }
        logged = {"lone_step_share", "singleton_rate", "largest_share"} <= shape.keys()
        if logged and "credit.eps" in run.config and (why := degenerate_clusters(shape)):
            said.setdefault(
                f"{run.environment}/{run.method}", f"{run.name}, iteration {run.iterations}: {why}."
            )
    return list(said.values())


def _peak_and_last(runs: Sequence[RunRecord]) -> tuple[np.ndarray, np.ndarray]:
    found = [series(run, _success(run))[1] for run in runs]
    kept = [values for values in found if values]
    return np.array([max(v) for v in kept]), np.array([v[-1] for v in kept])


def _overall(environments: Mapping[str, Methods], methods: Sequence[str], baseline: str) -> dict[str, Any]:
    """Interquartile means over all environments a method ran in, and its improvement over the baseline."""
    found: dict[str, Any] = {}
    for method in methods:
        places = {e: _peak_and_last(m[method]) for e, m in environments.items() if method in m}
        places = {e: pair for e, pair in places.items() if len(pair[0])}
        entry: dict[str, Any] = {"environments": list(places)}
        if places:
            for index, name in enumerate(("val_at_max", "last")):
                entry[name] = _aggregate([pair[index] for pair in places.values()])
            shared = [(pair[0], _peak_and_last(environments[e][baseline])[0]) for e, pair in places.items()
                      if baseline in environments[e]]  # fmt: skip
            compared = [] if method == baseline else [pair for pair in shared if len(pair[1])]
            entry["improvement"] = _improvement(compared)
        found[method] = entry
    return found


def _aggregate(strata: Sequence[np.ndarray]) -> dict[str, Any]:
    values = np.concatenate(strata)
    mean, std = mean_std(values.tolist())
    interval = stratified_interval(strata, interquartile_mean, resamples=RESAMPLES, confidence=CONFIDENCE)
    gap = stratified_interval(strata, optimality_gap, resamples=RESAMPLES, confidence=CONFIDENCE)
    return {
        "n": len(values),
        "mean": mean,
        "std": std,
        "iqm": float(interquartile_mean(values)),
        "interval": interval,
        "gap": {"value": float(optimality_gap(values)), "interval": gap},
        "profile": _profile(strata),
        "values": values.tolist(),
    }


def _profile(strata: Sequence[np.ndarray]) -> dict[str, list[float]]:
    """Share of runs above each success rate of `_TAUS`; `low` and `high` where there is a band."""
    shares, band = performance_profile(strata, _TAUS, resamples=RESAMPLES, confidence=CONFIDENCE)
    found = {"tau": _TAUS.round(2).tolist(), "share": shares.tolist()}
    return found if band is None else found | {"low": band[0].tolist(), "high": band[1].tolist()}


def _improvement(strata: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any] | None:
    if not strata:
        return None
    interval = improvement_interval(strata, resamples=RESAMPLES, confidence=CONFIDENCE)
    return {"value": improvement(strata), "interval": interval}


def _environment(
    methods: Methods, baseline: str, thresholds: Sequence[float], at: Sequence[int]
) -> dict[str, Any]:
    records = [run for runs in methods.values() for run in runs]
    panels = list(dict.fromkeys(panel for run in records for panel in run.panels))
    tasks = {panel: next((r.tasks[panel] for r in records if panel in r.tasks), None) for panel in panels}
    curves = {
        panel: {m: c for m, runs in methods.items() if (c := curve(runs, f"val/{panel}/success", band=True))}
        for panel in panels
    }
    main = curves[panels[0]] if panels else {}
    chosen = list(thresholds) or _default_thresholds(main)
    return {
        "panels": [{"name": panel, "tasks": tasks[panel]} for panel in panels],
        "methods": {m: _method(runs) for m, runs in methods.items()},
        "curves": curves,
        "training": {
            m: c for m, runs in methods.items() if (c := curve(runs, "episode/success_rate", band=True))
        },
        "diagnostics": {
            d.key: found
            for d in DIAGNOSTICS
            if (found := {m: c for m, runs in methods.items() if (c := curve(runs, d.metric))})
        },
        "thresholds": chosen,
        "steps": {m: _steps(runs, main.get(m), main.get(baseline), chosen) for m, runs in methods.items()},
        "whole_curves": whole_curves(methods, baseline, resamples=RESAMPLES, confidence=CONFIDENCE),
        "training_success": training_success(methods, baseline, resamples=RESAMPLES, confidence=CONFIDENCE),
        "improvement": _pairs(methods),
        "paper": paper_tables(methods, chosen_iterations(records, at)),
        "families": {panel: by_family(methods, panel) for panel in panels},
        "cost": {m: cost_by_part(runs) for m, runs in methods.items()},
    }


def _method(runs: Sequence[RunRecord]) -> dict[str, Any]:
    peak, last = _peak_and_last(runs)
    found: dict[str, Any] = {"seeds": [run.seed for run in runs]}
    return {**found, "val_at_max": _aggregate([peak]), "last": _aggregate([last])} if len(peak) else found


def _default_thresholds(curves: Mapping[str, Mapping[str, Any]]) -> list[float]:
    if not curves:
        return []
    start = max(c["mean"][0] for c in curves.values())
    best = max(max(c["mean"]) for c in curves.values())
    first, last = int(start / _STEP + 1e-9) + 1, int(best / _STEP + 1e-9)
    return [round(k * _STEP, 2) for k in range(first, last + 1)][-_MOST_THRESHOLDS:]


def _steps(
    runs: Sequence[RunRecord],
    own: Mapping[str, Any] | None,
    other: Mapping[str, Any] | None,
    thresholds: Sequence[float],
) -> list[dict[str, Any]]:
    """First iteration at which the mean over seeds reaches each threshold.

    Speed-up = the baseline's over one's own.
    """
    found: list[dict[str, Any]] = []
    for threshold in thresholds:
        mine = first_reaching(own["iterations"], own["mean"], threshold) if own else None
        theirs = first_reaching(other["iterations"], other["mean"], threshold) if other else None
        each = [first_reaching(*series(run, _success(run)), threshold) for run in runs]
        found.append(
            {
                "threshold": threshold,
                "iteration": mine,
                "speed_up": theirs / mine if mine and theirs is not None else None,
                "seeds_reaching": sum(step is not None for step in each),
                "seeds": len(each),
            }
        )
    return found


def _pairs(methods: Methods) -> dict[str, dict[str, Any]]:
    """Row beats column: probability of improvement of the validation peak."""
    peaks = {m: _peak_and_last(runs)[0] for m, runs in methods.items()}
    peaks = {m: peak for m, peak in peaks.items() if len(peak)}
    return {a: {b: _improvement([(x, y)]) for b, y in peaks.items() if a != b} for a, x in peaks.items()}
