# pyright: reportMissingImports=false
# verl lives in an environment of its own (it wants another transformers), where `make test-engines` runs
# this.
"""verl's agent loop over any of our environments, or a user's own: one output per model call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, register

from bipace.envs.base import Suite
from bipace.envs.registry import get_suite
from bipace.integrations.verl.episode import Call, Limits, StepRow, play
from bipace.integrations.verl.settings import read_settings

__all__ = ["AGENT", "BipaceAgentLoop"]

AGENT = "bipace"
_suite = lru_cache(maxsize=None)(get_suite)


@register(AGENT)
class BipaceAgentLoop(AgentLoopBase):
    """Plays the task that a row of the data names (`extra_info.task`) in the suite of bipace.env.suite."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        section: Any = OmegaConf.to_container(self.config.get("bipace") or OmegaConf.create(), resolve=True)
        self.settings = read_settings(section, self.config.algorithm.adv_estimator)
        self.suite: Suite = _suite(self.settings.env.suite)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """One episode; the list is empty where no model call could be made."""
        request = uuid4().hex
        sizes = self.rollout_config
        horizon = self.settings.env.max_steps or self.suite.max_steps
        limits = Limits(sizes.prompt_length, sizes.response_length, horizon)
        sampling = {**sampling_params, "max_tokens": sizes.response_length}

        async def generate(prompt: Sequence[int]) -> Call:
            output = await self.server_manager.generate(
                request_id=request, prompt_ids=list(prompt), sampling_params=sampling
            )
            return Call(list(output.token_ids), output.log_probs or None, dict(output.extra_fields))

        rows = await play(
            self.suite, kwargs["extra_info"]["task"], generate, self.tokenizer, self.settings, limits
        )
        return [_output(row) for row in rows]


def _output(row: StepRow) -> AgentLoopOutput:
    """Verl's row of one model call.

    verl copies the last row's reward_score onto all rows of the episode, so it is the episode's total
    everywhere; the step's own reward travels in extra_fields.
    """
    episode = row.record["episode"]
    return AgentLoopOutput(
        prompt_ids=row.prompt,
        response_ids=row.call.tokens,
        response_mask=[1] * len(row.call.tokens),
        response_logprobs=row.call.logprobs,
        reward_score=row.record["total"],
        num_turns=2 * episode["steps"],
        metrics=AgentLoopMetrics(),
        extra_fields={
            **row.call.extra,
            "bipace": row.record,
            "reward_extra_info": {"acc": float(episode["won"])},
        },
    )
