"""The truth by re-rolls: play on K times from every state that was visited, over the steps that remained.

V(s) is the mean return of K fresh continuations by the same policy, so the rollouts under judgement never
enter their own truth (VinePPO, arXiv 2410.01679, estimates values in this way). A = r + gamma V(s') - V(s),
with V = 0 behind an episode's last step.

Two steps are in one state when the task and everything the policy can have read and done so far are equal:
the whole token prefix for a transcript, the sequence of actions for a window. Both fix the environment's
state, because an environment answers the same actions with the same text; and the number of steps that
remain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bipace.core.actions import RefusedActions
from bipace.core.steps import Floats
from bipace.rollout.collect import Collector, Decoder, Start
from bipace.rollout.records import Trajectory
from bipace.rollout.table import to_rows
from bipace.truth.table import SUFFIXES, Truth, join, load_rollouts, load_truth, save_rollouts, save_truth

__all__ = ["Describe", "Settings", "measure", "weights_hash"]

Progress = Callable[[int, int], None]


class Describe(Protocol):
    """The model's view of rollouts (bipace.truth.gradients.describe)."""

    def __call__(
        self, trajectories: Sequence[Trajectory]
    ) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.float32]]:
        """Layer name -> [N, D] features, and [N, W] gradient vectors of the steps."""
        ...


@dataclass(frozen=True)
class Settings:
    """How a truth is collected; part of its identity.

    Attributes:
        group_size: G, at least 2.
        rerolls: K continuations a state, at least 2.
        seed: fixes every draw, together with the number of the part.
        gamma: discount.
        reward_scale: reward unit of the estimators per unit of the environment.
        temperature: of sampling, in rollouts and re-rolls alike.
        action_key: see `to_rows`.
        refused_actions: see `to_rows`.

    Raises:
        ValueError: G or K below 2.
    """

    group_size: int = 8
    rerolls: int = 8
    seed: int = 0
    gamma: float = 0.95
    reward_scale: float = 10.0
    temperature: float = 1.0
    action_key: str = "executed"
    refused_actions: RefusedActions = "many"

    def __post_init__(self) -> None:
        for name in ("group_size", "rerolls"):
            if getattr(self, name) < 2:
                raise ValueError(
                    f"{name}: {getattr(self, name)}, expected at least 2: with fewer nothing is compared"
                )


# long: a third of it says what the arguments are
def measure(
    actor: Decoder,
    collector: Collector,
    tasks: Sequence[str],
    path: Path,
    settings: Settings,
    *,
    generator: Callable[[int], Any],
    describe: Describe,
    identity: Mapping[str, Any],
    groups_per_part: int = 2,
    progress: Progress = lambda _done, _total: None,
) -> Truth:
    """Collect rollouts with their truth, or read them where they were collected before.

    Finished parts are kept beside PATH, so that a stopped collection goes on where it was.

    Args:
        actor: the policy.
        collector: how it plays.
        tasks: prompt groups.
        path: where the truth is kept (PATH.npz, PATH.json).
        settings: G, K and the rest.
        generator: number -> the actor's random stream.
        describe: features and gradients of rollouts.
        identity: what else the truth depends on: the weights' hash and the configuration.
        groups_per_part: prompt groups collected between two saves.
        progress: called with the finished and the total number of prompt groups.

    Raises:
        ValueError: an environment without `copy`, or one that answers the same actions differently; a saved
            truth of another identity.
    """
    if not callable(getattr(collector.suite.make(), "copy", None)):
        raise ValueError(
            f"env.suite: the environments of {collector.suite.name!r} have no copy(), so a state cannot be "
            "played on from; give them one (bipace.envs.base says what it must do), or name another suite"
        )
    whole = {**identity, **asdict(settings), "horizon": collector.max_steps}
    whole |= {"suite": collector.suite.name, "tasks": list(tasks)}
    saved = load_truth(path, whole)
    if saved is not None:
        return saved
    parts: list[Truth] = []
    starts = range(0, len(tasks), groups_per_part)
    for number, start in enumerate(starts):
        chosen = list(tasks[start : start + groups_per_part])
        place = path.with_name(f"{path.name}.part{number:03d}")
        part = load_truth(place, {**whole, "part": chosen})
        if part is None:
            stream = generator(settings.seed * 1_000_003 + number)
            part, kept = _measure_part(actor, collector, chosen, settings, stream, describe)
            part = replace(part, identity={**whole, "part": chosen})
            save_rollouts([t.to_json() for t in kept], place)
            save_truth(part, place)
        parts.append(part)
        progress(min(start + groups_per_part, len(tasks)), len(tasks))
    truth = join(parts, whole)
    places = [path.with_name(f"{path.name}.part{number:03d}") for number in range(len(starts))]
    save_rollouts([line for place in places for line in load_rollouts(place)], path)
    save_truth(truth, path)
    for place in places:
        for suffix in SUFFIXES:
            place.with_name(place.name + suffix).unlink()
    return truth


