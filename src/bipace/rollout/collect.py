"""Collect rollouts: all episodes in lock step, one batched model call a step.

The KV cache of a `transcript` lives through the whole episode and a prompt group's first prompt is computed once. A
failing environment costs its own episode, which is marked and kept out of every baseline and of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bipace.envs.base import Environment, Suite, Turn, executed_command, offers_of
from bipace.rollout.prompts import Chat, PromptStyle, parse_response, window_message
from bipace.rollout.records import Step, TokenSequence, Trajectory

__all__ = ["Collector", "Decoder", "Session", "Start"]


class Session(Protocol):
    """Lock-step decoding of many rows (bipace.policies.session.DecodeSession)."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens held per row."""
        ...

    def generate(self, rows: Sequence[int], *, max_new_tokens: int, temperature: float, generator: Any) -> list[Any]:
        """One response for each of the rows."""
        ...

    def extend(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append context tokens to the rows."""
        ...


class Decoder(Protocol):
    """What plays episodes: an actor, or another engine that speaks with its weights."""

    tokenizer: Any

    def session(
        self, prompts: Sequence[Sequence[int]], copies: int = 1, *, capacity: int, layer: int | None = None
    ) -> Session:
        """Begin decoding: each prompt computed once, then copied to `copies` rows; `layer` is the state to keep."""
        ...

    def sync(self) -> None:
        """Take over the actor's present weights; called after every update."""
        ...


@dataclass(frozen=True)
class Start:
    """A state in the middle of an episode, to be played on from.

    Attributes:
        task: the task id.
        environment: in that state; it is copied, never stepped.
        turn: what it said last.
        steps: the steps that led here; empty at the beginning.
        tokens: what the model has read and written, up to the next response (transcript style); empty: the task's
            prompt is made afresh.
    """

    task: str
    environment: Environment
    turn: Turn
    steps: tuple[Step, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(slots=True)
class _Episode:
    """One running episode: its environment, and what it has said and heard so far."""

    record: Trajectory
    environment: Any  # an Environment; None where the suite could not make one
    turn: Turn
    task_text: str
    tokens: list[int]
    spans: list[tuple[int, int]]
    heard: list[Any] = field(default_factory=list[Any])

    @property
    def running(self) -> bool:
        return not (self.record.terminated or self.record.truncated or self.record.error)


@dataclass(frozen=True)
class Collector:
    """How rollouts are made.

    Attributes:
        suite: the environments.
        style: "transcript" or "window".
        tagged: responses carry <think> and <action> tags.
        lowercase: actions are lower-cased before the environment sees them (`parse_response`).
        strict: the form of a response includes its thought (`parse_response`).
        instructions: put the suite's instructions at the head of the prompt.
        history_length: past (observation, action) pairs shown in `window` style.
        max_steps: horizon, in model calls.
        max_new_tokens: response limit, in tokens.
        max_tokens: context limit (prompt, replies and responses together), in tokens. An episode that would pass it
            is truncated and counted as overlong.
        wave: episodes decoded side by side; bounds the memory of the KV cache.
        layer: index of the hidden state kept at the last prompt token of each step, or None for none.
    """

    suite: Suite
    style: PromptStyle = "transcript"
    tagged: bool = False
    lowercase: bool = False
    strict: bool = False
    instructions: bool = False
    history_length: int = 2
    max_steps: int = 12
    max_new_tokens: int = 32
    max_tokens: int = 1024
    wave: int = 256
    layer: int | None = None

    def collect(
        self,
        actor: Decoder,
        tasks: Sequence[str],
        group_size: int,
        *,
        temperature: float,
        generator: Any,
        progress: Callable[[int], None] = lambda _episodes: None,
    ) -> list[Trajectory]:
        """Play `group_size` episodes of every task.

        Args:
            actor: the policy.
            tasks: prompt groups; a task listed twice is one prompt group twice as large.
            group_size: G.
            temperature: of sampling; 0 is greedy.
            generator: the random stream the actor samples from.
            progress: called with the number of finished episodes after each wave.

        Returns:
            Trajectories, task-major: tasks[0]'s G members first.
        """
        chat = Chat(actor.tokenizer)
        found: list[Trajectory] = []
        step = max(1, self.wave // group_size)
        for start in range(0, len(tasks), step):
            episodes = [self._begin(task, k) for task in tasks[start : start + step] for k in range(group_size)]
            self._play(actor, chat, episodes, group_size, temperature, generator)
            found += [episode.record for episode in episodes]
            progress(len(found))
        return found

    def play_on(
        self, actor: Decoder, starts: Sequence[Start], copies: int, *, temperature: float, generator: Any
    ) -> list[Trajectory]:
        """Play `copies` episodes from each of the given states, over the steps the horizon leaves.

        Args:
            actor: the policy.
            starts: states that are all equally many steps into their episodes.
            copies: episodes from each.
            temperature: of sampling.
            generator: the random stream.

        Returns:
            Trajectories, starts[0]'s copies first; their steps begin with those of the start.

        Raises:
            ValueError: starts of different ages.
        """
        if not starts:
            return []
        taken = {len(start.steps) for start in starts}
        if len(taken) > 1:
            raise ValueError(f"starts: {sorted(taken)} steps into their episodes; play states of one age at a time")
        chat, rest = Chat(actor.tokenizer), replace(self, max_steps=self.max_steps - taken.pop())
        found: list[Trajectory] = []
        step = max(1, self.wave // copies)
        for begin in range(0, len(starts), step):
            episodes = [self._continue(start, k) for start in starts[begin : begin + step] for k in range(copies)]
            rest._play(actor, chat, episodes, copies, temperature, generator)
            found += [episode.record for episode in episodes]
        return found

    def _continue(self, start: Start, member: int) -> _Episode:
        record = Trajectory(start.task, member, steps=list(start.steps))
        task_text = start.steps[0].observation if start.steps else start.turn.observation
        return _Episode(record, start.environment.copy(), start.turn, task_text, list(start.tokens), [])

    def _play(
        self, actor: Decoder, chat: Chat, episodes: list[_Episode], copies: int, temperature: float, generator: Any
    ) -> None:
        play = self._play_transcript if self.style == "transcript" else self._play_window
        play(actor, chat, episodes, copies, temperature, generator)

    def _begin(self, task: str, member: int) -> _Episode:
        record = Trajectory(task, member)
        environment, turn = None, Turn("")
        try:
            environment = self.suite.make()
            turn = _checked(environment.reset(task))
        except (Exception, SystemExit) as error:
            record.error = f"{type(error).__name__}: {error}"
        return _Episode(record, environment, turn, turn.observation, [], [])

    def _play_transcript(
        self, actor: Decoder, chat: Chat, episodes: list[_Episode], copies: int, temperature: float, generator: Any
    ) -> None:
        rules = f"{self.suite.instructions.strip()}\n\n" if self.instructions else ""
        # A group reads one prompt. It is a working member's: one whose reset failed has none.
        groups = [episodes[start : start + copies] for start in range(0, len(episodes), copies)]
        speakers = [next((e for e in group if not e.record.error), group[0]) for group in groups]
        prompts = [episode.tokens or chat.prompt(rules + episode.task_text) for episode in speakers]
        for i, episode in enumerate(episodes):
            episode.tokens = list(prompts[i // copies])
            self._check_room(episode)
        fitting = [prompt[: self.max_tokens - self.max_new_tokens] for prompt in prompts]
        session = actor.session(fitting, copies=copies, capacity=self.max_tokens, layer=self.layer)
        for _ in range(self.max_steps):
            rows = [i for i, episode in enumerate(episodes) if episode.running]
            if not rows:
                break
            responses = session.generate(
                rows, max_new_tokens=self.max_new_tokens, temperature=temperature, generator=generator
            )
            replies: dict[int, list[int]] = {}
            for row, response in zip(rows, responses, strict=True):
                episode = episodes[row]
                self._advance(actor, episode, response)
                if episode.running:
                    replies[row] = chat.reply(episode.turn.observation, response.finished)
                    episode.tokens += replies[row]
                    self._check_room(episode)
            going = [row for row in replies if episodes[row].running]
            session.extend(going, [replies[row] for row in going])
        for episode in episodes:
            # Tokens behind the last response were never followed by a model call.
            if episode.spans:
                tokens = episode.tokens[: episode.spans[-1][1]]
                episode.record.sequences = [_sequence(tokens, episode.spans, episode.heard)]
            self._close(episode)

    def _play_window(
        self, actor: Decoder, chat: Chat, episodes: list[_Episode], copies: int, temperature: float, generator: Any
    ) -> None:
        del copies
        for _ in range(self.max_steps):
            for episode in episodes:
                if episode.running:
                    episode.tokens = chat.prompt(self._window(episode))
                    self._check_room(episode)
            running = [episode for episode in episodes if episode.running]
            if not running:
                break
            session = actor.session(
                [episode.tokens for episode in running], copies=1, capacity=self.max_tokens, layer=self.layer
            )
            responses = session.generate(
                range(len(running)), max_new_tokens=self.max_new_tokens, temperature=temperature, generator=generator
            )
            for episode, response in zip(running, responses, strict=True):
                self._advance(actor, episode, response)
                episode.record.sequences.append(_sequence(episode.tokens, episode.spans[-1:], episode.heard[-1:]))
        for episode in episodes:
            self._close(episode)

    def _window(self, episode: _Episode) -> str:
        steps = episode.record.steps
        history = [(s.observation, s.action) for s in steps[len(steps) - min(self.history_length, len(steps)) :]]
        rules = self.suite.instructions if self.instructions else ""
        task = offers_of(self.suite).task_text(episode.task_text)
        return window_message(rules, task, history, len(steps), episode.turn, self.tagged)

    def _advance(self, actor: Decoder, episode: _Episode, response: Any) -> None:
        """Send one response to the environment and record what came of it."""
        start = len(episode.tokens)
        episode.tokens += response.tokens.tolist()
        episode.spans.append((start, len(episode.tokens)))
        episode.heard.append(response)
        text = actor.tokenizer.decode(response.tokens, skip_special_tokens=True)
        parsed = parse_response(text, self.tagged, lowercase=self.lowercase, strict=self.strict)
        before, executed = episode.turn, None
        record = episode.record
        try:
            episode.turn = _checked(episode.environment.step(parsed.action))
            executed = executed_command(parsed.action, before, episode.turn)
        except (Exception, SystemExit) as error:
            record.error = f"{type(error).__name__}: {error}"
            episode.turn = Turn("", valid=False)
        turn = episode.turn
        record.steps.append(
            Step(
                before.observation, text, len(response.tokens), parsed.action, parsed.ok, turn.valid,
                response.finished, turn.reward, executed,
            )
        )  # fmt: skip
        record.terminated, record.won = turn.terminated, record.won or turn.won

    def _check_room(self, episode: _Episode) -> None:
        if len(episode.tokens) + self.max_new_tokens > self.max_tokens:
            episode.record.truncated = episode.record.overlong = True

    def _close(self, episode: _Episode) -> None:
        record = episode.record
        if not (record.terminated or record.error):
            record.truncated = True


def _checked(turn: Turn) -> Turn:
    """The turn, if it is one that can be used: an environment's answer is not trusted."""
    if not isinstance(turn, Turn):
        raise TypeError(f"the environment answered with a {type(turn).__name__}, not a Turn")
    if not isinstance(turn.observation, str):
        raise TypeError(f"the observation is a {type(turn.observation).__name__}, not text")
    if not (turn.executed is None or isinstance(turn.executed, str)):
        raise TypeError(f"Turn.executed is a {type(turn.executed).__name__}, not text")
    if not math.isfinite(turn.reward):
        raise ValueError(f"the reward is {turn.reward}, not a finite number")
    return turn


def _sequence(tokens: Sequence[int], spans: Sequence[tuple[int, int]], responses: Sequence[Any]) -> TokenSequence:
    states = [response.state for response in responses]
    return TokenSequence(
        np.array(tokens),
        tuple(spans),
        np.concatenate([response.logprobs for response in responses]),
        None if any(state is None for state in states) else np.stack(states),
    )
