# pyright: reportMissingImports=false
# verl lives in an environment of its own (it wants another transformers), where `make test-engines` runs
# this.
"""verl's synchronous trainer with two methods extended.

Old log-probabilities (capture) and advantages (credit).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import transfer_queue as tq
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf, open_dict
from transformers import AutoConfig
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils.fs import copy_to_local

from bipace.integrations.common.capture import layer_index
from bipace.integrations.common.estimator import Estimator
from bipace.integrations.verl.engine import FEATURE_KEY, LAYER_KEY
from bipace.integrations.verl.estimator import HANDED_OVER, Handover
from bipace.integrations.verl.guards import TRAINER, check_config
from bipace.integrations.verl.rows import batch_metrics

__all__ = ["BipaceTrainer"]


@register_trainer(TRAINER)
class BipaceTrainer(PPOTrainerSync):
    """PPOTrainerSync whose advantages come from a recipe of the core.

    Raises:
        ValueError: a configuration that could not work; see `guards.check_config`.
    """

    def __init__(self, config: DictConfig) -> None:
        plain: Any = OmegaConf.to_container(config, resolve=True)
        self.settings = check_config(plain)
        self.estimator = Estimator(
            self.settings.recipe(),
            self.settings.features.calibrate_every,
            self.settings.update.invalid_action_penalty,
        )
        if self.settings.captures:
            model = config.actor_rollout_ref.model
            hf_config = AutoConfig.from_pretrained(
                copy_to_local(model.path), trust_remote_code=model.get("trust_remote_code", False)
            )
            layers = hf_config.get_text_config().num_hidden_layers
            self.layer = layer_index(self.settings.features.layer, layers, "bipace.features.layer")
        with open_dict(config):
            # verl compares this with its own names in many places, and this trainer is a synchronous one.
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if not self.settings.captures:
            return super()._compute_old_log_prob(batch, metrics)
        batch.extra_info[LAYER_KEY] = self.layer
        try:
            found = super()._compute_old_log_prob(batch, metrics)
        finally:
            # A LoRA actor's reference pass runs through the same engine and would overwrite the features.
            batch.extra_info.pop(LAYER_KEY, None)
        (found.extra_info or {}).pop(LAYER_KEY, None)
        return found

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        started = time.perf_counter()
        handed = self._hand_over(batch)
        fetched = time.perf_counter() - started
        token = HANDED_OVER.set(handed)
        try:
            found = super()._compute_advantage(batch, metrics)
        finally:
            HANDED_OVER.reset(token)
        if handed.credit is None:
            raise RuntimeError(
                "verl asked no estimator of bipace for advantages; set algorithm.adv_estimator=bipace"
            )
        metrics.update(handed.credit.metrics)
        group_size = self.config.actor_rollout_ref.rollout.n
        metrics.update(batch_metrics(handed.keys, handed.records, handed.padding, group_size))
        metrics["timing_s/credit"] = fetched + handed.credit.seconds
        if handed.features is not None:
            metrics["perf/feature_mb"] = handed.features.nbytes / 1024**2
        self.handed = handed
        return found

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], **where: Any
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, **where)
        metrics["perf/credit_share"] = metrics["timing_s/credit"] / timing_raw["step"]

    def _hand_over(self, batch: Any) -> Handover:
        wanted = ["extra_fields", "rm_scores", *([FEATURE_KEY] if self.settings.captures else [])]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=wanted)
        records = [_record(extra) for extra in list(data["extra_fields"])]
        scores = [float(row.double().sum()) for row in data["rm_scores"].unbind()]
        return Handover(
            keys=list(batch.keys),
            records=records,
            padding=[bool(tag.get("is_padding", False)) for tag in batch.tags],
            features=_features(data) if self.settings.captures else None,
            token_rewards=np.array(scores),
            estimator=self.estimator,
            iteration=self.global_steps - 1,
        )


def _record(extra: Any) -> dict[str, Any]:
    """What bipace's agent loop wrote on a row."""
    fields = getattr(extra, "data", extra)
    if not isinstance(fields, dict) or "bipace" not in fields:
        raise RuntimeError(
            "a row was not made by bipace's agent loop, so its steps are unknown; make the data with "
            "`python -m bipace.integrations.verl.data` (it names the agent), or set "
            "actor_rollout_ref.rollout.agent.default_agent_loop=bipace"
        )
    return fields["bipace"]


def _features(data: Any) -> NDArray[Any]:
    """[N, D] from the jagged field the engine wrote."""
    if FEATURE_KEY not in data.keys():  # noqa: SIM118  (a TensorDict's `in` looks at rows)
        raise RuntimeError(
            "the workers sent no hidden states back: bipace's plug-in is not loaded in every worker. Set "
            "VERL_USE_EXTERNAL_MODULES=bipace.integrations.verl.plugin in the environment of every Ray node "
            "(+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=... does it from the "
            "driver); "
            "`bipace verl-preflight` says which node lacks it"
        )
    rows = data[FEATURE_KEY]
    stacked = rows.values().reshape(rows.shape[0], -1) if rows.is_nested else rows
    return stacked.float().cpu().numpy()
