"""Commands that make and judge actors: train, demo, eval, imitate."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from bipace.cli.arguments import ConfigFile, Overrides
from bipace.train.extras import require

__all__ = ["demo", "evaluate", "imitate", "train"]


def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    out: Annotated[Path | None, typer.Option(help="run folder; default runs/SUITE-ESTIMATOR-sSEED")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with a run: `--resume runs/a`")] = False,
) -> None:
    """Train an agent. Without arguments: TextCraft, the shipped small actor, BiPACE.

    Examples: `bipace train` · `bipace train estimator=gigpo` ·
    `bipace train run.iterations=200 run.seed=1 --out runs/a` · `bipace train --resume runs/a`

    The folder gets config.toml, metrics.jsonl, curve.png, summary.json and the checkpoints `last` and `best`
    (Hugging Face folders). The first Ctrl-C finishes the iteration and saves; the exit status is then 130.
    """
    require("bipace train", "train")

    from bipace.cli.plan import check_run, plan_run

    settings, folder = plan_run(overrides or (), config, out, resume=resume)
    for note in settings.notes():
        print(f"note: {note}", file=sys.stderr)
    check_run(settings, folder, resume=resume)

    from bipace.cli.session import train_and_report

    raise typer.Exit(train_and_report(settings, folder, resume=resume))


def demo(
    out: Annotated[Path, typer.Option(help="run folder")] = Path("runs/demo"),
    install_seconds: Annotated[float, typer.Option(help="written to summary.json as seconds.install")] = 0.0,
) -> None:
    """Teach the small actor TextCraft under BiPACE and show what it learned (about ten minutes on two cores).

    An earlier demo in the folder is replaced; a folder that holds anything else is left alone.
    """
    require("bipace demo", "train")

    from bipace.cli.plan import check_run
    from bipace.train.config import load_config
    from bipace.train.files import held
    from bipace.train.run_folder import check_folder, clear

    settings = load_config(Path("demo"))
    if out.is_dir() and any(out.iterdir()):
        with held(out):
            clear(settings, out)
    check_folder(settings, out, resume=False)
    check_run(settings, out, resume=False)

    from bipace.cli.session import train_and_report

    raise typer.Exit(train_and_report(settings, out, install_seconds=install_seconds))


def evaluate(
    actor: Annotated[
        str, typer.Argument(help="a run folder, a checkpoint, a Hugging Face folder or a shipped actor")
    ],
    overrides: Overrides = None,
    config: ConfigFile = None,
    panel: Annotated[
        list[str] | None, typer.Option(help="panel or split; may be given several times")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write every episode to this JSONL file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Evaluate an actor on fixed panels, each task once.

    A run folder, and a checkpoint in it such as `runs/demo/best`, bring the run's own settings. Example:
    `bipace eval runs/demo --panel heldout-panel`
    """
    require("bipace eval", "train")

    from bipace.cli.outputs import check_file, starts_with
    from bipace.cli.plan import plan_evaluation

    settings, panels = plan_evaluation(actor, config, overrides or (), panel)
    if out is not None:
        check_file(out, "--out", starts_with('{"panel": '))

    from bipace.cli.evaluation import evaluate_and_report

    summaries = evaluate_and_report(actor, settings, panels, out, quiet=as_json)
    if as_json:
        print(json.dumps(summaries))


def imitate(
    out: Annotated[Path, typer.Argument(help="folder for the new actor")],
    suite: Annotated[str, typer.Option(help="environment")] = "textcraft",
    size: Annotated[str, typer.Option(help="small (0.16 M parameters) or medium (1.05 M)")] = "small",
    target: Annotated[float, typer.Option(help="stop at this success rate on the training panel")] = 0.35,
    steps: Annotated[int, typer.Option(help="at most this many updates")] = 6000,
    seed: Annotated[int, typer.Option(help="of weights and order")] = 0,
    start: Annotated[str | None, typer.Option(help="go on from this actor instead of a new one")] = None,
    every: Annotated[int, typer.Option(help="updates between evaluations")] = 100,
    lr: Annotated[float, typer.Option(help="learning rate after the warm-up")] = 3e-3,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="preset or TOML: prompt limits, horizon")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="demonstrations per update")] = 64,
    turns: Annotated[
        int | None, typer.Option(min=1, help="only the first turns of each demonstration")
    ] = None,
    context_weight: Annotated[
        float, typer.Option(min=0, help="weight of predicting the observations too")
    ] = 0.0,
    codes: Annotated[int | None, typer.Option(min=1, help="show no more than so many product ids")] = None,
) -> None:
    """Make a small warm-started actor: tokenizer and model learn the suite's expert episodes.

    This is how the shipped actors were made; the model card beside each names the exact command.
    """
    require("bipace imitate", "train")

    from bipace.cli.plan import check_new_actor

    check_new_actor(out, suite, start)

    from bipace.cli.making import imitate_and_report
    from bipace.train.warm_start import WarmStart

    settings = WarmStart(
        suite=suite, size=size, target=target, steps=steps, seed=seed, start=start, every=every, lr=lr,
        config_file=config, batch=batch, turns=turns, context_weight=context_weight, codes=codes,
    )  # fmt: skip
    imitate_and_report(out, settings)
