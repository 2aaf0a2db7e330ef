"""One episode, without a model: it says what to read next, and is told what the model wrote.

Whatever samples drives it: the lock-step collector, an engine's asynchronous loop, a planner's actions.

    episode = Episode.begin(suite, task, rules, chat)
    while (prompt := episode.prompt()) is not None:
        episode.advance(sample(prompt), finished=True)
    trajectory = episode.close()

An environment is not trusted. One that cannot be made or reset, that raises, exits, answers with what is no
`Turn` or pays what is no number costs its own episode: `record.error` says why, and the episode takes no more
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bipace.envs.base import Suite, Turn, executed_command
from bipace.envs.turns import checked_turn, readable
from bipace.rollout.prompts import Chat, Parsed, PromptStyle, parse_response, window_message
from bipace.rollout.records import Step, TokenSequence, Trajectory

__all__ = ["Episode", "Play", "Rules"]


@dataclass(frozen=True)
class Rules:
    """How an episode is told to the model, and how long it may be.

    Attributes:
        style: "transcript" (one growing chat) or "window" (one message a step).
        tagged: responses carry <think> and <action> tags.
        lowercase: actions are lower-cased before the environment sees them (`parse_response`).
        strict: the form of a response includes its thought (`parse_response`).
        instructions: the suite's rules, at the head of the prompt; empty for none.
        history_length: past (observation, action) pairs shown in `window` style.
        max_steps: horizon, in model calls.
        max_new_tokens: response limit, in tokens.
        max_tokens: context limit (prompt, replies and responses together), in tokens. An episode that would
            pass it is truncated and counted as overlong.
        stated: the task as `window` style states it, from the environment's first observation.
    """

    style: PromptStyle = "transcript"
    tagged: bool = False
    lowercase: bool = False
    strict: bool = False
    instructions: str = ""
    history_length: int = 2
    max_steps: int = 12
    max_new_tokens: int = 32
    max_tokens: int = 1024
    stated: Callable[[str], str] = str


@dataclass(slots=True)
class Play:
    """The environment's side of an episode: actions in, turns out, faults kept in.

    Attributes:
        record: what happened so far.
        environment: None where the suite could not make one.
        turn: what it said last.
    """

    record: Trajectory
    environment: Any = None
    turn: Turn = field(default_factory=lambda: Turn(""))

    @property
    def running(self) -> bool:
        """True until the environment, a limit or a fault ended the episode."""
        return not (self.record.terminated or self.record.truncated or self.record.error)

    def reset(self, suite: Suite) -> None:
        """Make an environment and begin the record's task."""
        try:
            self.environment = suite.make()
            self.turn = checked_turn(self.environment.reset(self.record.task))
        except (Exception, SystemExit) as error:
            self.fail(error)

    def act(self, parsed: Parsed, response: str, response_tokens: int = 0, finished: bool = True) -> None:
        """Send one action to the environment and record what came of it.

        Args:
            parsed: the action, and whether the response had the required form.
            response: the decoded response.
            response_tokens: how many tokens it had.
            finished: False where it hit its token limit.
        """
        before, executed = self.turn, None
        try:
            self.turn = checked_turn(self.environment.step(parsed.action))
            executed = executed_command(parsed.action, before, self.turn)
        except (Exception, SystemExit) as error:
            self.fail(error)
        turn = self.turn
        self.record.steps.append(
            Step(
                before.observation, response, response_tokens, parsed.action, parsed.ok, turn.valid, finished,
                turn.reward, executed,
            )
        )  # fmt: skip
        self.record.terminated, self.record.won = turn.terminated, self.record.won or turn.won

    def fail(self, error: BaseException) -> None:
        """End the episode by a fault that is not the policy's."""
        self.record.error = readable(f"{type(error).__name__}: {error}")
        self.turn = Turn("", valid=False)

    def close(self) -> Trajectory:
        """The record, its end marked: what neither the environment nor a fault ended was cut."""
        if not (self.record.terminated or self.record.error):
            self.record.truncated = True
        return self.record


