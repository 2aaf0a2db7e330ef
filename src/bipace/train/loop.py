"""The training loop: collect, score, credit, update, report. One iteration is one pass of the data through the house.

Every random choice of iteration i follows from (seed, i), so a resumed run draws what an uninterrupted one would have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch

from bipace.core.advantages import Recipe, advantages
from bipace.core.calibrate import calibration_metrics, choose, hold
from bipace.core.diagnostics import credit_diagnostics
from bipace.core.steps import StepBatch
from bipace.envs.base import Suite
from bipace.envs.registry import get_suite
from bipace.rollout.panel import PanelResult, choose_panels, evaluate, panel_tasks
from bipace.rollout.records import TokenSequence, Trajectory, events
from bipace.rollout.sampler import choose_tasks
from bipace.rollout.table import to_rows
from bipace.train.actors import load_actor, make_collector, make_decoder, reference_actor
from bipace.train.checkpoint import load_optimizer, read_state, save_checkpoint, write_text
from bipace.train.config import Config, ConfigError
from bipace.train.interrupt import finish_iteration_first
from bipace.train.loggers import check_loggers, open_loggers
from bipace.train.run_folder import append_lines, begin, check_folder, provenance, rewind, start_of
from bipace.train.timing import Clock
from bipace.train.update import engine_gap, sampled_scores, score_sequences, token_values, update_policy

__all__ = ["NonFiniteError", "Run", "train"]

# Streams of random numbers: (seed, iteration, stream) -> independent generators; 0 and 3 are the sampler's.
_SAMPLING, _SHUFFLE = 1, 2


class NonFiniteError(RuntimeError):
    """The policy broke down: too many non-finite updates, or its weights or probabilities are no numbers.

    The last checkpoint is kept.
    """


@dataclass
class Run:
    """A training run: what it needs, and where it is.

    Attributes:
        config: the resolved configuration.
        folder: where everything is written.
        checkpoint: where it goes on from, or None for the configured actor.
        iteration: iterations completed.
        best: best validation success so far, -1 before the first.
        best_iteration: the iteration of its checkpoint, None before the first.
        validations: panel -> iteration -> success, interval and families.
    """

    config: Config
    folder: Path
    checkpoint: Path | None = None
    iteration: int = 0
    best: float = -1.0
    best_iteration: int | None = None
    validations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def __post_init__(self) -> None:
        config = self.config
        if config.actor.threads:
            torch.set_num_threads(config.actor.threads)
        self.recipe = config.recipe()
        self.suite: Suite = get_suite(config.env.suite)
        self.panels = choose_panels(self.suite, config.env.split, config.env.panel, config.env.held_out)
        self.tasks: Sequence[str] = self.suite.splits[self.panels.split]
        if len(self.tasks) < config.rollout.tasks:
            raise ConfigError(
                f"rollout.tasks: {config.rollout.tasks}, but split {self.panels.split!r} holds {len(self.tasks)} tasks"
            )
        self.actor = load_actor(config, self.checkpoint)
        self.layer = self.actor.layer_index(config.features.layer) if config.captures else None
        self.from_rollout = config.features.source == "rollout"
        self.decoder = make_decoder(config, self.actor)
        self.collector = make_collector(config, self.suite, self.layer if self.from_rollout else None)
        self.optimizer = torch.optim.AdamW(
            self.actor.model.parameters(), lr=config.update.lr, weight_decay=config.update.weight_decay, fused=True
        )
        self.reference = reference_actor(config)
        self.skipped = 0
        self.radius: tuple[float, int] | None = None  # (eps, whiten) that eps="auto" chose last
        if self.checkpoint:
            load_optimizer(self.optimizer, self.checkpoint)
            state = read_state(self.checkpoint)
            self.iteration, self.skipped, self.validations = state["iteration"], state["skipped"], state["validations"]
            self.best, self.best_iteration = state["best"], state["best_iteration"]
            self.radius = tuple(state["radius"]) if state["radius"] else None

    @property
    def improved(self) -> bool:
        """True where this iteration's validation is better than any before."""
        return self._latest_success() > self.best

    def step(self) -> dict[str, float]:
        """One iteration: 16 prompt groups of 8 episodes by default, one update."""
        config, clock = self.config, Clock()
        with clock("rollout"):
            trajectories = self.collect()
        kept = [t for t in trajectories if t.steps and not t.error]
        sequences = [s for t in kept for s in t.sequences]
        temperature = config.rollout.temperature
        scoring = {"micro_tokens": config.update.micro_tokens, "temperature": temperature}
        shared = self.layer if config.features.source != "separate" else None
        with clock("old_logprob"):
            scored = (
                sampled_scores(sequences)
                if self.from_rollout and sequences
                else score_sequences(self.actor, sequences, layer=shared, **scoring)
            )
        if not _finite(scored.logprobs):
            raise self._broken("the policy's probabilities are not finite")
        features = scored.features
        if config.features.source == "separate" and self.layer is not None:
            with clock("features"):
                features = score_sequences(self.actor, sequences, layer=self.layer, **scoring).features
        with clock("credit"):
            rows = to_rows(
                kept,
                features=features,
                action_key=config.features.action_key,
                refused_actions=config.features.refused_actions,
                reward_scale=config.env.reward_scale,
                success_only=config.env.reward == "success",
                invalid_action_penalty=config.update.invalid_action_penalty,
            )
            made, chosen = self._held(rows.batch)
            found = advantages(rows.batch, made)
            values = token_values(sequences, rows.scatter(found.values))
        reference = None
        if config.update.kl_loss_coef > 0:
            frozen = self.reference or self.actor
            with clock("reference"), frozen.without_adapter():
                reference = score_sequences(frozen, sequences, layer=None, **scoring).logprobs
        self._set_learning_rate()
        with clock("update"), self.actor.checkpointing(config.actor.checkpointing):
            updated = update_policy(
                self.actor,
                self.optimizer,
                sequences,
                scored.logprobs,
                values,
                config.update,
                groups=[trajectory.task for trajectory in kept for _ in trajectory.sequences],
                shuffle=self._numpy(_SHUFFLE),
                reference=reference,
                temperature=temperature,
                autocast=config.actor.autocast,
            )
        self._guard(updated, sequences)
        with clock("sync"):
            self.decoder.sync()
        self.iteration += 1
        if config.run.save_rollouts:
            append_lines(
                self.folder / "rollouts.jsonl", [{"iteration": self.iteration, **t.to_json()} for t in trajectories]
            )
        return {
            **_episode_metrics(trajectories),
            **events(trajectories),
            **credit_diagnostics(rows.batch, found),
            **chosen,
            **({} if self.from_rollout else engine_gap(sequences, scored)),
            **updated,
            **clock.metrics(sum(len(s.tokens) for s in sequences)),
        }

    def validate(self, panel: str) -> PanelResult:
        """Play every task of a panel once and remember the result."""
        result = evaluate(
            self.decoder,
            self.collector,
            panel_tasks(self.suite, panel),
            temperature=self.config.run.validation_temperature,
            generator=self._generator(self.config.run.seed),
        )
        self.validations.setdefault(panel, {})[str(self.iteration)] = result.summary()
        place = self.folder / "validation" / f"iteration-{self.iteration:06d}.{quote(panel, safe='')}.jsonl"
        place.parent.mkdir(exist_ok=True)
        write_text(place, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in result.by_task()))
        return result

    def save(self) -> None:
        """Write a checkpoint of the present state."""
        best = self.improved
        if best:
            self.best, self.best_iteration = self._latest_success(), self.iteration
        state = {
            "iteration": self.iteration,
            "best": self.best,
            "best_iteration": self.best_iteration,
            "skipped": self.skipped,
            "radius": self.radius,
            "validations": self.validations,
        }
        save_checkpoint(self.folder, self.actor, self.optimizer, state, best=best)

    def _latest_success(self) -> float:
        return self.validations.get(self.panels.panel, {}).get(str(self.iteration), {}).get("success", -1.0)

    def collect(self) -> list[Trajectory]:
        """This iteration's rollouts, task-major."""
        config = self.config
        chosen = choose_tasks(
            len(self.tasks),
            config.rollout.tasks,
            seed=config.run.seed,
            iteration=self.iteration,
            order=config.rollout.order,
        )
        generator = self._generator(int(self._numpy(_SAMPLING).integers(2**63)))
        return self.collector.collect(
            self.decoder,
            [self.tasks[i] for i in chosen],
            self.config.rollout.group_size,
            temperature=self.config.rollout.temperature,
            generator=generator,
        )

    def _held(self, batch: StepBatch) -> tuple[Recipe, dict[str, float]]:
        """The recipe at the radius of eps="auto", chosen anew where its turn has come, and what to log of it."""
        every = self.config.features.calibrate_every
        due = self.radius is None or (every and self.iteration % every == 0)
        found = choose(batch, self.recipe.terms) if due else None
        if found is not None:
            self.radius = found.eps, found.whiten
        if self.radius is None:
            return self.recipe, {}
        metrics = calibration_metrics(found) if found else {"eps": self.radius[0], "whiten": float(self.radius[1])}
        return hold(self.recipe, *self.radius), {f"credit/{name}": value for name, value in metrics.items()}

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(device=self.actor.device).manual_seed(seed)

    def _numpy(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self.config.run.seed, self.iteration, stream))

    def _set_learning_rate(self) -> None:
        """Linear decay to a tenth over lr_decay iterations; it depends on the iteration alone, so it resumes itself."""
        update = self.config.update
        left = max(0.0, 1.0 - self.iteration / update.lr_decay) if update.lr_decay else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = update.lr * (0.1 + 0.9 * left)

    def _guard(self, updated: dict[str, float], sequences: Sequence[TokenSequence]) -> None:
        self.skipped += int(updated["update/skipped"])
        allowed = self.config.update.max_skipped
        if self.skipped > allowed:
            raise self._broken(
                f"{self.skipped} updates had a non-finite loss or gradient, at most {allowed} are skipped in a run"
            )
        # One forward of one sequence tells whether what is about to be saved can still speak.
        probe = score_sequences(self.actor, sequences[:1], layer=None, micro_tokens=self.config.update.micro_tokens)
        if not _finite(probe.logprobs):
            raise self._broken("the update left a policy whose probabilities are not finite")

    def _broken(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"{what}; stopped in iteration {self.iteration + 1}. The last good state is {self.folder / 'last'}. "
            f"A smaller update.lr or update.grad_clip usually helps"
        )


