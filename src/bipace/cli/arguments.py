"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["ConfigFile", "Overrides"]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="e.g. `estimator=gigpo env.max_steps=12 credit.w=0.5`"),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="TOML with what differs, or a preset: demo")
]
