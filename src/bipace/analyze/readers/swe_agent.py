"""Readers of SWE-agent's `.traj` files and of mini-swe-agent's `.traj.json` files.

One run of one task in a file.

Sources: SWE-agent (sweagent/types.py, agent/agents.py: get_trajectory_data), mini-swe-agent
(agents/default.py: serialize; formats 1 and 1.1). Neither holds a reward: `--rewards` joins it by the
instance id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bipace.analyze.fields import cause, first, mapped, mappings, named, pick
from bipace.analyze.messages import as_text, message_steps, on_last
from bipace.analyze.readers.base import OUTCOMES, REWARDS
from bipace.analyze.readers.responses import item_messages
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number

__all__ = ["is_mini", "is_swe_agent", "read_mini", "read_swe_agent"]

# What ended a run from outside; every other end (submitted, cost, context, format) is the agent's own.
_INFRASTRUCTURE = ("exit_error", "exit_environment_error", "exit_api", "skipped")
_OWN_ENDS = ("RepeatedFormatError", "ContextWindowExceededError", "FormatError")
_BLOCK = re.compile(r"```(?:bash|sh|mswea_bash_command)?\s*\n(.*?)\n?```", re.DOTALL)


def is_swe_agent(record: object) -> bool:
    """{trajectory: [{action, observation, ...}], history or info}, or {attempts: [...]} of such."""
    if not isinstance(record, Mapping):
        return False
    steps = record.get("trajectory")
    told = isinstance(steps, list) and all(
        isinstance(s, Mapping) and "action" in s and "observation" in s for s in steps
    )
    return (told and ("history" in record or "info" in record)) or (
        isinstance(record.get("attempts"), list) and "trajectory" not in record and "info" in record
    )


def read_swe_agent(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """A step is an entry of `trajectory`: what was done is its `action`, what was said its `response`.

    What a step has read is the observation of the step before it, at first the task. Entries without a
    response and without an action are the harness's (an exit at the cost limit). With several attempts each
    is a trajectory. The prompt group is the first message after the demonstrations, so that equal tasks of
    several files are one group.
    """
    attempts = mappings(record.get("attempts"), "attempts")
    for number, attempt in enumerate(attempts or [record]):
        yield _run(attempt, record, where, f", attempt {number}" if len(attempts) > 1 else "", reading)


def _run(
    run: Mapping[str, Any], record: Mapping[str, Any], where: str, label: str, reading: Reading
) -> LoggedTrajectory:
    history = [m for m in mappings(run.get("history"), "history") if not m.get("is_demo")]
    context = "\n".join(as_text(m.get("content")) for m in history if m.get("role") == "system")
    opening = next((as_text(m.get("content")) for m in history if m.get("role") == "user"), "")
    identity = _instance(record) or Path(reading.file).name.split(".traj")[0]
    info = mapped(run.get("info") or record.get("info"), "info")
    steps: list[LoggedStep] = []
    read, silent = opening, 0
    for entry in mappings(run.get("trajectory"), "trajectory"):
        done, said = as_text(entry.get("action")).strip(), as_text(entry.get("response"))
        if done or said.strip():
            response = said or done
            steps.append(
                LoggedStep(read, response, done or said.strip().lower(), "tool" if done else "text", None)
            )
        else:
            silent += 1
        read = as_text(entry.get("observation"))
    rewards = on_last(as_number(first(info, (*REWARDS, *OUTCOMES))), len(steps))
    status = str(info.get("exit_status") or "")
    ended = next((s for s in _INFRASTRUCTURE if s in status), "")
    return LoggedTrajectory(
        task=opening or identity,
        name=f"{identity}{label}",
        steps=tuple(replace(step, reward=value) for step, value in zip(steps, rewards, strict=True)),
        context=context,
        outcome=as_number(first(info, OUTCOMES)),
        where=where,
        out=cause("error", ended) if ended else "" if steps else "no answer of a model",
        ids=(identity,),
        notes=(f"{silent} entries without an answer are the harness's",) if silent else (),
    )


def _instance(record: Mapping[str, Any]) -> str:
    config = record.get("replay_config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError):
            config = {}
    return named(record, ("instance_id", "info.instance_id")) or str(
        pick(config, "problem_statement.id") or ""
    )


def is_mini(record: object) -> bool:
    """{messages, info} with mini-swe-agent's mark, or with its info (mini_version, exit_status)."""
    if not isinstance(record, Mapping) or not isinstance(record.get("messages"), list):
        return False
    info = record.get("info")
    marked = str(record.get("trajectory_format", "")).startswith("mini-swe-agent")
    return marked or (
        isinstance(info, Mapping) and ("mini_version" in info or {"exit_status", "submission"} <= set(info))
    )