@dataclass(slots=True)
class Episode(Play):
    """The model's side beside it: which tokens it reads next, and which it wrote.

    Attributes:
        rules: how the episode is told, and its limits.
        chat: the model's chat template and tokenizer.
        task_text: the environment's first observation, which states the task.
        tokens: what the model has read and written: all of it in transcript style, this step's in window
            style.
        spans: (start, end) of what it wrote in `tokens`.
    """

    rules: Rules = field(kw_only=True)
    chat: Chat = field(kw_only=True)
    task_text: str = ""
    tokens: list[int] = field(default_factory=list[int])
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _logprobs: list[Any] = field(default_factory=list[Any])
    _states: list[Any] = field(default_factory=list[Any])

    @classmethod
    def begin(cls, suite: Suite, task: str, rules: Rules, chat: Chat, member: int = 0) -> Episode:
        """A new episode of a task; one whose environment failed is over already."""
        episode = cls(Trajectory(task, member), rules=rules, chat=chat)
        episode.reset(suite)
        episode.task_text = episode.turn.observation
        return episode

    @property
    def waiting(self) -> bool:
        """True where the model is to write: the episode runs and the horizon leaves a step."""
        return self.running and len(self.record.steps) < self.rules.max_steps

    def prompt(self) -> list[int] | None:
        """The tokens to read before the next response, or None where there is none: the episode is over."""
        if self.waiting and (self.rules.style == "window" or not self.tokens):
            self.tokens, self.spans = [], []
            self.read(self.opening())
        return list(self.tokens) if self.waiting else None

    def opening(self) -> list[int]:
        """Tokens of a fresh message: the task in transcript style, the present step in window style."""
        rules, steps = self.rules, self.record.steps
        head = rules.instructions.strip()
        if rules.style == "transcript":
            return self.chat.prompt(f"{head}\n\n{self.task_text}" if head else self.task_text)
        task = rules.stated(self.task_text)
        shown = steps[len(steps) - min(rules.history_length, len(steps)) :]
        history = [(step.observation, step.action) for step in shown]
        return self.chat.prompt(window_message(head, task, history, len(steps), self.turn, rules.tagged))

    def read(self, tokens: Sequence[int]) -> None:
        """Add what the model reads next; the episode is cut where no response would fit behind it."""
        self.tokens += tokens
        if len(self.tokens) + self.rules.max_new_tokens > self.rules.max_tokens:
            self.record.truncated = self.record.overlong = True

    def advance(
        self,
        tokens: Sequence[int],
        *,
        finished: bool,
        logprobs: Any = None,
        state: NDArray[Any] | None = None,
    ) -> list[int]:
        """Take one response: send its action to the environment, read the answer.

        Args:
            tokens: as sampled, the end token included; none at all is a fault of what samples.
            finished: False where the response hit its token limit.
            logprobs: log-probability of each token, or None.
            state: hidden state at the last token before the response, or None.

        Returns:
            What the model reads next, behind its response (transcript style); empty where the episode is
            over.
        """
        if not len(tokens):
            self.fail(RuntimeError("the model gave no tokens"))
            return []
        start = len(self.tokens)
        self.tokens += map(int, tokens)
        self.spans.append((start, len(self.tokens)))
        self._logprobs.append(logprobs)
        self._states.append(state)
        rules, text = self.rules, self.chat.decode(tokens)
        parsed = parse_response(text, rules.tagged, lowercase=rules.lowercase, strict=rules.strict)
        self.act(parsed, text, len(tokens), finished)
        if rules.style == "window":
            self.record.sequences.append(self._sequence())
        elif self.running:
            reply = self.chat.reply(self.turn.observation, finished)
            self.read(reply)
            return reply
        return []

    def close(self) -> Trajectory:
        """The record with its tokens, its end marked."""
        if self.rules.style == "transcript" and self.spans:
            self.record.sequences = [self._sequence()]
        return Play.close(self)

    def _sequence(self) -> TokenSequence:
        """What was read and written up to the last response.

        Tokens behind it were never followed by a call.
        """
        n = len(self.spans)
        logprobs, states = self._logprobs[-n:], self._states[-n:]
        return TokenSequence(
            np.array(self.tokens[: self.spans[-1][1]]),
            tuple(self.spans),
            None if any(known is None for known in logprobs) else np.concatenate(logprobs),
            None if any(state is None for state in states) else np.stack(states),
        )
