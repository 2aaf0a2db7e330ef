"""`bipace analyze` behind its options: analyse, print, write, and say whether CI should fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bipace.analyze.analysis import Analysis, Options, analyze, read
from bipace.analyze.evidence import SEVERITIES
from bipace.analyze.explain import explain
from bipace.analyze.export import check_export
from bipace.analyze.terminal import print_summary

__all__ = ["parse_columns", "run", "run_explain"]


def run(
    paths: Sequence[Path],
    options: Options,
    *,
    page: Path | None,
    as_json: bool,
    fail_on: str | None,
    detail: bool,
    export: Path | None = None,
) -> int:
    """Run the command.

    Args:
        paths: files and folders.
        options: how to compute.
        page: where the HTML page goes; None writes none.
        as_json: print the analysis as JSON instead of the summary.
        fail_on: "warning" or "error": exit status 1 if a finding is that grave.
        detail: explain every finding.
        export: where the table of all steps goes, `.parquet` or `.csv`; None writes none.

    Returns:
        The exit status.

    Raises:
        ValueError: what `analyze` refuses; an unknown severity.
    """
    if fail_on is not None and fail_on not in SEVERITIES:
        raise ValueError(f"--fail-on {fail_on}: expected one of {', '.join(SEVERITIES)}")
    if export is not None:
        check_export(export)
    progress = Console(stderr=True)
    with progress.status("reading") as status:
        found = analyze(paths, options, lambda what: status.update(what))
        if page is not None:
            status.update("writing the page")
            found.write_page(page)
        if export is not None:
            status.update("writing the steps")
            found.export(export)
    if as_json:
        sys.stdout.write(found.to_json() + "\n")
    else:
        console = Console()
        print_summary(found, console, detail)
        if page is not None:
            console.print(f"\nPage: [bold]{page}[/] (one file, opens in any browser)")
        if export is not None:
            console.print(f"Steps: [bold]{export}[/] ({len(found.table.steps):,} rows)")
    return 1 if _fails(found, fail_on) else 0


def run_explain(paths: Sequence[Path], options: Options) -> int:
    """Print the first trajectories as they were understood, and what was dropped and why.

    Returns the exit status.

    Raises:
        ValueError: nothing readable.
    """
    found = read(paths, options)
    sys.stdout.write(explain(found))
    return 0


def parse_columns(pairs: Sequence[str]) -> dict[str, str]:
    """`part=column` pairs as a mapping.

    Raises:
        ValueError: a pair without "=".
    """
    columns: dict[str, str] = {}
    for pair in pairs:
        part, equals, column = pair.partition("=")
        if not equals or not part or not column:
            raise ValueError(f"--map {pair!r}: expected PART=COLUMN, e.g. --map reward=score")
        columns[part] = column
    return columns


def _fails(found: Analysis, fail_on: str | None) -> bool:
    return fail_on is not None and any(
        SEVERITIES.index(f.severity) >= SEVERITIES.index(fail_on)  # pyright: ignore[reportArgumentType]  (checked in run)
        for f in found.findings
    )
