"""One episode as verl plays it.

Asynchronous, one finished row per model call (`bipace.rollout.episode` plays it).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bipace.envs.base import Suite, offers_of
from bipace.integrations.common.settings import Settings
from bipace.rollout.episode import Episode, Rules
from bipace.rollout.prompts import Chat
from bipace.rollout.table import step_key, step_rewards

__all__ = ["Call", "Limits", "StepRow", "play"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """One answer of the model.

    Attributes:
        tokens: sampled token ids, the end token included.
        logprobs: their log-probabilities under the rollout's own engine, or None.
        extra: what the engine reports beside them (the version of the weights).
    """

    tokens: list[int]
    logprobs: list[float] | None
    extra: dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """Longest prompt and longest response in tokens, and the horizon in model calls."""

    prompt: int
    response: int
    max_steps: int


@dataclass(frozen=True)
class StepRow:
    """One model call and what came of it.

    `record` travels with verl's row (plain values only) and is all that `bipace.integrations.verl.rows` reads
    back.
    """

    prompt: list[int]
    call: Call
    record: dict[str, Any]


async def play(
    suite: Suite,
    task: str,
    generate: Callable[[Sequence[int]], Awaitable[Call]],
    tokenizer: Any,
    settings: Settings,
    limits: Limits,
) -> list[StepRow]:
    """Play one episode of a task.

    A failing environment ends its own episode: the rows so far come back marked `aborted`, and never enter a
    baseline. An environment that fails before the first call, or a first prompt that does not fit, gives no
    rows.
    """
    rules = _rules(suite, settings, limits)
    episode = await asyncio.to_thread(Episode.begin, suite, task, rules, Chat(tokenizer))
    prompts: list[list[int]] = []
    calls: list[Call] = []
    while (prompt := episode.prompt()) is not None:
        call = await generate(prompt)
        finished = call.tokens[-1:] == [tokenizer.eos_token_id]
        await asyncio.to_thread(episode.advance, call.tokens, finished=finished)
        prompts.append(prompt)
        calls.append(call)
    played = episode.close()
    if played.error:
        _log.warning(
            "task %r: the episode is aborted after %d steps: %s", task, len(played.steps), played.error
        )
    key, env, whole = settings.features, settings.env, asdict(played.summary)
    paid = [env.reward_scale * reward for reward in step_rewards(played, env.reward == "success")]
    return [
        StepRow(
            prompt,
            call,
            {
                "observation": step.observation,
                "command": step.action,
                "action": step_key(key.action_key, step, call.tokens, key.refused_actions),
                "parsed": step.parsed,
                "reward": reward,
                "total": sum(paid),
                "episode": whole,
            },
        )
        # A call without tokens made no step.
        for prompt, call, step, reward in zip(prompts, calls, played.steps, paid, strict=False)
    ]


def _rules(suite: Suite, settings: Settings, limits: Limits) -> Rules:
    told = settings.prompt
    return Rules(
        style=told.style,
        tagged=told.tagged,
        lowercase=told.lowercase,
        strict=told.strict,
        instructions=suite.instructions if told.instructions else "",
        history_length=told.history_length,
        max_steps=limits.max_steps,
        max_new_tokens=limits.response,
        max_tokens=limits.prompt + limits.response,
        stated=offers_of(suite).task_text,
    )
