"""The tables of docs/results/paper.md and docs/results/paper.json, from the records of the studies.

    PYTHONPATH=src python benchmarks/paper.py [--check] [--keep runs/STUDY]

`make paper` runs the studies first, which takes hours; this takes seconds. A table stands between the lines
`<!-- table: ENVIRONMENT KIND -->` and `<!-- end -->` and is made anew; the words around it are left alone.
`--check` writes nothing and fails where the page says something else than the records. `--keep` copies what
is to be committed of a study's finished runs into docs/results. Environments without records are named.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bipace.report.paper_tables import BRANCHES, CLUSTERS
from bipace.report.runs import read_runs
from bipace.report.summary import summarize_study

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
RECORDS = {
    "textcraft": [
        f"textcraft/{name}-records"
        for name in ("bipace", "controls", "estimators", "decide", "graphs", "weights")
    ],
    "alfworld": ["alfworld/records"],
    "webshop": ["webshop/records"],
}
KEPT = ("config.json", "metrics.jsonl", "summary.json", "provenance.json")
BASELINE, STARTS = "gigpo", re.compile(r"<!-- table: (\w+) (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def keep(study: Path, root: Path) -> Path:
    """Copy the records of a study's finished runs; what was kept of other runs stays."""
    plan = json.loads((study / "study.json").read_text(encoding="utf-8"))
    place, _, name = plan["name"].partition("-")
    records = root / place / (f"{name}-records" if name else "records")
    for run in plan["runs"]:
        if (study / run["folder"] / "summary.json").is_file():
            (records / run["folder"]).mkdir(parents=True, exist_ok=True)
            for file in KEPT:
                shutil.copyfile(study / run["folder"] / file, records / run["folder"] / file)
    plan["runs"] = [run for run in plan["runs"] if (records / run["folder"] / "metrics.jsonl").is_file()]
    (records / "study.json").write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    return records


def environments(root: Path) -> dict[str, Any]:
    """Environment -> what `bipace report` says of its records; those without records are left out."""
    found: dict[str, Any] = {}
    for name, folders in RECORDS.items():
        here = [root / folder for folder in folders if (root / folder / "study.json").is_file()]
        if here:
            summary = summarize_study(read_runs(here), BASELINE)
            (found[name],) = summary["environments"].values()
            found[name]["notes"] = summary["notes"]
    return found


def results(one: Mapping[str, Any]) -> str:
    """Best, last and whole curve, success over all training episodes, each with its difference from GiGPO."""
    order = sorted(one["methods"], key=lambda m: -one["training_success"][m]["mean"])
    head = ["method", "seeds", "val@max", "interquartile mean", "last", "whole curve", "less gigpo's",
            "training episodes", "less gigpo's", "seeds ahead"]  # fmt: skip
    rows = []
    for method in order:
        entry, curve, played = (one[key][method] for key in ("methods", "whole_curves", "training_success"))
        rows.append(
            [method, str(len(entry["seeds"])), spread(entry["val_at_max"]), middle(entry["val_at_max"]),
             spread(entry["last"]), spread(curve), less(curve), spread(played), less(played), ahead(played)]
        )  # fmt: skip
    return table(head, rows)


def thresholds(one: Mapping[str, Any]) -> str:
    """Iterations until the mean over seeds reaches a rate, and the speed-up over GiGPO."""
    rows = [[method, *map(reached, steps)] for method, steps in one["steps"].items()]
    return table(["method", *(f"{100 * rate:.0f} %" for rate in one["thresholds"])], rows)


def diagnostics(one: Mapping[str, Any]) -> str:
    """Clusters and branches, mean over seeds, at the first, the tenth and the last iteration."""
    columns = {**CLUSTERS, **BRANCHES}
    rows = [
        [method, iteration, *(number(row.get(metric)) for metric in columns)]
        for method, by_iteration in one["paper"]["methods"].items()
        for iteration, row in by_iteration.items()
    ]
    return table(["method", "iteration", *columns.values()], rows)


def cost(one: Mapping[str, Any]) -> str:
    """Median seconds of an iteration by part; runs beside others, so that only shares mean something."""
    parts = ("rollout", "credit", "update", "iteration")
    rows = [
        [method, *(number(spent.get(part)) for part in parts), f"{100 * spent['credit_share']:.2f} %"]
        for method, spent in one["cost"].items()
    ]
    return table(["method", *parts, "share of credit"], rows)


