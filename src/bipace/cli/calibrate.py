"""`bipace calibrate`: one batch of rollouts, every layer and radius, and the pair to take."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bipace.train.extras import require

__all__ = ["calibrate"]


def calibrate(
    actor: Annotated[
        str, typer.Argument(metavar="ACTOR", help="a shipped actor, a run, or a Hugging Face folder")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="as in train: env.suite, env.split, estimator, rollout.tasks"
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="TOML with what differs, or a preset")
    ] = None,
    whiten: Annotated[
        list[int] | None, typer.Option(help="removed directions to try, e.g. 0 and 3; default 0")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of calibration.json and calibration.png")] = Path(
        "runs/calibrate"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="print the grid and the choice as JSON")] = False,
) -> None:
    """Choose layer and eps from one batch of rollouts, without labels, as the paper's first iteration does.

    Prints every point of the grid, the pair it would take and why, and the TOML lines to paste. Examples:
    `bipace calibrate textcraft-small env.split=demo` · `bipace calibrate alfworld-small --config alfworld
    --json`
    """
    require("bipace calibrate", "train")

    from rich.console import Console

    from bipace.files import write_json
    from bipace.train.calibration import scan_actor
    from bipace.train.config import load_config
    from bipace.truth.calibration import draw_scan, lines_to_paste, scan_table

    settings = load_config(config, overrides or ())
    say = partial(Console(file=sys.stderr).print, highlight=False)
    scan = scan_actor(actor, settings, directions=whiten, say=say)
    out.mkdir(parents=True, exist_ok=True)
    shown = describe(scan, actor)
    write_json(out / "calibration.json", shown)
    draw_scan(scan, out / "calibration.png")
    if as_json:
        print(json.dumps(shown))
        return
    console = Console()
    console.print(scan_table(scan))
    console.print(scan.why(), highlight=False)
    if scan.warning:
        console.print(f"warning: {scan.warning}", highlight=False)
    console.print(f"\n{lines_to_paste(scan)}\n", highlight=False, markup=False)
    console.print(f"grid {out / 'calibration.json'}\npicture {out / 'calibration.png'}", highlight=False)


def describe(scan: Any, actor: str) -> dict[str, Any]:
    """The scan as JSON: grid, choice, why, warning."""
    return {
        "actor": actor, "choice": scan.chosen.to_json(), "why": scan.why(), "warning": scan.warning,
        "level": scan.level, "grid": [pair.to_json() for pair in scan.pairs],
    }  # fmt: skip
