"""Readers of formats that keep one conversation, or one episode, in one record.

Sources: tau-bench's result lists ({task_id, trial, reward, traj}), OpenAI message lists, verifiers 0.1
`results.jsonl` (save_utils.state_to_output), and this project's own episodes (bipace.rollout.records).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bipace.analyze.fields import cause, mappings, number
from bipace.analyze.messages import as_text, is_messages
from bipace.analyze.readers.base import conversation, reward_of
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number

__all__ = ["MESSAGES", "read_bipace", "read_openai", "read_tau_bench", "read_verifiers"]

MESSAGES = ("messages", "conversation", "conversations", "messages_and_choices")


def read_tau_bench(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{task_id, trial, reward, traj: messages}.

    One assistant message is a step, one task id a prompt group.
    """
    if is_messages(record.get("traj")):
        name = f"task {record.get('task_id')}, trial {record.get('trial', where)}"
        yield from conversation(
            record["traj"], reward_of(record, where, reading), record, where, reading, name
        )
    else:
        reading.skip(where, "traj: expected a list of messages")


def read_openai(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """A record that holds a list of messages; reward, task and id beside it if given.

    Without a task id the prompt group is the text before the first answer.
    """
    messages = next((record[k] for k in MESSAGES if isinstance(record.get(k), list)), None)
    if messages is None:
        reading.skip(where, "holds no list of messages")
        return
    # ART's older files keep an answer as a choice, {finish_reason, message}.
    flat = [_unwrapped(m) for m in mappings(messages, "messages")]
    yield from conversation(flat, reward_of(record, where, reading), record, where, reading)


def read_verifiers(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """{example_id, prompt, completion, reward}: prompt and completion are message lists or text."""
    messages = [*_messages(record.get("prompt"), "user"), *_messages(record.get("completion"), "assistant")]
    yield from conversation(messages, reward_of(record, where, reading), record, where, reading)


def read_bipace(where: str, record: Mapping[str, Any], reading: Reading) -> Iterator[LoggedTrajectory]:
    """Episodes of this project: {task, member, won, error, steps}, in a run's rollouts.jsonl `iteration` too.

    The prompt group is a task at one iteration: another iteration is another policy. Aborted ones are out.
    """
    steps = tuple(_own_step(step) for step in mappings(record["steps"], "steps"))
    out = cause("aborted by the environment", record["error"]) if record.get("error") else ""
    if not steps and not out:
        out = "no step: the first prompt was too long" if record.get("overlong") else ""
    if not steps and not out:
        reading.skip(where, "steps: an episode without steps")
        return
    iteration = number(record.get("iteration"), "iteration")
    label = "" if iteration is None else f" @ iteration {iteration:g}"
    task, outcome = f"{as_text(record.get('task'))}{label}", as_number(record.get("won"))
    name = f"{task} #{record.get('member', where)}"
    yield LoggedTrajectory(task, name, steps, outcome=outcome, where=where, out=out)


def _own_step(step: Mapping[str, Any]) -> LoggedStep:
    said, command = as_text(step.get("action")).strip(), step.get("executed")
    # Records made before the executed command was kept have the action's text alone.
    refused = "executed" in step and command is None and step.get("valid", True) is False
    action = f"refused: {' '.join(said.lower().split())}" if refused else as_text(command) or said.lower()
    return LoggedStep(
        observation=step.get("observation"),
        response=as_text(step.get("response")),
        action=action,
        form="tag" if step.get("parsed", True) else "text",
        reward=as_number(step.get("reward")),
        cut=step.get("finished", True) is False,
    )


def _unwrapped(message: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = message.get("message")
    if "role" not in message and isinstance(inner, Mapping):
        return {**inner, "finish_reason": message.get("finish_reason")}
    return message


def _messages(value: object, role: str) -> list[Mapping[str, Any]]:
    if isinstance(value, str) and value.startswith("[{"):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = value
        value = parsed if is_messages(parsed) else value
    if is_messages(value):
        return list(value)  # pyright: ignore[reportArgumentType]  (is_messages has checked it)
    return [{"role": role, "content": value}] if value not in (None, []) else []
