"""One episode as verl plays it: asynchronous, one finished row per model call.

The prompt of a row is everything the model read before the call. In `transcript` style that is the whole chat so far,
token by token as it was sampled; in `window` style it is one message rebuilt from the last turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bipace.envs.base import Environment, Suite, Turn, executed_command
from bipace.integrations.common.settings import Settings
from bipace.rollout.prompts import Chat, parse_response, window_message
from bipace.rollout.records import Step
from bipace.rollout.table import step_key

__all__ = ["Call", "Limits", "StepRow", "play"]

_log = logging.getLogger(__name__)
Generate = Callable[[Sequence[int]], Awaitable["Call"]]


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
    """prompt: longest prompt in tokens; an episode that would pass it is truncated and counted as overlong."""

    prompt: int
    max_steps: int


@dataclass(frozen=True)
class StepRow:
    """One model call and what came of it.

    `record` travels with verl's row (plain values only) and is all that `bipace.integrations.verl.rows` reads back.
    """

    prompt: list[int]
    call: Call
    record: dict[str, Any]


async def play(
    suite: Suite, task: str, generate: Generate, tokenizer: Any, settings: Settings, limits: Limits
) -> list[StepRow]:
    """Play one episode of a task.

    A failing environment ends its own episode: the rows so far come back marked `aborted`, and never enter a baseline.
    An environment that fails before the first call, or a first prompt that does not fit, gives no rows.
    """
    chat = Chat(tokenizer)
    environment = suite.make()
    rows: list[StepRow] = []
    end: dict[str, Any] = {"terminated": False, "won": False, "aborted": False, "overlong": False}
    try:
        turn = await asyncio.to_thread(environment.reset, task)
    except Exception:
        _log.warning("task %r could not be opened; its episode is left out", task, exc_info=True)
        return rows
    first, transcript = turn.observation, []
    for t in range(limits.max_steps):
        prompt = _prompt(chat, suite, settings, first, rows, turn, transcript)
        if len(prompt) > limits.prompt:
            end["overlong"] = True
            break
        call = await generate(prompt)
        if not call.tokens:
            end["aborted"] = True
            break
        row, turn = await _step(environment, turn, prompt, call, tokenizer, settings, t)
        rows.append(row)
        finished = call.tokens[-1] == tokenizer.eos_token_id
        rows[-1].record["finished"] = finished
        end |= {"terminated": turn.terminated, "won": end["won"] or turn.won, "aborted": row.record["aborted"]}
        if turn.terminated or end["aborted"]:
            break
        transcript = [*prompt, *call.tokens, *chat.reply(turn.observation, finished)] if _grows(settings) else []
    return _close(rows, end)


def _grows(settings: Settings) -> bool:
    return settings.prompt.style == "transcript"


def _prompt(
    chat: Chat, suite: Suite, settings: Settings, first: str, rows: list[StepRow], turn: Turn, transcript: list[int]
) -> list[int]:
    rules = suite.instructions.strip() if settings.prompt.instructions else ""
    if _grows(settings):
        return transcript or chat.prompt(f"{rules}\n\n{first}" if rules else first)
    history = [(r.record["observation"], r.record["command"]) for r in rows]
    shown = history[len(history) - min(settings.prompt.history_length, len(history)) :]
    return chat.prompt(window_message(rules, first, shown, len(rows), turn, settings.prompt.tagged))


async def _step(
    environment: Environment, turn: Turn, prompt: list[int], call: Call, tokenizer: Any, settings: Settings, t: int
) -> tuple[StepRow, Turn]:
    text = tokenizer.decode(call.tokens, skip_special_tokens=True)
    style = settings.prompt
    parsed = parse_response(text, style.tagged, lowercase=style.lowercase, strict=style.strict)
    aborted, executed = False, None
    try:
        answer = await asyncio.to_thread(environment.step, parsed.action)
        executed = executed_command(parsed.action, turn, answer)
    except Exception:
        _log.warning("the environment failed at step %d; the episode is aborted", t, exc_info=True)
        answer, aborted = Turn("", valid=False), True
    step = Step(
        turn.observation, text, len(call.tokens), parsed.action, parsed.ok, answer.valid, True, answer.reward, executed
    )
    key = settings.features
    record = {
        "t": t,
        "observation": turn.observation,
        "command": parsed.action,
        "action": step_key(key.action_key, step, call.tokens, key.refused_actions),
        "parsed": parsed.ok,
        "valid": answer.valid,
        "reward": settings.env.reward_scale * answer.reward,
        "aborted": aborted,
    }
    return StepRow(prompt, call, record), answer


def _close(rows: list[StepRow], end: dict[str, Any]) -> list[StepRow]:
    """Write what only the end of the episode knows onto every row."""
    total = sum(row.record["reward"] for row in rows)
    whole = {
        "steps": len(rows),
        "total": total,
        "won": end["won"],
        "aborted": end["aborted"],
        "overlong": end["overlong"],
        "episode_terminated": end["terminated"],
    }
    return [replace(row, record={**row.record, **whole}) for row in rows]
