"""`bipace imitate` behind its options: a warm start with a progress bar and a line an evaluation."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from bipace.cli.session import progress_bar
from bipace.rollout.panel import PanelResult
from bipace.train.warm_start import WarmStart, make_actor

__all__ = ["imitate_and_report"]


def imitate_and_report(out: Path, settings: WarmStart) -> None:
    """Make a small actor with a progress bar; each evaluation is a line. Raises what `make_actor` refuses."""
    with progress_bar(Console(stderr=True)) as progress:
        bar = progress.add_task("imitation", total=settings.steps, note="")

        def show_update(step: int, loss: float) -> None:
            progress.update(bar, completed=step, note=f"loss {loss:.3f}")

        def show_panel(step: int, panel: str, result: PanelResult) -> None:
            progress.console.print(
                f"step {step:5d}  {panel} success {result.success:.1%}, score {100 * result.score:.1f}"
            )

        make_actor(out, settings, on_update=show_update, on_panel=show_panel)
