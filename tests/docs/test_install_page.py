"""docs/install.md says what pyproject.toml and the measured installs say."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def _table():
    lines = PAGE.split("| extra |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_table_has_every_extra_and_no_other():
    block = PROJECT.split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", block, re.MULTILINE)) - {"dev", "docs"}
    assert set(_table()) == extras | {"none"}


def test_sizes_and_times_are_the_measured_ones():
    record = json.loads((ROOT / "benchmarks" / "results" / "install.json").read_text(encoding="utf-8"))
    table = _table()
    assert record["extras"], "nothing measured"
    for extra, entry in record["extras"].items():
        _, _, size, seconds = table["none" if extra == "bare" else extra]
        assert size == f"{entry['megabytes']:,.0f} MB", extra
        assert seconds == f"{entry['install_seconds']:.0f} s", extra


def test_one_range_of_python_everywhere():
    low, high = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', PROJECT).groups()
    makefile, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "README.md"))
    health = (ROOT / "src" / "bipace" / "cli" / "health.py").read_text(encoding="utf-8")
    assert f"(3, {low}) <= sys.version_info < (3, {high})" in makefile
    assert f"(3, {low}) <= sys.version_info < (3, {high})" in health
    last = int(high) - 1
    assert f"Python 3.{low}-3.{last}" in readme
    assert all(f"3.{minor}" in PAGE for minor in range(int(low), last + 1))
