"""What a rollout leaves behind: steps as text, and the tokens exactly as they were sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EpisodeSummary", "Step", "TokenSequence", "Trajectory", "episode_metrics", "events"]


@dataclass(frozen=True, slots=True)
class Step:
    """One model call.

    Attributes:
        observation: what the environment said before the call.
        response: the decoded response.
        response_tokens: number of sampled tokens.
        action: what was sent to the environment.
        parsed: True when the response had the required form.
        valid: False when the environment could not apply the action.
        finished: False when the response hit its token limit.
        reward: the environment's reward for the action, in its own unit.
        executed: the command that the environment executed, in canonical form
            (`bipace.envs.base.executed_command`); None where it refused the action, and in records made
            before this was kept.
    """

    observation: str
    response: str
    response_tokens: int
    action: str
    parsed: bool
    valid: bool
    finished: bool
    reward: float
    executed: str | None = None


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Tokens the model read and wrote, and the spans it wrote.

    Attributes:
        tokens: [L] int64.
        spans: (start, end) of each response, in step order; the prompt of a step is everything before its
            start.
        logprobs: log-probability of each response token under the policy that sampled it, in order; None for
            tokens that no policy sampled (demonstrations).
        states: [spans, D] hidden state at the last token before each response, or None where none was kept.
    """

    tokens: NDArray[np.int64]
    spans: tuple[tuple[int, int], ...]
    logprobs: NDArray[np.float32] | None = None
    states: NDArray[np.float32] | None = None


@dataclass(slots=True)
class Trajectory:
    """One episode of one task, as far as it went.

    Over all `sequences`, spans and steps are in the same order: one sequence for a transcript, one a step for
    a window.

    Attributes:
        task: the task id: the prompt group.
        member: index within its prompt group.
        steps: the model calls; empty when the first prompt was too long.
        sequences: the tokens.
        won: True when the task was solved.
        terminated: True when the environment ended the episode.
        truncated: True when the horizon or the context limit did.
        overlong: True when the context limit did.
        error: why the episode was aborted by a failing environment; empty otherwise.
    """

    task: str
    member: int
    steps: list[Step] = field(default_factory=list[Step])
    sequences: list[TokenSequence] = field(default_factory=list[TokenSequence])
    won: bool = False
    terminated: bool = False
    truncated: bool = False
    overlong: bool = False
    error: str = ""

    @property
    def reward(self) -> float:
        """Sum of the step rewards."""
        return float(sum(step.reward for step in self.steps))

    @property
    def summary(self) -> EpisodeSummary:
        """What metrics need of it."""
        return EpisodeSummary(
            steps=len(self.steps),
            reward=self.reward,
            won=self.won,
            terminated=self.terminated,
            truncated=self.truncated,
            overlong=self.overlong,
            aborted=bool(self.error),
            unparsed=sum(not step.parsed for step in self.steps),
            rejected=sum(not step.valid for step in self.steps),
            unfinished=sum(not step.finished for step in self.steps),
        )

    def to_json(self) -> dict[str, Any]:
        """The record as one JSON line (text only; tokens stay with the trainer)."""
        steps = [{name: getattr(step, name) for name in Step.__slots__} for step in self.steps]
        flags = {k: getattr(self, k) for k in ("won", "terminated", "truncated", "overlong", "error")}
        return {"task": self.task, "member": self.member, "reward": self.reward, **flags, "steps": steps}


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """What metrics need of an episode; plain values, so that it can travel with an engine's rows.

    Attributes:
        steps: model calls.
        reward: sum of the step rewards, in the environment's own unit.
        won: True when the task was solved.
        terminated: True when the environment ended the episode.
        truncated: True when the horizon or the context limit did.
        overlong: True when the context limit did.
        aborted: True when a failing environment did.
        unparsed: responses without the required form.
        rejected: actions that the environment could not apply.
        unfinished: responses that hit their token limit.
    """

    steps: int
    reward: float
    won: bool
    terminated: bool
    truncated: bool
    overlong: bool
    aborted: bool
    unparsed: int
    rejected: int
    unfinished: int


def episode_metrics(episodes: Sequence[EpisodeSummary]) -> dict[str, float]:
    """Episodes and ordinary mishaps of a rollout, as `episode/` and `event/` of docs/metrics.md.

    Rates and means are over episodes with a step that no fault ended; 0 where there are none.
    """
    played = [e for e in episodes if e.steps and not e.aborted]
    n = max(len(played), 1)
    return {
        "episode/success_rate": sum(e.won for e in played) / n,
        "episode/reward_mean": sum(e.reward for e in played) / n,
        "episode/steps_mean": sum(e.steps for e in played) / n,
        "episode/count": float(len(played)),
        "event/unparsed": float(sum(e.unparsed for e in episodes)),
        "event/rejected": float(sum(e.rejected for e in episodes)),
        "event/unfinished": float(sum(e.unfinished for e in episodes)),
        "event/overlong": float(sum(e.overlong for e in episodes)),
        "event/truncated": float(sum(e.truncated for e in episodes)),
        "event/aborted": float(sum(e.aborted for e in episodes)),
    }


def events(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """How often the ordinary mishaps of a rollout happened, as metric names -> counts."""
    metrics = episode_metrics([trajectory.summary for trajectory in trajectories])
    return {name: value for name, value in metrics.items() if name.startswith("event/")}