def read_mini(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """A step is an assistant message; what was done are its commands (`extra.actions`, or the code block).

    An uncaught exception puts the run out; a limit or a format error does not.
    """
    info = mapped(record.get("info"), "info")
    messages = _chat(record)
    context, found = message_steps(messages, None)
    answers = [m for m in messages if m.get("role") == "assistant"]
    done = [_commands(message, step) for message, step in zip(answers, found, strict=True)]
    rewards = on_last(
        as_number(first(record, (*REWARDS, *OUTCOMES, "info.reward", "info.score", "info.resolved"))),
        len(found),
    )
    steps = [
        replace(step, action=a, form=f, reward=r)
        for step, (a, f), r in zip(found, done, rewards, strict=True)
    ]
    identity = named(record, ("instance_id", "info.instance_id")) or Path(reading.file).name.split(".traj")[0]
    opening = as_text(found[0].observation) if found else ""
    yield LoggedTrajectory(
        task=named(record, ("instance_id", "info.instance_id")) or opening or identity,
        name=identity,
        steps=tuple(steps),
        context=context,
        outcome=as_number(first(record, (*OUTCOMES, "info.resolved"))),
        where=where,
        out=_failed(info, record) or ("" if steps else "no answer of a model"),
        ids=(identity,),
    )


def _chat(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conversation; messages of the Responses API become chat messages, the exit is none."""
    chat: list[Mapping[str, Any]] = []
    for i, message in enumerate(mappings(record.get("messages"), "messages")):
        if message.get("object") == "response":
            items = item_messages(message.get("output"), f"messages[{i}].output")
            chat += [{**m, "extra": message.get("extra")} for m in items]
        elif message.get("type") == "function_call_output":
            chat.append(
                {"role": "tool", "content": message.get("output"), "tool_call_id": message.get("call_id")}
            )
        elif message.get("role") != "exit":
            reason = pick(message, "extra.response.choices.0.finish_reason")
            chat.append({"finish_reason": reason, **message})
    return chat


def _commands(message: Mapping[str, Any], step: LoggedStep) -> tuple[str, Any]:
    actions = pick(message, "extra.actions")
    given = (
        [a.get("command") if isinstance(a, Mapping) else a for a in actions]
        if isinstance(actions, list)
        else []
    )
    commands = [as_text(c).strip() for c in given if c is not None]
    if not commands and step.form == "text":
        commands = [c.strip() for c in _BLOCK.findall(step.response)][:1]
    return ("\n".join(commands), "tool") if commands else (step.action, step.form)


def _failed(info: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    status = str(info.get("exit_status") or "")
    last = mappings(record.get("messages"), "messages")[-1:]
    extra = mapped(last[0].get("extra"), "messages[-1].extra") if last else {}
    raised = any(place.get(k) for place in (info, extra) for k in ("traceback", "exception_str", "exception"))
    named_error = status.endswith(("Error", "Exception")) and status not in _OWN_ENDS
    return (
        cause("error", status or "uncaught exception")
        if (raised and status not in _OWN_ENDS) or named_error
        else ""
    )
