"""The command line: `bipace --help` teaches, every command has one screen of its own."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
except ModuleNotFoundError:  # the core alone is installed
    sys.exit("The bipace command needs its command-line packages: pip install 'bipace[train,textcraft]'")

from bipace.cli.many import report, study
from bipace.cli.models import models_app

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    help="Step-level credit for LLM agents: train, evaluate, play and compare BiPACE and its baselines.",
)
app.add_typer(models_app, name="models")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="e.g. `estimator=gigpo env.max_steps=12 credit.w=0.5`"),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="TOML with what differs, or a preset: demo")]


@app.command()
def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    out: Annotated[Path | None, typer.Option(help="run folder; default runs/SUITE-ESTIMATOR-sSEED")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in the folder")] = False,
) -> None:
    """Train an agent. Without arguments: TextCraft, the shipped small actor, BiPACE.

    Examples: `bipace train` · `bipace train estimator=gigpo` ·
    `bipace train run.iterations=200 run.seed=1 --out runs/a`

    The folder gets config.toml, metrics.jsonl, curve.png, summary.json and the checkpoints `last` and `best` (Hugging
    Face folders). The first Ctrl-C finishes the iteration and saves.
    """
    from bipace.cli.session import train_and_report
    from bipace.train.config import load_config

    settings = load_config(config, overrides or ())
    for note in settings.notes():
        print(f"note: {note}", file=sys.stderr)
    folder = (
        out or Path("runs") / f"{Path(settings.env.suite).stem}-{Path(settings.estimator).stem}-s{settings.run.seed}"
    )
    train_and_report(settings, folder, resume=resume)


app.command()(study)
app.command()(report)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="run folder")] = Path("runs/demo"),
    install_seconds: Annotated[float, typer.Option(help="written to summary.json as seconds.install")] = 0.0,
) -> None:
    """Teach the small actor TextCraft under BiPACE and show what it learned (about ten minutes on two cores).

    An earlier demo in the folder is replaced.
    """
    import shutil

    from bipace.cli.session import train_and_report
    from bipace.train.config import load_config

    if (out / "summary.json").is_file() or (out / "config.toml").is_file():
        shutil.rmtree(out)
    train_and_report(load_config(Path("demo")), out, install_seconds=install_seconds)


@app.command("eval")
def evaluate(
    actor: Annotated[str, typer.Argument(help="a run folder, a checkpoint, a Hugging Face folder or a shipped actor")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    panel: Annotated[list[str] | None, typer.Option(help="panel or split; may be given several times")] = None,
    out: Annotated[Path | None, typer.Option(help="write every episode to this JSONL file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Evaluate an actor on fixed panels, each task once.

    A run folder brings its own configuration. Example: `bipace eval runs/demo --panel heldout-panel`
    """
    from bipace.cli.session import evaluate_actor

    found = evaluate_actor(actor, config, overrides or (), panel, out, quiet=as_json)
    if as_json:
        print(json.dumps(found))


@app.command()
def play(
    suite: Annotated[str, typer.Argument(help="textcraft, or your own module:attribute")] = "textcraft",
    task: Annotated[str | None, typer.Option(help="task id; default: the first of the split")] = None,
    split: Annotated[str | None, typer.Option(help="where the default task comes from; default: the first")] = None,
    web: Annotated[
        bool, typer.Option("--web", help="as pages in a browser (webshop only), on this machine alone")
    ] = False,
    port: Annotated[int, typer.Option(help="of the pages")] = 8734,
    hint: Annotated[bool, typer.Option(help="print the expert's plan first")] = False,
) -> None:
    """Play an episode by hand, in the terminal or in a browser."""
    from bipace.envs.base import offers_of
    from bipace.envs.registry import get_suite
    from bipace.envs.terminal import play_in_terminal
    from bipace.rollout.panel import panel_tasks

    family = get_suite(suite)
    if web:
        pages = offers_of(family).pages
        if pages is None:
            raise ValueError(f"--web: {suite} has no pages to play in a browser; play it without --web")
        pages(port)
        return
    play_in_terminal(family, task or panel_tasks(family, split or next(iter(family.splits)))[0], hint=hint)


