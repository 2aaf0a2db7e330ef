"""What a command is about to do, checked before torch is imported: settings, folders, names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bipace.cli.outputs import check_folder as check_writable
from bipace.envs.registry import SUITES, get_suite
from bipace.rollout.panel import choose_panels, panel_tasks
from bipace.train.config import Config, ConfigError, add_override, config_from, load_config
from bipace.train.loggers import check_loggers
from bipace.train.places import actor_folder, run_of
from bipace.train.run_folder import check_folder, saved_config

__all__ = ["check_new_actor", "check_run", "plan_evaluation", "plan_run"]


def plan_run(
    words: Sequence[str], config: Path | None, out: Path | None, *, resume: bool
) -> tuple[Config, Path]:
    """The settings and the folder of `bipace train WORDS`.

    With --resume, a word without "=" is the run's folder (so is --out), and what it was made with is the
    start of the settings unless --config names another.

    Raises:
        ConfigError: a word that is no override, two folders, or settings that cannot be used.
    """
    overrides = [word for word in words if "=" in word]
    folders = [Path(word) for word in words if "=" not in word]
    if folders and not resume:
        hint = f"; to go on with that run: --resume {folders[0]}" if folders[0].is_dir() else ""
        raise ConfigError(
            f"override {str(folders[0])!r}: expected section.key=value, e.g. env.max_steps=12{hint}"
        )
    folders += [] if out is None else [out]
    if len({folder.resolve() for folder in folders}) > 1:
        raise ConfigError(f"--resume: {' and '.join(map(str, folders))}: name one run folder")
    if not resume or config is not None or not folders:
        settings = load_config(config, overrides)
        name = f"{Path(settings.env.suite).stem}-{Path(settings.estimator).stem}-s{settings.run.seed}"
        return settings, folders[0] if folders else Path("runs") / name
    return _changed(saved_config(folders[0]), overrides), folders[0]


def check_run(config: Config, folder: Path, *, resume: bool) -> None:
    """Find what is wrong with a run without importing torch.

    Raises:
        ConfigError: the folder, the actor, a logger or the environment does not fit.
    """
    check_folder(config, folder, resume)
    check_loggers(config.run.loggers)
    if not resume:
        actor_folder(config.actor.folder)
    if (
        config.env.suite in SUITES or ":" not in config.env.suite
    ):  # the user's own is made once, by the trainer
        choose_panels(get_suite(config.env.suite), config.env.split, config.env.panel, config.env.held_out)
    if not resume and folder.parent != folder:
        _check_place(folder.parent)


def _check_place(parent: Path) -> None:
    """Show that a folder can be made there; a run that is refused later leaves none behind."""
    made = [place for place in (parent, *parent.parents) if not place.exists()]
    check_writable(parent, "--out")
    with suppress(OSError):  # another process has begun there meanwhile
        for place in made:
            place.rmdir()


def plan_evaluation(
    actor: str, config: Path | None, overrides: Sequence[str], panels: Sequence[str] | None
) -> tuple[Config, Sequence[str] | None]:
    """The settings of an evaluation.

    Those of the run that the actor is part of, unless --config names others.

    Raises:
        ConfigError: no such actor, or settings or panels that do not exist.
    """
    actor_folder(actor)
    run = None if config is not None else run_of(Path(actor))
    settings = load_config(config, overrides) if run is None else _changed(saved_config(run), overrides)
    if settings.env.suite in SUITES or ":" not in settings.env.suite:
        suite = get_suite(settings.env.suite)
        for panel in panels or ():
            panel_tasks(suite, panel)
        choose_panels(suite, settings.env.split, settings.env.panel, settings.env.held_out)
    return settings, panels


def check_new_actor(out: Path, suite: str, start: str | None) -> None:
    """Find what is wrong with `bipace imitate` without importing torch.

    Raises:
        ConfigError: the folder is a file or holds something; no such suite or actor.
    """
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out}: is not empty; name a new folder")
    if suite in SUITES or ":" not in suite:
        get_suite(suite)
    if start is not None:
        actor_folder(start)
    check_writable(out, "OUT")


def _changed(config: Config, overrides: Sequence[str]) -> Config:
    tree = config.model_dump(mode="json")
    for override in overrides:
        add_override(tree, override)
    return config_from(tree)
