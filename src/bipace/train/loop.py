"""The training loop: collect, score, credit, update, report. One iteration is one pass of the data through the house.

Every random choice of iteration i follows from (seed, i), so a resumed run draws what an uninterrupted one
would have.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch

from bipace.core.advantages import Recipe, advantages
from bipace.core.calibrate import calibration_metrics, choose, hold, open_directions
from bipace.core.diagnostics import DegenerateClustersWarning, credit_diagnostics, degenerate_clusters
from bipace.core.rows import Rows
from bipace.core.steps import StepBatch
from bipace.envs.base import Suite
from bipace.envs.registry import get_suite
from bipace.rollout.panel import PanelResult, choose_panels, evaluate, panel_tasks
from bipace.rollout.records import TokenSequence, Trajectory, episode_metrics
from bipace.rollout.sampler import choose_tasks
from bipace.rollout.table import to_rows
from bipace.train.actors import load_actor, make_collector, make_decoder, reference_actor
from bipace.train.calibration import scan_metrics, scan_rollouts
from bipace.train.checkpoint import load_optimizer, save_checkpoint
from bipace.train.checkpoints import read_state, settle
from bipace.train.config import Config, ConfigError
from bipace.train.files import held, write_text
from bipace.train.history import append_lines, check_logs, drop_validations, rewind_logs
from bipace.train.interrupt import finish_iteration_first, say_on_stderr
from bipace.train.loggers import check_loggers, open_loggers
from bipace.train.places import actor_folder, mismatch
from bipace.train.provenance import provenance
from bipace.train.run_folder import begin, check_folder, start_of
from bipace.train.scored import engine_gap, sampled_scores, score_sequences
from bipace.train.threads import use_threads
from bipace.train.timing import Clock, Slowness
from bipace.train.update import token_values, update_policy

__all__ = ["NonFiniteError", "NothingPlayed", "Run", "RunStopped", "refuse_aborted", "train"]

# Streams of random numbers: (seed, iteration, stream) -> independent generators; 0 and 3 are the sampler's.
_SAMPLING, _SHUFFLE = 1, 2


class RunStopped(RuntimeError):
    """The run cannot go on; the message says why, and the last checkpoint is kept."""


class NothingPlayed(RunStopped):
    """Every episode was aborted by its environment: there is nothing to learn from or to judge by."""


class NonFiniteError(RunStopped):
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
        best: best success of a validation that was due (the first, every `run.validate_every`), -1 before the
            first.
        best_iteration: the iteration of its checkpoint, None before the first.
        final_best: True where the last iteration's validation, which a longer run would not have made, is
            better.
        stopped: True where Ctrl-C ended the run before its last iteration.
        validations: panel -> iteration -> success, interval and families.
    """

    config: Config
    folder: Path
    checkpoint: Path | None = None
    iteration: int = 0
    best: float = -1.0
    best_iteration: int | None = None
    final_best: bool = False
    stopped: bool = False
    validations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def __post_init__(self) -> None:
        config = self.config
        self.recipe = config.recipe()
        self.suite: Suite = get_suite(config.env.suite)
        self.panels = choose_panels(self.suite, config.env.split, config.env.panel, config.env.held_out)
        self.tasks: Sequence[str] = panel_tasks(self.suite, self.panels.split)
        if len(self.tasks) < config.rollout.tasks:
            raise ConfigError(
                f"rollout.tasks: {config.rollout.tasks}, but split {self.panels.split!r} holds {len(self.tasks)} tasks"
            )
        self.actor = load_actor(config, self.checkpoint)
        self.threads = use_threads(self.actor, config.actor.threads)
        self.layer = self.actor.layer_index(config.features.layer) if config.captures else None
        self.from_rollout = config.features.source == "rollout"
        self.decoder = make_decoder(config, self.actor)
        self.collector = make_collector(config, self.suite, self.layer if self.from_rollout else None)
        self.optimizer = torch.optim.AdamW(
            self.actor.model.parameters(),
            lr=config.update.lr,
            weight_decay=config.update.weight_decay,
            fused=True,
        )
        self.reference = reference_actor(config)
        self.skipped = 0
        self.radius: tuple[float, int] | None = (
            None  # (eps, whiten) that eps="auto" or "calibrate" chose last
        )
        self.warned = False
        if self.checkpoint:
            load_optimizer(self.optimizer, self.checkpoint)
            self._take_up(read_state(self.checkpoint))

    def _take_up(self, state: dict[str, Any]) -> None:
        try:
            self.iteration, self.skipped, self.validations = (
                state["iteration"],
                state["skipped"],
                state["validations"],
            )
            self.best, self.best_iteration = state["best"], state["best_iteration"]
            self.radius = tuple(state["radius"]) if state["radius"] else None
            self.final_best = state.get("final_best", False)
            if state.get("layer") is not None:
                self._read_layer(state["layer"])
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.checkpoint}: trainer_state.json is damaged ({error}); put an undamaged copy there"
            ) from error

    @property
    def improved(self) -> bool:
        """True where this iteration's validation is better than any before."""
        return self._latest_success() > self.best

    @property
    def due(self) -> bool:
        """True where this iteration is validated however long the run is."""
        return self.iteration % self.config.run.validate_every == 0

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
        refuse_aborted(trajectories, f"of iteration {self.iteration + 1}", self._way_on)
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
            batch, made, chosen = self._calibrated(rows, sequences)
            found = advantages(batch, made)
            values = token_values(sequences, rows.scatter(found.values))
            credit = credit_diagnostics(batch, found)
            self._warn(credit)
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
                self.folder / "rollouts.jsonl",
                [{"iteration": self.iteration, **t.to_json()} for t in trajectories],
            )
        return {
            **episode_metrics([trajectory.summary for trajectory in trajectories]),
            **credit,
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
        refuse_aborted(result.trajectories, f"on {panel} at iteration {self.iteration}", self._way_on)
        self.validations.setdefault(panel, {})[str(self.iteration)] = result.summary()
        place = self.folder / "validation" / f"iteration-{self.iteration:06d}.{quote(panel, safe='')}.jsonl"
        place.parent.mkdir(exist_ok=True)
        write_text(place, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in result.by_task()))
        return result

    def save(self) -> None:
        """Write a checkpoint of the present state."""
        best = self.improved
        if best and self.due:
            self.best, self.best_iteration = self._latest_success(), self.iteration
        self.final_best = best and not self.due
        state = {
            "iteration": self.iteration,
            "best": self.best,
            "best_iteration": self.best_iteration,
            "final_best": self.final_best,
            "skipped": self.skipped,
            "radius": self.radius,
            "layer": self.layer,
            "validations": self.validations,
        }
        save_checkpoint(self.folder, self.actor, self.optimizer, state, best=best, kept=self._kept)

    @property
    def _kept(self) -> tuple[int, ...]:
        return () if self.best_iteration is None else (self.best_iteration,)

    def go_on(self) -> list[str]:
        """Bring the folder to where the run goes on from; returns what the user should know.

        Where the run is made longer, the validation of what was its last iteration goes as far as a longer
        run would not have made it: the log and the best checkpoint are then those of a run that was planned
        so long.
        """
        at = self.iteration if self.checkpoint else -1
        if 0 < at < self.config.run.iterations:
            self.final_best = False
            extra = [p for p in self.validations if p != self.panels.panel or not self.due]
            for panel in extra:
                self.validations[panel].pop(str(at), None)
            drop_validations(self.folder, at, extra)
        rewind_logs(self.folder, at)
        best = at if self.final_best else self.best_iteration
        return settle(self.folder, at if self.checkpoint else None, best, kept=self._kept)

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

    def _calibrated(
        self, rows: Rows, sequences: Sequence[TokenSequence]
    ) -> tuple[StepBatch, Recipe, dict[str, float]]:
        """The table, the recipe at its radius, and what to log; eps="calibrate" chooses layer and radius, once."""
        if self.radius is not None or open_directions(self.recipe) is None:
            return rows.batch, *self._held(rows.batch)
        found, layers = scan_rollouts(self.actor, sequences, rows, self.recipe, self.config)
        self.radius = found.chosen.eps, found.chosen.whiten
        self._read_layer(int(found.chosen.layer))
        metrics = {f"credit/{name}": value for name, value in scan_metrics(found).items()}
        return (
            replace(rows.batch, features=layers[found.chosen.layer]),
            hold(self.recipe, *self.radius),
            metrics,
        )

    def _read_layer(self, layer: int) -> None:
        if self.layer not in (None, layer):
            self.layer = layer
            self.collector = make_collector(self.config, self.suite, layer if self.from_rollout else None)

    def _warn(self, credit: dict[str, float]) -> None:
        """Say once that clusters compare hardly anything, or everything."""
        shape = {name.removeprefix("cluster/"): value for name, value in credit.items()}
        said = degenerate_clusters(shape) if self.layer is not None and "clusters" in shape else ""
        if said and not self.warned:
            self.warned = True
            warnings.warn(f"iteration {self.iteration + 1}: {said}", DegenerateClustersWarning, stacklevel=2)

    def _held(self, batch: StepBatch) -> tuple[Recipe, dict[str, float]]:
        """The recipe at the radius of eps="auto", chosen anew where its turn has come, and what to log of it."""
        every = self.config.features.calibrate_every
        due = self.radius is None or (every and self.iteration % every == 0)
        found = choose(batch, self.recipe.terms) if due else None
        if found is not None:
            self.radius = found.eps, found.whiten
        if self.radius is None:
            return self.recipe, {}
        metrics = (
            calibration_metrics(found) if found else {"eps": self.radius[0], "whiten": float(self.radius[1])}
        )
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
        probe = score_sequences(
            self.actor, sequences[:1], layer=None, micro_tokens=self.config.update.micro_tokens
        )
        if not _finite(probe.logprobs):
            raise self._broken("the update left a policy whose probabilities are not finite")

    @property
    def _way_on(self) -> str:
        return f"Mend the environment, then: bipace train --resume {self.folder}"

    def _broken(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"{what}; stopped in iteration {self.iteration + 1}. The last good state is {self.folder / 'last'}. "
            f"A smaller update.lr or update.grad_clip usually helps"
        )