def train(
    config: Config, folder: Path, *, resume: bool = False, on_iteration: Callable[[Run, dict[str, float]], None]
) -> Run:
    """Train to `run.iterations`, validating and saving on the way.

    The first Ctrl-C finishes the iteration, saves, and returns; the second stops at once (the last complete checkpoint
    stays). The panel is validated before the first iteration, every `run.validate_every`, and at the end; the held-out
    panels at the beginning and at the end.

    Args:
        config: the run.
        folder: must be empty or absent, unless resume is set.
        resume: continue the run of this folder from its last checkpoint, or from the start where it was stopped before
            the first; the configuration must be the same but for run.iterations,
            run.loggers and actor.threads.
        on_iteration: called with the run and the metrics of each finished iteration (0: the warm start's validation).

    Raises:
        ConfigError: the folder holds another run, or resume with another configuration.
        NonFiniteError: the update broke down.
        OSError: the disk is full (errno ENOSPC); the last complete checkpoint is untouched.
    """
    check_folder(config, folder, resume)
    check_loggers(config.run.loggers)
    run = Run(config, folder, start_of(folder) if resume else None)
    # Everything that can be wrong with the settings was found by now, before a file is written.
    tasks = {name: panel_tasks(run.suite, name) for name in (run.panels.split, run.panels.panel, *run.panels.held_out)}
    begin(config, folder, provenance(config, run.recipe, tasks))
    rewind(folder, run.iteration if run.checkpoint else -1, run.best_iteration)
    with open_loggers(config, folder, run.iteration) as log, finish_iteration_first() as interrupted:

        def record(metrics: dict[str, float]) -> None:
            append_lines(folder / "metrics.jsonl", [{"iteration": run.iteration, **metrics}])
            log(run.iteration, metrics)
            on_iteration(run, metrics)

        if run.checkpoint is None:
            record(_validation(run, first=True))
            run.save()
        while run.iteration < config.run.iterations and not interrupted:
            metrics = run.step()
            last = run.iteration == config.run.iterations
            if last or run.iteration % config.run.validate_every == 0:
                metrics |= _validation(run, last=last)
            record(metrics)
            if last or interrupted or run.improved or run.iteration % config.run.save_every == 0:
                run.save()
    return run


def _validation(run: Run, first: bool = False, last: bool = False) -> dict[str, float]:
    start = time.perf_counter()
    panels = (run.panels.panel, *(run.panels.held_out if first or last else ()))
    metrics: dict[str, float] = {}
    for panel in panels:
        result = run.validate(panel)
        metrics |= {f"val/{panel}/{name}": value for name, value in result.metrics().items()}
    return {**metrics, "timing_s/validation": time.perf_counter() - start}


def _finite(values: Sequence[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(part).all()) for part in values)


def _episode_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    played = [t for t in trajectories if t.steps and not t.error]
    n = max(len(played), 1)
    return {
        "episode/success_rate": sum(t.won for t in played) / n,
        "episode/reward_mean": sum(t.reward for t in played) / n,
        "episode/steps_mean": sum(len(t.steps) for t in played) / n,
        "episode/count": float(len(played)),
    }
