"""docs/results/paper.md says what the records say, and the records are those of finished runs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "paper.py"
_spec = importlib.util.spec_from_file_location("paper", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
paper = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(paper)


def test_the_tables_are_those_of_the_records():
    said = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr


def test_a_number_changed_by_hand_is_noticed():
    page = (ROOT / "docs" / "results" / "paper.md").read_text(encoding="utf-8")
    found = paper.environments(ROOT / "docs" / "results")
    first = page.index("| gigpo | ")
    changed = page[:first] + page[first:].replace("| gigpo | ", "| gigpo | 9", 1)
    assert paper.refreshed(changed, found) == page != changed


def test_the_second_measure_is_the_mean_over_the_records_own_lines():
    found = paper.environments(ROOT / "docs" / "results")["textcraft"]["training_success"]["gigpo"]
    rates = []
    for folder in ("bipace-records", "decide-records"):
        for log in (ROOT / "docs" / "results" / "textcraft" / folder).glob("textcraft/gigpo/*/metrics.jsonl"):
            lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            played = [line["episode/success_rate"] for line in lines if "episode/success_rate" in line]
            rates.append(sum(played) / len(played))
    assert len(rates) == 10
    assert found["mean"] == pytest.approx(sum(rates) / len(rates))


def test_only_finished_runs_are_kept(tmp_path):
    study, root = tmp_path / "study", tmp_path / "results"
    runs = [
        {"folder": f"place/gigpo/seed-{s}", "environment": "place", "method": "gigpo", "seed": s}
        for s in (0, 1)
    ]
    for run in runs:
        (study / run["folder"]).mkdir(parents=True)
        for name in paper.KEPT:
            if name != "summary.json" or run["seed"] == 0:
                (study / run["folder"] / name).write_text("{}")
    (study / "study.json").write_text(json.dumps({"name": "place-thing", "baseline": None, "runs": runs}))
    records = paper.keep(study, root)
    assert records == root / "place" / "thing-records"
    assert [run["seed"] for run in json.loads((records / "study.json").read_text())["runs"]] == [0]
    assert not (records / runs[1]["folder"]).exists()
