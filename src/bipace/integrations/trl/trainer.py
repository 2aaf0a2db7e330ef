# long: TRL's hooks that share the state of one batch, and what they hand to each other
# pyright: reportMissingImports=false
# TRL lives in an environment of its own, where `make test-engines` runs this.
"""TRL's GRPOTrainer with one value a turn: a few short overrides, each of which calls its parent.

    from bipace.integrations.trl import StepCreditTrainer
    trainer = StepCreditTrainer(..., recipe="bipace", credit={"eps": 0.05}, features={"layer": -12})

TRL makes the batch and its loss takes advantages [B, T] as well as [B] (grpo_trainer.py, `_compute_loss`). So
only the advantages are replaced, after TRL has generated, scored and logged.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object

from bipace.core.advantages import Recipe
from bipace.core.steps import Floats
from bipace.integrations.common.capture import decoder_body, layer_index
from bipace.integrations.common.estimator import Credit, Estimator
from bipace.integrations.common.spread import along_spans, floating
from bipace.integrations.trl.batch import Batch
from bipace.integrations.trl.guards import check_arguments, check_first_batch, check_sources
from bipace.integrations.trl.listening import (
    ATTRIBUTES,
    Final,
    FinalBlocks,
    check_environment,
    listening,
    said,
)
from bipace.integrations.trl.settings import read_trl_settings
from bipace.integrations.trl.states import active_dropout, gather_rows, own_forward, picking
from bipace.integrations.trl.turns import (
    FIELDS,
    Completion,
    Rollout,
    credit_heard,
    engine_steps,
    episode_metrics,
    identity,
    own_fields,
    read_turns,
)
from bipace.integrations.trl.versions import check_trl
from bipace.policies.device_features import as_features

check_trl(version("trl"))

# Only a TRL of the right version has the methods these overrides call.
from trl import GRPOTrainer  # noqa: E402  (after the version check)

__all__ = ["StepCreditTrainer"]

_log = logging.getLogger(__name__)
_WHOLE_WEIGHTS = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
"""Kinds of distribution in which a process holds every block's weights, so that a forward may stop early."""