def transfer(one: Mapping[str, Any]) -> str:
    """Panels that chose nothing: success before and after, mean over seeds."""
    rows = []
    for panel in [entry["name"] for entry in one["panels"]]:
        for method, curve in one["curves"][panel].items():
            rows.append(
                [panel, method, f"{100 * curve['mean'][0]:.1f} %", f"{100 * curve['mean'][-1]:.1f} %"]
            )
    return table(["panel", "method", "before", "after"], rows)


def families(one: Mapping[str, Any]) -> str:
    """The validation panel by family of tasks at the last validation."""
    by_method = one["families"][one["panels"][0]["name"]]
    kinds = sorted({kind for found in by_method.values() for kind in found})
    rows = [[kind, *(spread(found.get(kind)) for found in by_method.values())] for kind in kinds]
    return table(["family", *by_method], rows)


KINDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "results": results, "thresholds": thresholds, "diagnostics": diagnostics, "cost": cost,
    "transfer": transfer, "families": families,
}  # fmt: skip


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def spread(entry: Mapping[str, Any] | None) -> str:
    """Mean and sample deviation over seeds, in per cent."""
    if entry is None:
        return "-"
    return f"{100 * entry['mean']:.1f}" + ("" if entry["std"] is None else f" ± {100 * entry['std']:.1f}")


def middle(entry: Mapping[str, Any]) -> str:
    """Interquartile mean and its interval."""
    low, high = entry["interval"] or (entry["iqm"], entry["iqm"])
    return f"{100 * entry['iqm']:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def less(entry: Mapping[str, Any]) -> str:
    """Paired difference from GiGPO and its interval, in points."""
    found = entry["difference"]
    if found is None:
        return "-"
    low, high = found["interval"] or (found["mean"], found["mean"])
    return f"{100 * found['mean']:+.1f} ({100 * low:.1f} to {100 * high:.1f})"


def ahead(entry: Mapping[str, Any]) -> str:
    """Pairs in which the method won more of its training episodes."""
    return (
        "-"
        if entry["difference"] is None
        else f"{entry['difference']['ahead']} of {entry['difference']['n']}"
    )


def reached(step: Mapping[str, Any]) -> str:
    """The iteration, and the speed-up where both got there."""
    if step["iteration"] is None:
        return "never"
    return f"{step['iteration']}" + ("" if step["speed_up"] is None else f" ({step['speed_up']:.2f} x)")


def number(value: float | None) -> str:
    """Three digits."""
    return "-" if value is None else f"{value:.3g}"


def refreshed(page: str, found: Mapping[str, Any]) -> str:
    """The page with every table made anew."""

    def made(match: re.Match[str]) -> str:
        place, kind = match.groups()
        if kind not in KINDS:
            raise SystemExit(f"paper: unknown table {kind!r}; known: {', '.join(KINDS)}")
        body = KINDS[kind](found[place]) if place in found else f"No records of {place} yet."
        return f"<!-- table: {place} {kind} -->\n\n{body}\n\n<!-- end -->"

    return STARTS.sub(made, page)


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where page and records differ"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="STUDY", help="a finished study's folder: keep its records"
    )
    arguments = parser.parse_args()
    if arguments.keep:
        print(keep(arguments.keep, RESULTS))
        return
    found, page = environments(RESULTS), RESULTS / "paper.md"
    old = page.read_text(encoding="utf-8")
    new = refreshed(old, found)
    if arguments.check:
        sys.exit(
            "docs/results/paper.md differs from the records; run benchmarks/paper.py" if new != old else 0
        )
    page.write_text(new, encoding="utf-8")
    kept = ("methods", "whole_curves", "training_success", "steps", "thresholds", "paper", "cost", "notes")
    text = {place: {key: one[key] for key in kept} for place, one in found.items()}
    (RESULTS / "paper.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    missing = [place for place in RECORDS if place not in found]
    print(f"{page}: {', '.join(found)}" + (f"; no records of {', '.join(missing)}" if missing else ""))


if __name__ == "__main__":
    main()