def train(
    config: Config,
    folder: Path,
    *,
    resume: bool = False,
    on_iteration: Callable[[Run, dict[str, float]], None],
    say: Callable[[str], None] = say_on_stderr,
) -> Run:
    """Train to `run.iterations`, validating and saving on the way.

    The first Ctrl-C finishes the iteration, saves, and returns; the second stops at once (the last complete
    checkpoint stays). The panel is validated before the first iteration, every `run.validate_every`, and at
    the end; the held-out panels at the beginning and at the end.

    Args:
        config: the run.
        folder: must be empty or absent, unless resume is set.
        resume: continue the run of this folder from its last checkpoint, or from the start where it was
            stopped before the first; the configuration must be the same but for run.iterations, run.loggers
            and actor.threads.
        on_iteration: called with the run and the metrics of each finished iteration (0: the warm start's
            validation).
        say: called with what a user should know: the number of threads and why, iterations that the machine
            slows.

    Raises:
        ConfigError: the folder holds another run, or resume with another configuration; another process
            trains in it; its logs or its last checkpoint are damaged.
        NonFiniteError: the update broke down.
        NothingPlayed: every episode of an iteration or a validation was aborted.
        OSError: the disk is full (errno ENOSPC); the last complete checkpoint is untouched.
    """
    check_folder(config, folder, resume)
    check_loggers(config.run.loggers)
    with ExitStack() as stack:
        if resume:
            stack.enter_context(held(folder))
        run = Run(config, folder, start_of(folder) if resume else None)
        # Everything that can be wrong with the settings was found by now, before a file is written.
        if resume:
            check_logs(folder, run.iteration if run.checkpoint else -1)
        else:
            stack.enter_context(held(folder))
            check_folder(config, folder, resume)  # another process may have been here meanwhile
        begin(config, folder, _origin(run))
        threads = f"threads: {run.threads.number} ({run.threads.why})"
        for what in filter(None, (*run.go_on(), threads, _warning(run))):
            say(what)
        _train(run, on_iteration, say)
    return run


