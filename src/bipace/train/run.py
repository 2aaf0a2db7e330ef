"""A run: collect, score, credit, update, report. One iteration is one pass of the data through the house.

Every random choice of iteration i follows from (seed, i), so a resumed run draws what an uninterrupted one
would have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
import torch

from bipace.core.features import Features
from bipace.envs.base import Suite
from bipace.envs.registry import get_suite
from bipace.rollout.panel import PanelResult, choose_panels, panel_tasks
from bipace.rollout.records import TokenSequence, Trajectory, episode_metrics
from bipace.rollout.sampler import choose_tasks
from bipace.rollout.streams import Stream, stream
from bipace.train.actors import load_actor, make_collector, make_decoder, reference_actor
from bipace.train.checkpoint import load_optimizer, save_checkpoint
from bipace.train.checkpoints import read_state, settle
from bipace.train.config import Config, ConfigError
from bipace.train.crediting import Crediting
from bipace.train.files import write_text
from bipace.train.history import append_lines, drop_validations, rewind_logs
from bipace.train.scored import Scored, engine_gap, sampled_scores, score_sequences
from bipace.train.shard_work import Work
from bipace.train.shards import Shards
from bipace.train.split import choose_split
from bipace.train.standing import Standing
from bipace.train.stopped import NonFiniteError, refuse_aborted
from bipace.train.threads import use_threads
from bipace.train.timing import Clock
from bipace.train.update import make_optimizer, set_learning_rate, update_policy

__all__ = ["Run"]


# long: an iteration reads top to bottom; each part's work is elsewhere.
class Run(Standing):
    """A training run: what it needs, where it is (`Standing`), and its one iteration.

    Args:
        config: the resolved configuration.
        folder: where everything is written.
        checkpoint: where it goes on from, or None for the configured actor.

    Attributes:
        stopped: True where Ctrl-C ended the run before its last iteration.
        credit: what turns rollouts into values; holds the layer and the radius that were chosen.

    Raises:
        ConfigError: settings that do not fit the suite or the actor; a damaged checkpoint.
    """

    def __init__(self, config: Config, folder: Path, checkpoint: Path | None = None) -> None:
        super().__init__()
        self.config, self.folder, self.checkpoint, self.stopped = config, folder, checkpoint, False
        self.recipe = config.recipe()
        self.suite: Suite = get_suite(config.env.suite)
        self.panels = choose_panels(self.suite, config.env.split, config.env.panel, config.env.held_out)
        self.tasks: Sequence[str] = panel_tasks(self.suite, self.panels.split)
        if len(self.tasks) < config.rollout.tasks:
            raise ConfigError(
                f"rollout.tasks: {config.rollout.tasks}, but split {self.panels.split!r} holds "
                f"{len(self.tasks)} tasks"
            )
        self.actor = load_actor(config, checkpoint)
        self.threads = use_threads(self.actor, config.actor.threads)
        layer = self.actor.layer_index(config.features.layer) if config.captures else None
        self.credit = Crediting(config, self.recipe, layer)
        self.from_rollout = config.features.source == "rollout"
        self.decoder = make_decoder(config, self.actor)
        self.optimizer = make_optimizer(self.actor, config.update)
        self.reference = reference_actor(config)
        if checkpoint:
            load_optimizer(self.optimizer, checkpoint)
            self.credit.radius, chosen = self.take_up(read_state(checkpoint), checkpoint)
            if layer is not None and chosen is not None:
                self.credit.layer = chosen
        self.collector = make_collector(config, self.suite, self.layer if self.from_rollout else None)
        split = choose_split(config, threads=self.threads.number)
        work = Work(config, self.actor, self.decoder, self.collector)
        self.shards = Shards(work, split, checkpoint, self.threads.number)

    def close(self) -> None:
        """End the processes beside this one."""
        self.shards.close()

    @property
    def layer(self) -> int | None:
        """Index of the hidden state that is compared, or None where the recipe reads none."""
        return self.credit.layer

    @property
    def improved(self) -> bool:
        """True where this iteration's validation is better than any before."""
        return self.better(self.panels.panel)

    @property
    def due(self) -> bool:
        """True where this iteration is validated however long the run is."""
        return self.iteration % self.config.run.validate_every == 0

    def step(self) -> dict[str, float]:
        """One iteration: 16 prompt groups of 8 episodes by default, one update."""
        clock = Clock(self.shards.beside)
        with clock("rollout"):
            trajectories = self.collect()
        refuse_aborted(trajectories, f"of iteration {self.iteration + 1}", self._way_on)
        kept = [t for t in trajectories if t.steps and not t.error]
        sequences = [s for t in kept for s in t.sequences]
        scored, features = self._score(sequences, clock)
        with clock("credit"):
            values, credit = self.credit(self.actor, kept, features, self.iteration)
            self._keep_layer()
        updated = self._update(kept, scored.logprobs, values, clock)
        self._guard(updated, sequences)
        with clock("sync"):
            self.decoder.sync()
        self.iteration += 1
        if self.config.run.save_rollouts:
            append_lines(
                self.folder / "rollouts.jsonl",
                [{"iteration": self.iteration, **t.to_json()} for t in trajectories],
            )
        return {
            **episode_metrics([trajectory.summary for trajectory in trajectories]),
            **credit,
            **({} if self.from_rollout else engine_gap(sequences, scored)),
            **updated,
            **clock.metrics(sum(len(s.tokens) for s in sequences)),
        }

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
        return self.shards.collect(
            self.collector,
            [self.tasks[i] for i in chosen],
            config.rollout.group_size,
            temperature=config.rollout.temperature,
            seed=int(self._numpy(Stream.SAMPLING).integers(2**63)),
        )

    def validate(self, panel: str) -> PanelResult:
        """Play every task of a panel once and remember the result."""
        settings = self.config.run
        tasks, temperature = panel_tasks(self.suite, panel), settings.validation_temperature
        played = self.shards.collect(self.collector, tasks, 1, temperature=temperature, seed=settings.seed)
        result = PanelResult(self.collector.suite, played)
        refuse_aborted(result.trajectories, f"on {panel} at iteration {self.iteration}", self._way_on)
        self.validations.setdefault(panel, {})[str(self.iteration)] = result.summary()
        place = self.folder / "validation" / f"iteration-{self.iteration:06d}.{quote(panel, safe='')}.jsonl"
        place.parent.mkdir(exist_ok=True)
        write_text(place, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in result.by_task()))
        return result

    def save(self) -> None:
        """Write a checkpoint of the present state."""
        best = self.note_best(self.panels.panel, self.due)
        state = self.state(self.credit.radius, self.layer)
        save_checkpoint(self.folder, self.actor, self.optimizer, state, best=best, kept=self.kept)

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
        return settle(self.folder, at if self.checkpoint else None, best, kept=self.kept)

    def _score(self, sequences: Sequence[TokenSequence], clock: Clock) -> tuple[Scored, Features | None]:
        """Old log-probabilities, and the features, from the forward that `features.source` names."""
        config = self.config
        scoring = {"micro_tokens": config.update.micro_tokens, "temperature": config.rollout.temperature}
        shared = self.layer if config.features.source != "separate" else None
        with clock("old_logprob"):
            scored = (
                sampled_scores(sequences)
                if self.from_rollout and sequences
                else score_sequences(self.actor, sequences, layer=shared, **scoring)
            )
        if not _finite(scored.logprobs):
            raise self._broken("the policy's probabilities are not finite")
        if config.features.source != "separate" or self.layer is None:
            return scored, scored.features
        with clock("features"):
            return scored, score_sequences(self.actor, sequences, layer=self.layer, **scoring).features

    def _update(
        self,
        kept: Sequence[Trajectory],
        old: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        clock: Clock,
    ) -> dict[str, float]:
        config, sequences = self.config, [s for t in kept for s in t.sequences]
        temperature = config.rollout.temperature
        reference = None
        if config.update.kl_loss_coef > 0:
            frozen = self.reference or self.actor
            with clock("reference"), frozen.without_adapter():
                size = config.update.micro_tokens
                reference = score_sequences(
                    frozen, sequences, layer=None, micro_tokens=size, temperature=temperature
                ).logprobs
        set_learning_rate(self.optimizer, config.update, self.iteration)
        with clock("update"):
            return update_policy(
                self.actor,
                self.optimizer,
                sequences,
                old,
                values,
                config.update,
                groups=[trajectory.task for trajectory in kept for _ in trajectory.sequences],
                shuffle=self._numpy(Stream.SHUFFLE),
                reference=reference,
                temperature=temperature,
                shards=self.shards.split.shards,
                gradients=self.shards.gradients,
            )

    def _keep_layer(self) -> None:
        """Let rollouts keep the layer that eps="calibrate" has chosen."""
        if self.from_rollout and self.collector.layer != self.layer:
            self.collector = make_collector(self.config, self.suite, self.layer)

    def _guard(self, updated: dict[str, float], sequences: Sequence[TokenSequence]) -> None:
        self.skipped += int(updated["update/skipped"])
        allowed = self.config.update.max_skipped
        if self.skipped > allowed:
            raise self._broken(
                f"{self.skipped} updates had a non-finite loss or gradient, at most {allowed} are skipped in "
                f"a run"
            )
        # One forward of one sequence tells whether what is about to be saved can still speak.
        probe = score_sequences(
            self.actor, sequences[:1], layer=None, micro_tokens=self.config.update.micro_tokens
        )
        if not _finite(probe.logprobs):
            raise self._broken("the update left a policy whose probabilities are not finite")

    def _numpy(self, kind: Stream) -> np.random.Generator:
        return stream(self.config.run.seed, self.iteration, kind)

    @property
    def _way_on(self) -> str:
        return f"Mend the environment, then: bipace train --resume {self.folder}"

    def _broken(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"{what}; stopped in iteration {self.iteration + 1}. The last good state is "
            f"{self.folder / 'last'}. A smaller update.lr or update.grad_clip usually helps"
        )


def _finite(values: Sequence[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(part).all()) for part in values)
