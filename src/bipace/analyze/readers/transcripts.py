"""Readers of published ReAct transcripts: ADaPT's result files and Reflexion's trial logs.

In ADaPT's, a thought that the environment answers with `OK.` is no step: it belongs to what was said with the
next command, and at the end of an episode with the last one. In Reflexion's, a thought and its action are one
step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from bipace.analyze.messages import on_last
from bipace.analyze.readers.base import mapping_records
from bipace.analyze.records import LoggedStep, LoggedTrajectory, Reading, as_number
from bipace.analyze.source import Located

__all__ = ["is_adapt", "is_reflexion", "read_adapt", "read_reflexion"]

_THOUGHT = re.compile(r"think\b", re.IGNORECASE)
_OK = ("OK.", "OK")
_SECTION = re.compile(r"^-+ BEGIN (\w+) AGENTS -+$")
_TRIAL = re.compile(r"^BEGIN TRIAL (\d+)$")
_LINE = re.compile(r"^(Thought|Action|Observation) (\d+): ?(.*)$")


def is_adapt(record: object) -> bool:
    """True for an object of episodes {problem, trace, ...}, or of families of such episodes."""
    return isinstance(record, Mapping) and next(_episodes(record), None) is not None


def read_adapt(found: Iterable[Located], reading: Reading) -> Iterator[LoggedTrajectory]:
    """ADaPT: {family: {task: {problem, trace, reward}}} or {task: {...}}.

    The summary entry `overall` is no episode.

    The trace is `> command` lines with the environment's answers between; it begins with a command. An
    episode whose trace holds no command becomes one empty step, so that every task is counted.
    """
    blank = 0
    for _, record in mapping_records(found, reading):
        for task, episode in _episodes(record):
            reward = as_number(episode.get("reward", episode.get("success")))
            turns = _commands(str(episode["problem"]), str(episode["trace"]))
            if not turns:
                turns = [(str(episode["problem"]), "")]
                blank += 1
            steps = _without_thoughts(turns, reward, reading)
            yield LoggedTrajectory(task, task, steps, str(episode.get("commands", "")), where=task)
    if blank:
        reading.notes.append(
            f"{blank} episodes have a trace without a command; each is kept as one empty step"
        )


def _without_thoughts(
    turns: Sequence[tuple[object, str]], reward: float | None, reading: Reading
) -> tuple[LoggedStep, ...]:
    """Steps of (observation, command) turns.

    A thought goes into the response of the command that follows it.
    """
    found: list[LoggedStep] = []
    read: object = None
    said: list[str] = []
    for i, (observation, command) in enumerate(turns):
        answer = turns[i + 1][0] if i + 1 < len(turns) else _OK[0]
        read = observation if not said else read
        if _THOUGHT.match(command) and str(answer).strip() in _OK and (found or i + 1 < len(turns)):
            said.append(command)
            reading.folded["thoughts answered by OK."] += 1
            continue
        found.append(LoggedStep(read, "\n".join([*said, command]), command.strip().lower(), "text", None))
        said = []
    if said and found:
        found[-1] = replace(found[-1], response="\n".join([found[-1].response, *said]))
    elif said:
        found.append(LoggedStep(read, "\n".join(said), "", "text", None))
    rewards = on_last(reward, len(found))
    return tuple(replace(step, reward=value) for step, value in zip(found, rewards, strict=True))


def is_reflexion(head: str) -> bool:
    """True for text that holds `BEGIN TRIAL`, a section of agents and a `Question:`."""
    return "BEGIN TRIAL" in head and "AGENTS -" in head and "Question:" in head


def read_reflexion(file: IO[str], reading: Reading) -> Iterator[LoggedTrajectory]:
    """Reflexion's HotpotQA log: trials of questions under the headings CORRECT, INCORRECT and HALTED.

    The reward is 1 under CORRECT, else 0. An episode listed under two headings of one trial is taken once.
    """
    seen: set[tuple[str, str]] = set()
    repeated = 0
    for trial, section, question, lines, number in _questions(file):
        if (trial, question) in seen:
            repeated += 1
            continue
        seen.add((trial, question))
        steps = _thoughts(question, lines, 1.0 if section == "CORRECT" else 0.0)
        where = f"line {number}"
        if steps:
            yield LoggedTrajectory(question, f"trial {trial}: {question}", steps, where=where)
        else:
            reading.skip(where, "a question without an action")
    if repeated:
        reading.notes.append(f"{repeated} episodes stand under two headings of their trial (INCORRECT and "
                             "HALTED); "
                             "each was taken once")  # fmt: skip


def _episodes(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in record.items():
        if not isinstance(value, Mapping):
            continue
        if isinstance(value.get("trace"), str) and "problem" in value:
            yield name, value
        else:
            yield from _episodes(value)


def _commands(problem: str, trace: str) -> list[tuple[object, str]]:
    turns: list[tuple[object, str]] = []
    read: list[str] = [problem]
    heard: list[str] = []
    expects = True
    for line in trace.split("\n"):
        command = line[1:].strip() if line.startswith(">") else line.strip() if expects else ""
        if command:
            if turns:
                read = heard
            turns.append(("\n".join(read), command))
            heard, expects = [], False
        elif line.startswith(">"):
            expects = True
        elif line.strip():
            heard.append(line.strip())
    return turns


def _questions(file: IO[str]) -> Iterator[tuple[str, str, str, list[str], int]]:
    trial = section = question = ""
    lines: list[str] = []
    start = 0
    for number, raw in enumerate(file, 1):
        line = raw.rstrip("\r\n")
        heading, begins = _SECTION.match(line), _TRIAL.match(line)
        if heading or begins or line.startswith("Question:"):
            if question:
                yield trial, section, question, lines, start
            question, lines = "", []
        if begins:
            trial = begins[1]
        elif heading:
            section = heading[1]
        elif line.startswith("Question:"):
            question, start = line.removeprefix("Question:").strip(), number
        elif question:
            lines.append(line)
    if question:
        yield trial, section, question, lines, start


def _thoughts(question: str, lines: list[str], reward: float) -> tuple[LoggedStep, ...]:
    """A thought with its action is one step; the observation before it is what it read."""
    parts: list[tuple[str, list[str]]] = []
    for line in lines:
        match = _LINE.match(line)
        if match:
            parts.append((match[1], [match[3]]))
        elif line.startswith("Correct answer:"):
            break
        elif parts:
            parts[-1][1].append(line)
    read, thought = question, ""
    found: list[tuple[str, str, str]] = []
    for kind, text in ((kind, "\n".join(body).strip()) for kind, body in parts):
        if kind == "Thought":
            thought = text
        elif kind == "Action":
            found.append((read, f"{thought}\n{text}".strip(), text.lower()))
            thought = ""
        else:
            read = text
    last = len(found) - 1
    return tuple(
        LoggedStep(observation, response, action, "tag", reward if i == last else 0.0)
        for i, (observation, response, action) in enumerate(found)
    )
