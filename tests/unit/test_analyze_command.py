"""The command: summary, page, JSON, exit status for CI, one-line errors."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")

from typer.testing import CliRunner

from bipace.cli import app


@pytest.fixture
def episodes(tmp_path):
    steps = [
        {"observation": "x\x1b[31m", "response": "y [bold]z", "action": "y", "parsed": True, "reward": 0.0}
    ]
    rows = [{"task": "[red]t[/red]", "member": i, "steps": steps} for i in range(3)]
    path = tmp_path / "e.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)])


def test_the_summary_names_the_findings_and_writes_no_page_when_told(episodes, tmp_path):
    done = run(episodes, "--out", "-")
    assert done.exit_code == 0
    assert "1 of 1 prompt groups have no reward variance" in " ".join(done.output.split())
    assert list(tmp_path.iterdir()) == [episodes]


def test_the_page_holds_its_data_as_text_that_cannot_close_the_script(episodes, tmp_path):
    assert run(episodes, "--out", tmp_path / "sub" / "page.html").exit_code == 0
    page = (tmp_path / "sub" / "page.html").read_text(encoding="utf-8")
    data = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert json.loads(data)["numbers"]["trajectories"] == 3
    assert "src=" not in page.split("<script", 1)[0]


def test_json_is_what_the_page_shows(episodes):
    done = run(episodes, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["findings"][0]["id"] == "flat-groups"


@pytest.mark.parametrize(("level", "status"), [("error", 1), ("warning", 1), (None, 0)])
def test_fail_on_sets_the_exit_status(episodes, level, status):
    assert run(episodes, "--out", "-", *(["--fail-on", level] if level else [])).exit_code == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail-on", "loud"], "--fail-on loud: expected one of"),
        (["--map", "reward"], "expected PART=COLUMN"),
        (["--format", "nope"], "the formats are"),
        (["--page-steps", "0"], "--page-steps 0"),
    ],
)
def test_bad_options_are_named(episodes, arguments, message):
    done = run(episodes, "--out", "-", *arguments)
    assert done.exit_code != 0
    assert message in str(done.exception)
