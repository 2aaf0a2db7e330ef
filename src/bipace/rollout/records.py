"""What a rollout leaves behind: steps as text, and the tokens exactly as they were sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Step", "TokenSequence", "Trajectory", "events"]


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
        executed: the command that the environment executed, in canonical form (`bipace.envs.base.executed_command`);
            None where it refused the action, and in records made before this was kept.
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
        spans: (start, end) of each response, in step order; the prompt of a step is everything before its start.
        logprobs: log-probability of each response token under the policy that sampled it, in order; None for tokens
            that no policy sampled (demonstrations).
        states: [spans, D] hidden state at the last token before each response, or None where none was kept.
    """

    tokens: NDArray[np.int64]
    spans: tuple[tuple[int, int], ...]
    logprobs: NDArray[np.float32] | None = None
    states: NDArray[np.float32] | None = None


@dataclass(slots=True)
class Trajectory:
    """One episode of one task, as far as it went.

    Over all `sequences`, spans and steps are in the same order: one sequence for a transcript, one a step for a window.

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

    def to_json(self) -> dict[str, Any]:
        """The record as one JSON line (text only; tokens stay with the trainer)."""
        steps = [{name: getattr(step, name) for name in Step.__slots__} for step in self.steps]
        flags = {k: getattr(self, k) for k in ("won", "terminated", "truncated", "overlong", "error")}
        return {"task": self.task, "member": self.member, "reward": self.reward, **flags, "steps": steps}


def events(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """How often the ordinary mishaps of a rollout happened, as metric names -> counts."""
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    counts = Counter(
        {
            "event/unparsed": sum(not s.parsed for s in steps),
            "event/rejected": sum(not s.valid for s in steps),
            "event/unfinished": sum(not s.finished for s in steps),
            "event/overlong": sum(t.overlong for t in trajectories),
            "event/truncated": sum(t.truncated for t in trajectories),
            "event/aborted": sum(bool(t.error) for t in trajectories),
        }
    )
    return {name: float(value) for name, value in counts.items()}
