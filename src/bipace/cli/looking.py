"""Commands that look: play an environment; list environments, recipes, settings; what this machine runs."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from bipace.cli.arguments import ConfigFile, Overrides
from bipace.cli.tables import show_table

__all__ = ["doctor", "envs", "play", "recipes", "show_config", "verl_preflight"]


def play(
    suite: Annotated[str, typer.Argument(help="textcraft, or your own module:attribute")] = "textcraft",
    task: Annotated[str | None, typer.Option(help="task id; default: the first of the split")] = None,
    split: Annotated[
        str | None, typer.Option(help="where the default task comes from; default: the first")
    ] = None,
    web: Annotated[
        bool,
        typer.Option("--web", help="as pages in a browser, where the suite has some, on this machine alone"),
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


def envs() -> None:
    """List the environments, their splits, and how to get the official games and data."""
    from bipace.envs.base import offers_of
    from bipace.envs.registry import SUITES, get_suite

    rows: list[tuple[str, str, str, str]] = []
    absent: list[str] = []
    for name in SUITES:
        try:
            suite = get_suite(name)
        except ModuleNotFoundError as error:
            rows.append((name, "", f"not installed: {error}", ""))
            continue
        splits = ", ".join(f"{split} ({len(tasks)})" for split, tasks in suite.splits.items())
        rows.append((name, str(suite.max_steps), splits, offers_of(suite).data_label))
        absent += [f"{name}: {more.removeprefix('; ')}"] if (more := offers_of(suite).absent) else []
    show_table(("suite", "horizon", "splits and panels (tasks)", "data"), rows)
    for line in absent:
        print(line)


def recipes(
    as_json: Annotated[bool, typer.Option("--json", help="every recipe with its terms")] = False,
) -> None:
    """List the estimators."""
    from bipace.core.estimators import RECIPES, describe

    if as_json:
        print(json.dumps({name: describe(make()) for name, make in RECIPES.items()}, indent=1))
        return
    rows = [
        (name, (make.__doc__ or "").splitlines()[0], ", ".join(_options(make)))
        for name, make in RECIPES.items()
    ]
    show_table(("recipe", "what it computes", "options (credit.NAME=VALUE)"), rows)


def show_config(
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="the schema: key, type, default, meaning; and value")
    ] = False,
) -> None:
    """Show every configuration key with its value and what it means."""
    from bipace.train.config import config_schema, describe_config, load_config, value_of

    settings = load_config(config, overrides or ())
    if as_json:
        rows = config_schema(settings.estimator)
        print(json.dumps([{**row, "value": value_of(settings, row)} for row in rows], indent=1))
        return
    show_table(("key", "value", "meaning"), describe_config(settings))


def doctor(as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Say what is installed, what this machine has, and which commands would run."""
    from bipace.cli.health import examine, print_health

    found = examine()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        print_health(found)


def verl_preflight(context: typer.Context) -> None:
    """Check a verl cluster and a job's configuration before the job runs; takes the job's own arguments."""
    from bipace.integrations.verl.preflight import main as preflight

    raise typer.Exit(min(preflight(context.args), 1))


def _options(make: Any) -> list[str]:
    import inspect

    return [f"{p.name}={p.default}" for p in inspect.signature(make).parameters.values()]
