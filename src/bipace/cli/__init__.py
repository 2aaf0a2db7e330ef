"""The command line: `bipace --help` teaches, every command has one screen of its own.

Nothing here imports torch before the command line has been found to make sense: a typo is answered at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

try:
    import typer
except ModuleNotFoundError:  # the core alone is installed
    sys.exit(
        "The bipace command needs typer, which every extra brings: pip install 'bipace[all]' for all that "
        "the README shows, 'bipace[analyze]' to look at rollouts, 'bipace[cli]' for the smallest"
    )

from bipace.cli import judging, looking, many, training
from bipace.cli.calibrate import calibrate
from bipace.cli.models import models_app
from bipace.train.failure import WRONG_INPUT, fail

__all__ = ["app", "main"]

# typer brings its own copy of click or uses the installed one, by its version; its errors are one family
# either way.
USAGE_ERRORS: Any = (typer.BadParameter.__mro__[1],)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Step-level credit for LLM agents: train, evaluate, play and compare BiPACE and its baselines.",
    epilog="Exit status: 0 done · 1 the answer is no (`analyze --fail-on`, a failed run of a study) · 2 "
    "wrong input, nothing was done · 3 the run broke down · 4 disk, permission or network · 70 a bug · 130 "
    "Ctrl-C.",
)
app.add_typer(models_app, name="models")
app.command()(training.train)
app.command()(many.study)
app.command()(many.report)
app.command()(training.demo)
app.command("eval")(training.evaluate)
app.command()(looking.play)
app.command()(looking.envs)
app.command()(looking.recipes)
app.command()(judging.credit)
app.command()(calibrate)
app.command()(judging.analyze)
app.command("config")(looking.show_config)
app.command()(looking.doctor)
app.command("verl-preflight", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    looking.verl_preflight
)
app.command()(training.imitate)


def _version(wanted: bool) -> None:
    if wanted:
        from bipace import __version__

        print(f"bipace {__version__}")
        raise typer.Exit


@app.callback()
def _bipace(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: a failure is one sentence on stderr and an exit status (`bipace.train.failure`)."""
    try:
        status = app(standalone_mode=False)
    except typer.Abort:  # what the parser makes of Ctrl-C
        status = fail(KeyboardInterrupt())
    except KeyboardInterrupt as error:
        status = fail(error)
    except USAGE_ERRORS as error:
        error.show()
        status = WRONG_INPUT
    except Exception as error:
        status = fail(error)
    _leave(status if isinstance(status, int) else 0)


def _leave(status: int) -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # so that Python does not complain once more while it closes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