def _train(
    run: Run, on_iteration: Callable[[Run, dict[str, float]], None], say: Callable[[str], None]
) -> None:
    config, folder, slowness = run.config, run.folder, Slowness()
    with open_loggers(config, folder, run.iteration) as log, finish_iteration_first() as interrupted:

        def record(metrics: dict[str, float]) -> None:
            append_lines(folder / "metrics.jsonl", [{"iteration": run.iteration, **metrics}])
            log(run.iteration, metrics)
            on_iteration(run, metrics)
            if notice := slowness.notice(metrics):
                say(f"iteration {run.iteration}: {notice}")

        if run.checkpoint is None:
            record(_validation(run, first=True))
            run.save()
        while run.iteration < config.run.iterations and not interrupted:
            metrics = run.step()
            last = run.iteration == config.run.iterations
            if last or run.due:
                metrics |= _validation(run, last=last)
            record(metrics)
            if last or interrupted or run.improved or run.iteration % config.run.save_every == 0:
                run.save()
    run.stopped = run.iteration < config.run.iterations


def _warning(run: Run) -> str:
    """That the starting actor was made for another suite, where its card says so."""
    return "" if run.checkpoint else mismatch(actor_folder(run.config.actor.folder), run.config.env.suite)


def _origin(run: Run) -> dict[str, Any]:
    """What the run is made of (`bipace.train.provenance`)."""
    names = (run.panels.split, run.panels.panel, *run.panels.held_out)
    tasks = {name: panel_tasks(run.suite, name) for name in names}
    try:
        actor = actor_folder(run.config.actor.folder)
    except ConfigError:
        if run.checkpoint is None:
            raise
        actor = None  # its checkpoint has all that a run without a reference needs
    return provenance(run.config, run.recipe, tasks, run.threads, actor)


def _validation(run: Run, first: bool = False, last: bool = False) -> dict[str, float]:
    start = time.perf_counter()
    panels = (run.panels.panel, *(run.panels.held_out if first or last else ()))
    metrics: dict[str, float] = {}
    for panel in panels:
        result = run.validate(panel)
        metrics |= {f"val/{panel}/{name}": value for name, value in result.metrics().items()}
    return {**metrics, "timing_s/validation": time.perf_counter() - start}


def refuse_aborted(trajectories: Sequence[Trajectory], where: str, way_out: str) -> None:
    """Raise NothingPlayed where there are episodes and every one of them was aborted: 0 % would not be the policy's."""
    if trajectories and all(t.error for t in trajectories):
        raise NothingPlayed(
            f"env.suite: all {len(trajectories)} episodes {where} were aborted by the environment, the first by "
            f"{trajectories[0].error[:300]!r}. {way_out}"
        )


def _finite(values: Sequence[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(part).all()) for part in values)
