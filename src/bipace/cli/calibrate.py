"""`bipace calibrate`: one batch of rollouts, every layer and radius, and the pair to take."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bipace.cli.extras import require

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
    found = run(actor, config, overrides or (), whiten)
    out.mkdir(parents=True, exist_ok=True)
    require("bipace calibrate", "train")

    from bipace.train.files import write_json
    from bipace.truth.calibration import draw_scan, lines_to_paste, scan_table

    shown = describe(found, actor)
    write_json(out / "calibration.json", shown)
    draw_scan(found, out / "calibration.png")
    if as_json:
        print(json.dumps(shown))
        return
    from rich.console import Console

    console = Console()
    console.print(scan_table(found))
    console.print(found.why(), highlight=False)
    if found.warning:
        console.print(f"warning: {found.warning}", highlight=False)
    console.print(f"\n{lines_to_paste(found)}\n", highlight=False, markup=False)
    console.print(f"grid {out / 'calibration.json'}\npicture {out / 'calibration.png'}", highlight=False)


def run(actor: str, config_file: Path | None, overrides: Sequence[str], whiten: Sequence[int] | None) -> Any:
    """Play one iteration's rollouts and scan them.

    Raises:
        ValueError: a recipe that clusters no features, or with a radius of its own; one trajectory a group;
            rollouts without any reward, or in which every group's trajectories earned the same.
    """
    import torch
    from rich.console import Console

    from bipace.core.calibrate import open_directions
    from bipace.envs.registry import get_suite
    from bipace.policies.hf import Actor
    from bipace.rollout.panel import choose_panels
    from bipace.rollout.sampler import choose_tasks
    from bipace.rollout.table import to_rows
    from bipace.train.actors import make_collector
    from bipace.train.calibration import scan_rollouts
    from bipace.train.config import ConfigError, load_config
    from bipace.train.places import actor_folder

    config = load_config(config_file, overrides)
    made = (
        load_config(config_file, [*overrides, "credit.eps=calibrate"]).recipe() if takes_eps(config) else None
    )
    if made is None or open_directions(made) is None:
        raise ConfigError(
            f"estimator: {config.estimator!r} does not cluster hidden states, so there is no layer or eps to choose; "
            "take bipace, bigpo or diff_peer with credit.clusters=features"
        )
    if config.rollout.group_size < 2:
        raise ConfigError(
            "rollout.group_size: 1, so a step has nobody to be compared with and no layer and eps can be chosen; "
            "use rollout.group_size=8"
        )
    suite = get_suite(config.env.suite)
    tasks = suite.splits[choose_panels(suite, config.env.split, config.env.panel, config.env.held_out).split]
    model = Actor.load(actor_folder(actor), device=config.actor.device)
    played = config.rollout
    chosen = choose_tasks(
        len(tasks), min(played.tasks, len(tasks)), seed=config.run.seed, iteration=0, order=played.order
    )
    Console(file=sys.stderr).print(
        f"playing {len(chosen)} prompt groups of {played.group_size} ...", highlight=False
    )
    trajectories = make_collector(config, suite).collect(
        model,
        [tasks[int(i)] for i in chosen],
        played.group_size,
        temperature=played.temperature,
        generator=torch.Generator(device=model.device).manual_seed(config.run.seed),
    )
    kept = [t for t in trajectories if t.steps and not t.error]
    rows = to_rows(
        kept,
        action_key=config.features.action_key,
        refused_actions=config.features.refused_actions,
        reward_scale=config.env.reward_scale,
        success_only=config.env.reward == "success",
    )
    sequences = [s for t in kept for s in t.sequences]
    return scan_rollouts(model, sequences, rows, made, config, directions=tuple(whiten or (0,)))[0]


def takes_eps(config: Any) -> bool:
    """Whether the configured estimator has a radius."""
    from bipace.core.estimators import recipe_options

    return "eps" in recipe_options(config.estimator)


def describe(found: Any, actor: str) -> dict[str, Any]:
    """The scan as JSON: grid, choice, why, warning."""
    return {
        "actor": actor, "choice": found.chosen.to_json(), "why": found.why(), "warning": found.warning,
        "level": found.level, "grid": [pair.to_json() for pair in found.pairs],
    }  # fmt: skip
