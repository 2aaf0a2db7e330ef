"""An actor judged on fixed panels: what `bipace eval` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bipace.envs.registry import get_suite
from bipace.rollout.panel import PanelResult, choose_panels, panel_tasks
from bipace.rollout.records import Trajectory
from bipace.train.actors import make_collector, open_actor
from bipace.train.config import Config
from bipace.train.split import cut, shard_seeds
from bipace.train.stopped import refuse_aborted
from bipace.train.threads import use_threads

__all__ = ["evaluate_actor"]


def evaluate_actor(
    place: Path,
    settings: Config,
    panels: Sequence[str] | None = None,
    progress: Callable[[str, int, int], None] = lambda _panel, _episodes, _tasks: None,
) -> dict[str, PanelResult]:
    """Play every task of each panel once.

    Args:
        place: the actor's folder (`bipace.train.places.actor_folder` finds it by name or run).
        settings: environment, prompt, temperature and seed.
        panels: names of panels or splits; default the settings' panel and held-out panels.
        progress: called with panel, finished episodes and tasks of the panel.

    Raises:
        ConfigError, ValueError: an actor, suite or panel that cannot be used.
        NothingPlayed: every episode of a panel was aborted by its environment.
    """
    suite = get_suite(settings.env.suite)
    model = open_actor(place, device=settings.actor.device)
    use_threads(model, settings.actor.threads)
    shards = settings.actor.shards
    collector = make_collector(settings, suite)
    chosen = choose_panels(suite, settings.env.split, settings.env.panel, settings.env.held_out)
    tasks = {name: panel_tasks(suite, name) for name in panels or [chosen.panel, *chosen.held_out]}
    results: dict[str, PanelResult] = {}
    for name, ids in tasks.items():
        progress(name, 0, len(ids))
        played: list[Trajectory] = []
        seeds = shard_seeds(settings.run.seed, shards)
        for part, seed in zip(cut(ids, shards), seeds, strict=True):  # as a run's own validations are played
            had = len(played)
            played += collector.collect(
                model,
                part,
                1,
                temperature=settings.run.validation_temperature,
                generator=torch.Generator(device=model.device).manual_seed(seed),
                progress=lambda n, name=name, ids=ids, had=had: progress(name, had + n, len(ids)),
            )
        result = PanelResult(collector.suite, played)
        refuse_aborted(result.trajectories, f"on {name}", "Mend the environment and evaluate again")
        results[name] = result
    return results