def weights_hash(folder: Path) -> str:
    """SHA-256 over the weights and the configuration of a model folder: its identity, whatever its name."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _measure_part(
    actor: Decoder,
    collector: Collector,
    tasks: Sequence[str],
    settings: Settings,
    stream: Any,
    describe: Describe,
) -> tuple[Truth, list[Trajectory]]:
    played = collector.collect(
        actor, tasks, settings.group_size, temperature=settings.temperature, generator=stream
    )
    kept = [t for t in played if t.steps and not t.error]
    if not kept:
        raise ValueError(
            f"tasks: no episode of {', '.join(tasks)} was played to the end; nothing can be measured"
        )
    states: dict[tuple[object, ...], int] = {}
    starts: list[Start] = []
    here: list[int] = []
    for trajectory in kept:
        for key, start in _visited(collector, trajectory):
            if key not in states:
                states[key] = len(starts)
                starts.append(start)
            here.append(states[key])
    returns = settings.reward_scale * _play_on(actor, collector, starts, settings, stream)
    layers, gradient = describe(kept)
    batch = to_rows(
        kept,
        action_key=settings.action_key,
        refused_actions=settings.refused_actions,
        reward_scale=settings.reward_scale,
    ).batch
    state = np.array(here, np.int64)
    goes_on = np.zeros(len(batch), np.bool_)
    goes_on[:-1] = batch.trajectory[1:] == batch.trajectory[:-1]
    following = np.where(goes_on, np.roll(state, -1), -1)

    def estimate(columns: slice) -> tuple[Floats, Floats]:
        values = np.append(returns[:, columns].mean(axis=1), 0.0)  # the last entry is the end of an episode
        return values[state], batch.reward + settings.gamma * values[following] - values[state]

    value, advantage = estimate(slice(None))
    noise = np.append(returns.var(axis=1, ddof=1) / settings.rerolls, 0.0)
    halves = np.stack([estimate(slice(first, None, 2))[1] for first in (0, 1)])
    error = np.sqrt(noise[state] + settings.gamma**2 * noise[following])
    return Truth(batch, value, advantage, halves, error, gradient, layers), kept


def _visited(collector: Collector, trajectory: Trajectory) -> list[tuple[tuple[object, ...], Start]]:
    """The state before every step, found by playing the actions again."""
    environment = collector.suite.make()
    turn = environment.reset(trajectory.task)
    found: list[tuple[tuple[object, ...], Start]] = []
    tokens = trajectory.sequences[0].tokens if collector.style == "transcript" else np.zeros(0, np.int64)
    for t, step in enumerate(trajectory.steps):
        if turn.observation != step.observation:
            raise ValueError(
                f"{collector.suite.name}: task {trajectory.task!r} answered the same actions differently "
                f"at step {t}; "
                "credit can be measured only where a state can be visited again"
            )
        before = tuple(trajectory.steps[:t])
        prefix = tokens[: trajectory.sequences[0].spans[t][0]] if collector.style == "transcript" else tokens
        past = prefix.tobytes() if len(prefix) else tuple(s.action for s in before)
        start = Start(trajectory.task, environment.copy(), turn, before, tuple(prefix.tolist()))
        found.append(((trajectory.task, t, past), start))
        turn = environment.step(step.action)
    return found


def _play_on(
    actor: Decoder, collector: Collector, starts: Sequence[Start], settings: Settings, stream: Any
) -> Floats:
    """[S, K] discounted returns from each state, in the environment's unit."""
    returns = np.zeros((len(starts), settings.rerolls))
    for age in sorted({len(start.steps) for start in starts}):
        chosen = [i for i, start in enumerate(starts) if len(start.steps) == age]
        played = collector.play_on(
            actor,
            [starts[i] for i in chosen],
            settings.rerolls,
            temperature=settings.temperature,
            generator=stream,
        )
        gained = [sum(settings.gamma**k * s.reward for k, s in enumerate(t.steps[age:])) for t in played]
        returns[chosen] = np.reshape(gained, (len(chosen), settings.rerolls))
    return returns
