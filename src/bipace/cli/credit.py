"""What `bipace credit` runs.

Collect the truth (or read it), judge the recipes, write table, picture and JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bipace.truth.candidates import Candidate, parse_candidate, shipped
from bipace.truth.hypothesis import hypothesis
from bipace.truth.score import score_all
from bipace.truth.table import Truth, load_truth, save_truth
from bipace.truth.worlds import world_truth

if TYPE_CHECKING:
    from bipace.truth.rerolls import Settings

__all__ = ["actor_truths", "chosen", "judge", "reread", "world_truths"]


def world_truths(
    name: str, folder: Path, *, groups: int, group_size: int, seeds: int, **options: Any
) -> list[Truth]:
    """The exact truth of a text process for each seed, kept in the folder."""
    found: list[Truth] = []
    for seed in range(seeds):
        made = world_truth(name, groups=groups, group_size=group_size, seed=seed, **options)
        path = folder / f"seed{seed}"
        if load_truth(path, made.identity) is None:
            save_truth(made, path)
        found.append(made)
    return found


def actor_truths(
    actor: str,
    overrides: Sequence[str],
    folder: Path,
    *,
    groups: int,
    group_size: int,
    rerolls: int,
    seeds: int,
) -> list[Truth]:
    """The truth of an actor by re-rolls for each seed, kept in the folder; a stopped collection goes on.

    Args:
        actor: a shipped actor, a run or a model folder.
        overrides: configuration, e.g. env.suite and env.split.
        folder: where truths are kept.
        groups: prompt groups, drawn from the split by the seed.
        group_size: G.
        rerolls: K.
        seeds: number of collections.
    """
    from rich.console import Console
    from rich.progress import Progress

    collect, settings, tasks = _measurement(actor, overrides, group_size, rerolls)
    truths: list[Truth] = []
    with Progress(console=Console(file=sys.stderr)) as progress:
        for seed in range(seeds):
            bar = progress.add_task(f"seed {seed}", total=groups)
            drawn = np.random.default_rng(seed).choice(len(tasks), min(groups, len(tasks)), replace=False)
            truths.append(
                collect(
                    [tasks[int(i)] for i in drawn],
                    folder / f"seed{seed}",
                    replace(settings, seed=seed),
                    progress=lambda done, _total, bar=bar: progress.update(bar, completed=done),
                )
            )
            progress.update(bar, completed=groups)
    return truths


def _measurement(
    actor: str, overrides: Sequence[str], group_size: int, rerolls: int
) -> tuple[Callable[..., Truth], Settings, Sequence[str]]:
    """`measure` for this actor, how it measures, and the tasks to draw from."""
    import torch

    from bipace.envs.registry import get_suite
    from bipace.rollout.panel import choose_panels
    from bipace.train.actors import make_collector, open_actor
    from bipace.train.config import load_config
    from bipace.train.places import actor_folder
    from bipace.train.threads import use_threads
    from bipace.truth.gradients import describe
    from bipace.truth.rerolls import Settings, measure, weights_hash

    config = load_config(None, overrides)
    suite = get_suite(config.env.suite)
    place = actor_folder(actor)
    model = open_actor(place, device=config.actor.device)
    use_threads(model, config.actor.threads)
    split = choose_panels(suite, config.env.split, config.env.panel, config.env.held_out).split
    temperature = config.rollout.temperature
    collect = partial(
        measure,
        model,
        make_collector(config, suite),
        describe=partial(describe, model, temperature=temperature),
        generator=lambda number: torch.Generator(device=model.device).manual_seed(number),
        identity={
            "actor": weights_hash(place),
            "split": split,
            "prompt": config.prompt.model_dump(mode="json"),
        },
    )
    settings = Settings(
        group_size,
        rerolls,
        reward_scale=config.env.reward_scale,
        temperature=temperature,
        action_key=config.features.action_key,
        refused_actions=config.features.refused_actions,
    )
    return collect, settings, suite.splits[split]


def reread(truths: Sequence[Truth], folder: Path, model: str, overrides: Sequence[str]) -> list[Truth]:
    """The truths of the folder with the hidden states of another model, at `features.layer`."""
    from rich.console import Console
    from rich.progress import Progress

    from bipace.train.config import load_config
    from bipace.train.places import actor_folder
    from bipace.truth.reading import read_by

    layer, place = load_config(None, overrides).features.layer, actor_folder(model)
    found: list[Truth] = []
    with Progress(console=Console(file=sys.stderr)) as progress:
        for seed, truth in enumerate(truths):
            total = len(np.unique(truth.batch.trajectory))
            bar = progress.add_task(f"reading seed {seed}", total=total)
            tick = partial(progress.update, bar)
            path = folder / f"seed{seed}"
            found.append(
                read_by(truth, path, place, [layer], progress=lambda done, tick=tick: tick(completed=done))
            )
            progress.update(bar, completed=total)
    return found


def chosen(recipes: Sequence[str]) -> list[Candidate]:
    """The recipes named, in words such as "bipace eps=0.02". Raises ValueError for one that there is not."""
    return [parse_candidate(text) for text in recipes]


def judge(truths: Sequence[Truth], recipes: Sequence[str], group_sizes: Sequence[int]) -> dict[str, Any]:
    """Scores of the named recipes, or of all shipped ones, and what distance says of value in every layer."""
    scores = score_all(truths, chosen(recipes) or shipped(list(truths[0].layers)), group_sizes=group_sizes)
    return {**scores, "hypothesis": hypothesis(truths)}
