"""Write a report: the page, its Markdown, the pictures and the JSON they show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bipace.files import write_text
from bipace.page.html import build_page
from bipace.report.figures import draw_figures
from bipace.report.markdown import report_markdown
from bipace.report.runs import read_runs
from bipace.report.summary import summarize_study

__all__ = ["make_report", "report_folder", "report_page"]


def make_report(
    paths: Sequence[Path],
    *,
    baseline: str | None = None,
    thresholds: Sequence[float] = (),
    at: Sequence[int] = (),
    out: Path | None = None,
) -> dict[str, Any]:
    """Summarize runs and, with a folder, write report.html, report.md, report.json and the PNGs into it.

    Args:
        paths: run folders and study folders.
        baseline: method to compare with; see `summarize_study`.
        thresholds: success rates; see `summarize_study`.
        at: iterations of the cluster and branch tables; see `summarize_study`.
        out: the folder; None writes nothing.

    Returns:
        The summary.

    Raises:
        ValueError: no runs, runs that are there twice, an unknown baseline, a threshold outside (0, 1].
    """
    wrong = [t for t in thresholds if not 0 < t <= 1]
    if wrong:
        raise ValueError(f"report: --threshold {wrong[0]}: expected a success rate in (0, 1], e.g. 0.7")
    found = summarize_study(read_runs(paths), baseline, thresholds, at)
    if out is not None:
        page = report_page(found)
        out.mkdir(parents=True, exist_ok=True)
        pictures = draw_figures(found, out)
        write_text(out / "report.md", report_markdown(found, pictures))
        write_text(out / "report.json", json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n")
        write_text(out / "report.html", page)
    return found


def report_page(found: dict[str, Any]) -> str:
    """The page of a summary."""
    return build_page("bipace.report", "Training report", ("tables.js", "charts.js", "main.js"), found)


def report_folder(paths: Sequence[Path]) -> Path:
    """Where a report goes by default: into the one folder it is about, else ./report."""
    return paths[0] / "report" if len(paths) == 1 else Path("report")