# long: it overrides TRL's trainer, whose hooks share the state of one batch
class StepCreditTrainer(GRPOTrainer):
    """GRPOTrainer whose advantages come from a recipe of the core.

    One value a turn, on all tokens of the turn.

    Args:
        args: GRPOTrainer's own, in its order.
        recipe: a recipe of the core, module:function, path/to/file.py:function, or a ready `Recipe`.
        credit: options of the recipe, e.g. {"eps": 0.05}.
        features: {"layer": ..., "action_key": ...}; see docs/trl.md.
        steps: attributes of the environments that hold step rewards, the end and the state; see docs/trl.md.
        kwargs: GRPOTrainer's own.

    Raises:
        ValueError: settings that are unknown or out of range, and arguments of TRL's that need one value a
            completion.
    """

    def __init__(
        self,
        *args: Any,
        recipe: str | Recipe = "bipace",
        credit: Mapping[str, Any] | None = None,
        features: Mapping[str, Any] | None = None,
        steps: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.settings, self.recipe = read_trl_settings(recipe, credit, features, steps)
        given = inspect.signature(GRPOTrainer.__init__).bind_partial(self, *args, **kwargs).arguments
        if given.get("args") is not None:  # before a model is loaded for nothing
            check_arguments(given["args"], self.recipe)
        self._batch: Batch | None = None
        super().__init__(*args, **kwargs)
        check_arguments(self.args, self.recipe)
        check_sources(self, self.settings.steps)
        for pool in (self._environment_pool if self.environment_factories else {}).values():
            check_environment(pool[0], self.settings.steps)
        self._captures = "features" in self.recipe.needs
        if self._captures:
            body: Any = decoder_body(self.model)
            self._layer = layer_index(self.settings.features.layer, len(body.layers))
        # TRL's forward of a truncated completion it masks, or under dropout, shows other states than the
        # policy's.
        self._reuses = not (self.mask_truncated_completions or active_dropout(self.model))
        self._explained = False
        self._batches = 0
        self.estimator = Estimator(self.recipe, calibrate_every=self.settings.features.calibrate_every)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch, its [B] advantages replaced by [B, T]; an evaluation batch stays TRL's own."""
        if not self.model.training:
            output = super()._generate_and_score_completions(inputs)
            # The completions table has a row for each of these too.
            self._logs["extra"]["turn_advantages"].extend([""] * len(gather_object([0] * len(inputs))))
            return output
        self._batch = batch = Batch(inputs)
        try:
            output = super()._generate_and_score_completions(inputs)
        finally:
            self._batch = None
        started = time.perf_counter()
        states = self._states(batch, output) if self._captures else None
        captured = time.perf_counter()
        everyone, credit = self._credit(batch, states)
        values = self._own_values(credit, everyone, len(inputs))
        spans = [[(turn.start, turn.end) for turn in rollout.turns] for rollout in batch.rollouts]
        completion_ids = output["completion_ids"]
        output["advantages"] = floating(
            along_spans(values, spans, tuple(completion_ids.shape)), completion_ids
        )
        self._write_logs(credit, everyone)
        metrics = {
            **credit.metrics,
            **episode_metrics(everyone, batch.totals),
            "timing_s/features": captured - started,
            "timing_s/credit": time.perf_counter() - captured,
        }
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        return output

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """TRL's rollouts; while a training batch is made, they are read into turns."""
        batch = self._batch
        if batch is None:
            return super()._generate(prompts)
        steps, features = self.settings.steps, self.settings.features
        states = [said(environment, steps)[2] for environment in self.environments or ()]
        refused = features.refused_actions if steps.executed and features.action_key == "executed" else None
        generated = super()._generate(prompts)
        prompt_ids, completion_ids, mask, completions, _, extra = generated[:6]
        mask = mask or [[1] * len(tokens) for tokens in completion_ids]
        own = {name: extra[name] for name in FIELDS if name in extra}
        batch.told = "step_rewards" in own or steps.reward is not None
        batch.prompts, batch.completions = prompt_ids, completion_ids
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        for row, tokens in enumerate(completion_ids):
            messages = completions[row] if self.tools else None
            completion = Completion(prompts[row], prompt_ids[row], tokens, mask[row], messages)
            turns = read_turns(completion, self._tokenizer, features.action_key)
            turns = own_fields(turns, {name: values[row] for name, values in own.items()}, row)
            if states:
                turns = credit_heard(
                    turns, [one for one in batch.heard if one.row == row], states[row], refused
                )
            group = identity(batch.examples[row], prompt_ids[row])
            ended = tokens[-1] in ends if steps.done is None else any(turn.done for turn in turns)
            batch.rollouts.append(Rollout(group, tuple(turns), tuple(tokens), ended))
        return generated

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's rewards of all processes.

        Their weighted sum, before any normalisation, is a trajectory's outcome.
        """
        found = super()._calculate_rewards(*args, **kwargs)
        if self._batch is not None:
            totals = (found * self.reward_weights.to(found.device)).nansum(dim=1)
            self._batch.totals = totals.masked_fill(found.isnan().all(dim=1), torch.nan).tolist()
        return found

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        *args: Any,
        **kw: Any,
    ) -> Any:
        """TRL's forward; while a training batch is made, the policy's first also gives the hidden states."""
        batch, call = self._batch, super()._get_per_token_logps_and_entropies
        wanted = self._captures and self._reuses and model is self.model
        if batch is None or batch.picked is not None or not wanted:
            return call(model, input_ids, attention_mask, logits_to_keep, *args, **kw)
        start = input_ids.size(1) - logits_to_keep  # prompts are padded on the left, completions on the right
        with picking(model, self._layer, batch.places([start] * len(input_ids))) as kept:
            found = call(model, input_ids, attention_mask, logits_to_keep, *args, **kw)
        batch.picked = torch.cat(kept)
        return found

    def _tool_call_loop(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's loop over tools that also tell what their environment says after each call."""
        steps, batch = self.settings.steps, self._batch
        if self.environments and any(getattr(steps, name) for name in ATTRIBUTES):
            bound = inspect.signature(GRPOTrainer._tool_call_loop).bind(self, *args, **kwargs).arguments
            heard = [] if batch is None else batch.heard
            for row, environment in enumerate(self.environments):
                messages = bound["completions"][row]

                def turn(messages: list[Any] = messages) -> int:
                    return sum(message["role"] == "assistant" for message in messages) - 1

                for tools in (self._sync_tool_dicts[row], self._async_tool_dicts[row]):
                    for name, tool in tools.items():
                        tools[name] = listening(tool, environment, row, turn, steps, heard.append)
        return super()._tool_call_loop(*args, **kwargs)

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> list[int]:
        """TRL's tokens of some results; after a last result, more than any budget holds.

        TRL then leaves its loop with the completion as it stands before the result, which is what ending
        means.
        """
        if any(isinstance(message["content"], (Final, FinalBlocks)) for message in tool_messages):
            return [self._tokenizer.pad_token_id] * (self.max_completion_length + 1)
        return super()._get_tool_suffix_ids(tool_messages)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log, with this adapter's share of the steps' time."""
        found = self._metrics["train"]
        step = sum(found.get("step_time", ()))
        if self.model.training and step > 0:
            own = sum(found.get("timing_s/features", ())) + sum(found.get("timing_s/credit", ()))
            found["perf/credit_share"] = [own / step]
        super().log(logs, start_time)

    def _states(self, batch: Batch, output: dict[str, Any]) -> torch.Tensor:
        """[turns of this process, D]: from TRL's forward for old log-probabilities, or from one more."""
        if batch.picked is not None and "old_per_token_logps" in output:  # else it was the reference's
            return batch.picked
        if not self._explained and self.accelerator.is_main_process:
            _log.warning(
                "TRL makes no forward of the policy here that hidden states could be taken from, so one more "
                "is made for each generation batch (timing_s/features); with steps_per_generation above "
                "gradient_accumulation_steps TRL makes one itself"
            )
        self._explained = True
        sequences = [
            [*prompt, *tokens] for prompt, tokens in zip(batch.prompts, batch.completions, strict=True)
        ]
        return own_forward(
            self.model,
            sequences,
            batch.places([len(prompt) for prompt in batch.prompts]),
            self._layer,
            self.args.per_device_train_batch_size,
            self._tokenizer.pad_token_id,
            self.accelerator.autocast,
            self.accelerator.distributed_type in _WHOLE_WEIGHTS,
        )

    def _credit(self, batch: Batch, states: torch.Tensor | None) -> tuple[list[Rollout], Credit]:
        """All processes' rollouts, and what their turns are credited: every process computes the same."""
        everyone: list[Rollout] = gather_object(batch.rollouts)
        if self._batches == 0:
            check_first_batch(everyone, self.recipe, self.recipe.compares_steps and not self._captures)
        steps = engine_steps(everyone, batch.totals, batch.told, self.settings.steps.remainder)
        features = None if states is None else as_features(gather_rows(self.accelerator, states))
        credit = self.estimator(steps, features=features, iteration=self._batches)
        self._batches += 1
        return everyone, credit

    def _own_values(self, credit: Credit, everyone: list[Rollout], count: int) -> Floats:
        """The values of this process's turns, whose rollouts are `count` of everyone's."""
        first = self.accelerator.process_index * count
        before = sum(len(rollout.turns) for rollout in everyone[:first])
        here = sum(len(rollout.turns) for rollout in everyone[first : first + count])
        return credit.values[before : before + here]

    def _write_logs(self, credit: Credit, everyone: list[Rollout]) -> None:
        """The completions table: the mean advantage of a completion's tokens, not the one that was unused."""
        values = iter(credit.values.tolist())
        means, texts = [], []
        for rollout in everyone:
            own = [(next(values), turn.end - turn.start) for turn in rollout.turns]
            tokens = sum(length for _, length in own)
            means.append(sum(value * length for value, length in own) / max(tokens, 1))
            texts.append(" ".join(f"{value:.4g}" for value, _ in own))
        logged = self._logs["advantages"]
        for _ in range(min(len(means), len(logged))):
            logged.pop()
        logged.extend(means)
        self._logs["extra"]["turn_advantages"].extend(texts)
