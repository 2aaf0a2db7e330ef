"""Collect rollouts: all episodes in lock step, one batched model call a step.

The KV cache of a `transcript` lives through the whole episode and a prompt group's first prompt is computed
once. A failing environment costs its own episode, which is marked and kept out of every baseline and of the
loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bipace.envs.base import Environment, Suite, Turn, offers_of
from bipace.rollout.episode import Episode, Rules
from bipace.rollout.prompts import Chat, PromptStyle
from bipace.rollout.records import Step, Trajectory

__all__ = ["Collector", "Decoder", "Session", "Start"]


class Session(Protocol):
    """Lock-step decoding of many rows (bipace.policies.session.DecodeSession)."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens held per row."""
        ...

    def generate(
        self, rows: Sequence[int], *, max_new_tokens: int, temperature: float, generator: Any
    ) -> list[Any]:
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
        """Begin decoding: each prompt computed once, then copied to `copies` rows.

        `layer` is the state to keep.
        """
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
        tokens: what the model has read and written, up to the next response (transcript style); empty: the
            task's prompt is made afresh.
    """

    task: str
    environment: Environment
    turn: Turn
    steps: tuple[Step, ...] = ()
    tokens: tuple[int, ...] = ()


# long: a quarter of it says what each of its settings is.
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
        max_tokens: context limit (prompt, replies and responses together), in tokens. An episode that would
            pass it is truncated and counted as overlong.
        parallel: episodes decoded side by side; bounds the memory of the KV cache.
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
    parallel: int = 256
    layer: int | None = None

    @property
    def rules(self) -> Rules:
        """What an episode is told by."""
        return Rules(
            self.style, self.tagged, self.lowercase, self.strict,
            self.suite.instructions if self.instructions else "", self.history_length, self.max_steps,
            self.max_new_tokens, self.max_tokens, offers_of(self.suite).task_text,
        )  # fmt: skip

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
            progress: called with the number of finished episodes after each batch of parallel ones.

        Returns:
            Trajectories, task-major: tasks[0]'s G members first.
        """
        chat = Chat(actor.tokenizer)
        found: list[Trajectory] = []
        step = max(1, self.parallel // group_size)
        for start in range(0, len(tasks), step):
            episodes = [
                Episode.begin(self.suite, task, self.rules, chat, k)
                for task in tasks[start : start + step]
                for k in range(group_size)
            ]
            self._play(actor, episodes, group_size, temperature, generator)
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
        taken = {len(start.steps) for start in starts}
        if len(taken) > 1:
            raise ValueError(
                f"starts: {sorted(taken)} steps into their episodes; play states of one age at a time"
            )
        chat = Chat(actor.tokenizer)
        found: list[Trajectory] = []
        step = max(1, self.parallel // copies)
        for begin in range(0, len(starts), step):
            chosen = starts[begin : begin + step]
            episodes = [_continued(start, k, self.rules, chat) for start in chosen for k in range(copies)]
            self._play(actor, episodes, copies, temperature, generator)
            found += [episode.record for episode in episodes]
        return found

    def _play(
        self, actor: Decoder, episodes: list[Episode], copies: int, temperature: float, generator: Any
    ) -> None:
        play = self._play_transcript if self.style == "transcript" else self._play_window
        play(actor, episodes, copies, temperature, generator)
        for episode in episodes:
            episode.close()

    def _play_transcript(
        self, actor: Decoder, episodes: list[Episode], copies: int, temperature: float, generator: Any
    ) -> None:
        # A group reads one prompt. It is a working member's: one whose reset failed has none.
        groups = [episodes[start : start + copies] for start in range(0, len(episodes), copies)]
        speakers = [next((e for e in group if not e.record.error), group[0]) for group in groups]
        prompts = [episode.tokens or episode.opening() for episode in speakers]
        for i, episode in enumerate(episodes):
            episode.tokens = []
            episode.read(prompts[i // copies])
        fitting = [prompt[: self.max_tokens - self.max_new_tokens] for prompt in prompts]
        session = actor.session(fitting, copies=copies, capacity=self.max_tokens, layer=self.layer)
        while rows := [i for i, episode in enumerate(episodes) if episode.waiting]:
            responses = session.generate(
                rows, max_new_tokens=self.max_new_tokens, temperature=temperature, generator=generator
            )
            replies = {
                row: _take(episodes[row], response) for row, response in zip(rows, responses, strict=True)
            }
            going = [row for row in rows if episodes[row].running]
            session.extend(going, [replies[row] for row in going])

    def _play_window(
        self, actor: Decoder, episodes: list[Episode], copies: int, temperature: float, generator: Any
    ) -> None:
        del copies
        while prompts := [(e, prompt) for e in episodes if (prompt := e.prompt()) is not None]:
            session = actor.session(
                [prompt for _, prompt in prompts], copies=1, capacity=self.max_tokens, layer=self.layer
            )
            responses = session.generate(
                range(len(prompts)),
                max_new_tokens=self.max_new_tokens,
                temperature=temperature,
                generator=generator,
            )
            for (episode, _), response in zip(prompts, responses, strict=True):
                _take(episode, response)


def _take(episode: Episode, response: Any) -> list[int]:
    return episode.advance(
        response.tokens, finished=response.finished, logprobs=response.logprobs, state=response.state
    )


def _continued(start: Start, member: int, rules: Rules, chat: Chat) -> Episode:
    record = Trajectory(start.task, member, steps=list(start.steps))
    task_text = start.steps[0].observation if start.steps else start.turn.observation
    return Episode(
        record, start.environment.copy(), start.turn, rules=rules, chat=chat, task_text=task_text,
        tokens=list(start.tokens),
    )  # fmt: skip