@app.command()
def envs() -> None:
    """List the environments, their splits, and how to get the official games and data."""
    from rich.console import Console
    from rich.table import Table

    from bipace.envs.base import offers_of
    from bipace.envs.registry import SUITES, get_suite

    absent: list[str] = []
    table = Table("suite", "horizon", "splits and panels (tasks)", "data")
    for name in SUITES:
        try:
            suite = get_suite(name)
        except ModuleNotFoundError as error:
            table.add_row(name, "", f"not installed: {error}", "")
            continue
        splits = ", ".join(f"{split} ({len(tasks)})" for split, tasks in suite.splits.items())
        table.add_row(name, str(suite.max_steps), splits, offers_of(suite).data_label)
        absent += [f"{name}: {more.removeprefix('; ')}"] if (more := offers_of(suite).absent) else []
    Console().print(table)
    for line in absent:
        print(line)


@app.command()
def recipes(as_json: Annotated[bool, typer.Option("--json", help="every recipe with its terms")] = False) -> None:
    """List the estimators."""
    from bipace.core.estimators import RECIPES, describe

    if as_json:
        print(json.dumps({name: describe(make()) for name, make in RECIPES.items()}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("recipe", "what it computes", "options (credit.NAME=VALUE)")
    for name, make in RECIPES.items():
        table.add_row(name, (make.__doc__ or "").splitlines()[0], ", ".join(_options(make)))
    Console().print(table)


@app.command()
def credit(
    source: Annotated[str, typer.Argument(help="world:NAME (exact truth), a shipped actor, a run or a model folder")],
    overrides: Overrides = None,
    recipe: Annotated[list[str] | None, typer.Option(help="'bipace eps=0.02 layer=1'; default: all shipped")] = None,
    groups: Annotated[int, typer.Option(min=1, help="prompt groups a seed")] = 16,
    group_size: Annotated[int, typer.Option(help="trajectories a prompt group (G)")] = 8,
    smaller: Annotated[list[int] | None, typer.Option(help="judge on this smaller G too")] = None,
    rerolls: Annotated[int, typer.Option(help="continuations a state (K)")] = 8,
    features: Annotated[str | None, typer.Option(help="judge on this model's hidden states at features.layer")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="independent collections")] = 1,
    out: Annotated[Path | None, typer.Option(help="where truths are kept; default runs/credit/SOURCE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure how close recipes' advantages are to the true ones, on the same rollouts.

    The truth is collected once and kept; new recipes are judged in seconds. Examples: `bipace credit world:grid` ·
    `bipace credit textcraft-small --seeds 5` · `bipace credit runs/demo --recipe gigpo --recipe 'bipace eps=0.02'`
    """
    from bipace.cli.credit import WORLD, actor_truths, judge, reread, world_truths
    from bipace.credit.report import draw_scores, score_table

    folder = out or Path("runs/credit") / Path(source.removeprefix(WORLD)).name
    if source.startswith(WORLD):
        truths = world_truths(source.removeprefix(WORLD), folder, groups=groups, group_size=group_size, seeds=seeds)
    else:
        truths = actor_truths(
            source, overrides or (), folder, groups=groups, group_size=group_size, rerolls=rerolls, seeds=seeds
        )
    if features is not None:
        truths = reread(truths, folder, features, overrides or ())
    found = judge(truths, recipe or (), smaller or ())
    (folder / "credit.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw_scores({source: found}, folder / "credit.png")
    if as_json:
        print(json.dumps(found))
        return
    from rich.console import Console

    Console().print(score_table(found))
    Console().print(f"scores {folder / 'credit.json'}\npicture {folder / 'credit.png'}", highlight=False)


@app.command()
def analyze(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="trajectory files, or folders of them")],
    out: Annotated[Path | None, typer.Option(help="where the page goes; default credit.html; `-` for none")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print what the page shows; no page unless --out")] = False,
    format: Annotated[str | None, typer.Option(help="force a reader (default: by content)")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="PART=COLUMN", help="where a part stands: `reward=score`, `reward=info.score`"),
    ] = None,
    rewards: Annotated[Path | None, typer.Option(help="rewards kept elsewhere: {id: reward}, rows, a report")] = None,
    row_reward: Annotated[
        str, typer.Option(help="a reward on every row of a trajectory: auto, last (counts once) or each")
    ] = "auto",
    recipe: Annotated[
        list[str] | None, typer.Option(metavar="FILE.py:NAME", help="a recipe of your own, beside the shipped ones")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="local Hugging Face folder: hidden states as features")] = None,
    layer: Annotated[str, typer.Option(help="its layer: index, -1 from the end, or fraction of the depth")] = "0.75",
    eps: Annotated[float, typer.Option(help="cosine radius of a cluster")] = 0.1,
    gamma: Annotated[float, typer.Option(help="discount of the return-to-go")] = 0.95,
    mode: Annotated[
        str | None, typer.Option(help="mean_std_norm or mean_norm for both terms; default: each recipe its own")
    ] = None,
    action_key: Annotated[str, typer.Option(help="action_tag or first_word")] = "action_tag",
    merge: Annotated[bool | None, typer.Option("--merge/--apart", help="join equal task ids of several files")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="stop at the first place that cannot be read")] = False,
    page_steps: Annotated[int, typer.Option(help="steps in the page; larger inputs are sampled by group")] = 30_000,
    page_mb: Annotated[float, typer.Option(help="texts in the page are cut until it is about this small")] = 3.0,
    export: Annotated[
        Path | None, typer.Option(help="every step with every advantage, cluster, Q, V: .parquet or .csv")
    ] = None,
    fail_on: Annotated[str | None, typer.Option(help="exit with 1 on a finding this grave: warning or error")] = None,
    detail: Annotated[bool, typer.Option("--detail", help="explain every finding")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="print the first two trajectories as understood, and what was dropped")
    ] = False,
) -> None:
    """Show what the rollouts you already have say about credit: findings, numbers and one HTML page. Needs no GPU.

    Reads files and run folders of verl, TRL, verifiers and prime-rl, NeMo Gym, ART, Inspect, Harbor (ATIF),
    terminal-bench, SWE-agent, OpenHands, tau-bench, Claude Code, Langfuse and OpenInference, OpenAI messages, this
    project's runs and flat tables (JSONL, CSV, parquet); gzip and zstd too. Examples: `bipace analyze results.jsonl` ·
    `bipace analyze 40.jsonl --fail-on warning` ·
    `bipace analyze rows.parquet --map task=prompt_id --map reward=score`
    """
    from bipace.analyze.analysis import Options
    from bipace.analyze.command import parse_columns, run, run_explain

    options = Options(
        gamma=gamma, mode=mode, eps=eps, action_key=action_key, model=None if model is None else str(model),
        layer=float(layer) if "." in layer else int(layer), format=format, columns=parse_columns(columns or ()),
        merge=merge, strict=strict, page_steps=page_steps, page_mb=page_mb, rewards=rewards, row_reward=row_reward,
        recipes=tuple(recipe or ()),
    )  # fmt: skip
    if explain:
        raise typer.Exit(run_explain(files, options))
    page = out or (None if as_json else Path("credit.html"))
    page = None if page == Path("-") else page
    raise typer.Exit(run(files, options, page=page, as_json=as_json, fail_on=fail_on, detail=detail, export=export))


@app.command("config")
def show_config(overrides: Overrides = None, config: ConfigFile = None) -> None:
    """Show every configuration key with its value and what it means."""
    from rich.console import Console
    from rich.table import Table

    from bipace.train.config import describe_config, load_config

    table = Table("key", "value", "meaning")
    for row in describe_config(load_config(config, overrides or ())):
        table.add_row(*row)
    Console().print(table)


@app.command("verl-preflight", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def verl_preflight(context: typer.Context) -> None:
    """Check a verl cluster and a job's configuration before the job runs; takes the job's own arguments."""
    from bipace.integrations.verl.preflight import main as preflight

    raise typer.Exit(min(preflight(context.args), 1))


@app.command()
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
    turns: Annotated[int | None, typer.Option(min=1, help="only the first turns of each demonstration")] = None,
    context_weight: Annotated[float, typer.Option(min=0, help="weight of predicting the observations too")] = 0.0,
    codes: Annotated[int | None, typer.Option(min=1, help="show no more than so many product ids")] = None,
) -> None:
    """Make a small warm-started actor: tokenizer and model learn the suite's expert episodes.

    This is how the shipped actors were made; the model card beside each names the exact command.
    """
    from bipace.cli.session import make_actor

    make_actor(
        out, suite=suite, size=size, target=target, steps=steps, seed=seed, start=start, every=every, lr=lr,
        config_file=config, batch=batch, turns=turns, context_weight=context_weight, codes=codes,
    )  # fmt: skip


def _options(make: Any) -> list[str]:
    import inspect

    return [f"{p.name}={p.default}" for p in inspect.signature(make).parameters.values()]


def main() -> None:
    """Entry point: expected failures are one line on stderr, not a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, FileNotFoundError, ModuleNotFoundError, ConnectionError) as error:
        _fail(str(error))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _fail(f"no space left on the disk while writing {error.filename or 'the run folder'}; the last complete "
                  "checkpoint is whole: free some space and continue with --resume")  # fmt: skip
        raise


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
