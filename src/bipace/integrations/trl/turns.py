"""From TRL's completions to turns, and from turns to the rows of the common room.

A turn is one model call: a run of tokens that the model wrote, by TRL's tool mask (`environment_factory`,
`tools`) or by the `env_mask` of a `rollout_func`. A completion without a mask is one turn.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bipace.core.actions import ACTION_KEYS, RefusedActions, executed_key, tool_call
from bipace.core.labels import canonical
from bipace.integrations.common.rows import EngineStep
from bipace.integrations.common.spread import written_runs
from bipace.integrations.trl.listening import Heard

__all__ = [
    "FIELDS",
    "Completion",
    "Rollout",
    "Turn",
    "credit_heard",
    "engine_steps",
    "episode_metrics",
    "identity",
    "own_fields",
    "read_turns",
]

FIELDS = ("step_rewards", "states", "actions")
"""What a `rollout_func` may return beside TRL's own fields: one list a rollout, with one entry a turn."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion as TRL's `_generate` returns it.

    Attributes:
        prompt: messages or text, as the model read them.
        prompt_ids: their tokens.
        tokens: of the completion, what the environment said included.
        mask: 1 on tokens the model wrote.
        messages: the completion's messages where TRL ran the tools, else None.
    """

    prompt: Any
    prompt_ids: Sequence[int]
    tokens: Sequence[int]
    mask: Sequence[int]
    messages: Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call: tokens [start, end) of the completion, what it read, what it did and earned."""

    start: int
    end: int
    observation: object
    action: object
    reward: float = 0.0
    done: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """The turns of one completion, its prompt's identity, its tokens, whether the model ended it."""

    group: str
    turns: tuple[Turn, ...]
    tokens: tuple[int, ...]
    ended: bool


def identity(example: Mapping[str, Any], prompt_ids: Sequence[int]) -> str:
    """Name of a prompt group: a hash of the data set's row and of the tokens the model read.

    Both count. An environment that owns the data gives different prompts for equal rows, and rows that differ
    in a hidden column only (the answer) may have one prompt.
    """
    return hashlib.sha256(repr((canonical(example), tuple(prompt_ids))).encode()).hexdigest()[:32]


def read_turns(completion: Completion, tokenizer: Any, action_key: str) -> list[Turn]:
    """The turns of a completion.

    Under the action key "executed" a turn's action is its tool calls, by name and arguments; the text,
    stripped, of a turn that calls nothing. `credit_heard` puts in what the environment says it executed.

    Where TRL ran the tools, a turn's observation is the text of the results since the last turn (first: of
    the last prompt message); else it is the text of the tokens between the turns (first: of the prompt).
    """
    spans = written_runs(completion.mask)
    told, answers = _by_message(completion)
    aligned = len(answers) == len(spans)
    turns: list[Turn] = []
    for t, (start, end) in enumerate(spans):
        read = completion.tokens[spans[t - 1][1] : start] if t else completion.prompt_ids
        observation = told[t] if aligned else tokenizer.decode(read, skip_special_tokens=True)
        written = completion.tokens[start:end]
        text = tokenizer.decode(written, skip_special_tokens=True)
        action = _action(action_key, text, written, answers[t] if aligned else {})
        turns.append(Turn(start, end, observation, action))
    return turns


def credit_heard(
    turns: Sequence[Turn], heard: Sequence[Heard], first_state: Any, refused: RefusedActions | None
) -> list[Turn]:
    """The turns of one rollout with what its environment said.

    Rewards summed over a turn's calls, the last state.

    Args:
        turns: in order.
        heard: what was heard of this rollout, in order.
        first_state: the state after reset, or None where states are not read.
        refused: how refused actions are told apart (`bipace.core.actions.executed_key`), or None where the
            environment does not say what it executed.
    """
    by_turn: dict[int, list[Heard]] = defaultdict(list)
    for one in heard:
        by_turn[one.turn].append(one)
    out: list[Turn] = []
    state = first_state
    for t, turn in enumerate(turns):
        calls = by_turn[t]
        turn = replace(turn, reward=sum(one.reward for one in calls), done=any(one.done for one in calls))
        if first_state is not None:
            turn = replace(turn, observation=state)
            state = calls[-1].state if calls else state  # calls that failed left it as it was
        if refused is not None and calls:
            keys = tuple(executed_key(str(turn.action), one.executed, False, refused) for one in calls)
            turn = replace(turn, action=keys[0] if len(keys) == 1 else keys)
        out.append(turn)
    return out


def own_fields(turns: Sequence[Turn], fields: Mapping[str, Sequence[Any]], row: int) -> list[Turn]:
    """The turns of one rollout with what a `rollout_func` returned of it (`FIELDS`).

    Raises:
        ValueError: another number of entries than turns.
    """
    out = list(turns)
    for name, values in fields.items():
        if len(values) != len(turns):
            raise ValueError(
                f"rollout_func: {name} of row {row} has {len(values)} entries, but its env_mask has "
                f"{len(turns)} runs of tokens the model wrote; a turn without tokens, or two with nothing "
                "between them, cannot carry a value of its own: leave it out, or add its reward to its "
                "neighbour's"
            )
        key = {"step_rewards": "reward", "states": "observation", "actions": "action"}[name]
        made = [float(v) for v in values] if key == "reward" else values
        out = [replace(turn, **{key: value}) for turn, value in zip(out, made, strict=True)]
    return out


def engine_steps(
    rollouts: Sequence[Rollout], totals: Sequence[float], told_rewards: bool, remainder: str
) -> list[EngineStep]:
    """Rows of the common room for all rollouts of all processes.

    Args:
        rollouts: in TRL's order, process after process.
        totals: TRL's weighted reward of each, before any normalisation; NaN where nobody scored it: an
            aborted rollout, in no statistic.
        told_rewards: True where turns carry rewards, which then have to add up to the total.
        remainder: "refuse" or "last": what to do with the difference. Without rewards all of the total is the
            remainder. It goes to the turn that ended the episode, else to the last turn.

    Raises:
        ValueError: rewards that do not add up, under "refuse".
    """
    # Who meets whom in a greedy clustering depends on the order of trajectories: theirs is that of their
    # tokens, so that it depends on what was played and not on where TRL put it.
    by_content = sorted(range(len(rollouts)), key=lambda row: rollouts[row].tokens)
    names = {row: name for name, row in enumerate(by_content)}
    steps: list[EngineStep] = []
    for row, (rollout, total) in enumerate(zip(rollouts, totals, strict=True)):
        if not rollout.turns:
            continue
        rewards, last = _paid(row, rollout, total, told_rewards and remainder == "refuse")
        over = last if rollout.turns[last].done else None
        for t, (turn, reward) in enumerate(zip(rollout.turns, rewards, strict=True)):
            at_end = t == len(rewards) - 1
            steps.append(
                EngineStep(
                    group=rollout.group,
                    trajectory=names[row],
                    t=t,
                    observation=turn.observation,
                    action=turn.action,
                    reward=None if math.isnan(total) else reward,
                    terminated=at_end and (over is not None or rollout.ended),
                    truncated=at_end and over is None and not rollout.ended,
                    steps=len(rewards),
                    aborted=math.isnan(total),
                )
            )
    return steps


def _paid(row: int, rollout: Rollout, total: float, refuse: bool) -> tuple[list[float], int]:
    """The reward of each turn, which add up to the total, and the turn that got the remainder."""
    rewards = [turn.reward for turn in rollout.turns]
    last = next((t for t, turn in enumerate(rollout.turns) if turn.done), len(rewards) - 1)
    rest = total - sum(rewards)
    # TRL sums rewards in float32; what it rounds off is no reward.
    if abs(rest) <= 1e-5 * max(1.0, abs(total)):
        return rewards, last
    if refuse and math.isfinite(rest):
        raise ValueError(
            f"steps.reward: the turns of rollout {row} earned {sum(rewards):.6g}, but TRL's reward is "
            f"{total:.6g}; "
            "make them agree, or set steps.remainder='last' to put the rest on the last turn"
        )
    rewards[last] += rest
    return rewards, last


def episode_metrics(rollouts: Sequence[Rollout], totals: Sequence[float]) -> dict[str, float]:
    """Episodes and mishaps of a batch, under the names of docs/metrics.md."""
    played = [
        (r, total) for r, total in zip(rollouts, totals, strict=True) if r.turns and math.isfinite(total)
    ]
    n = max(len(played), 1)
    return {
        "episode/count": float(len(played)),
        "episode/reward_mean": sum(total for _, total in played) / n,
        "episode/steps_mean": sum(len(r.turns) for r, _ in played) / n,
        "event/truncated": float(sum(not r.ended and not any(t.done for t in r.turns) for r in rollouts)),
        "event/aborted": float(
            sum(bool(r.turns) and not math.isfinite(t) for r, t in zip(rollouts, totals, strict=True))
        ),
        "event/missing_episodes": float(sum(not r.turns for r in rollouts)),
    }


def _by_message(completion: Completion) -> tuple[list[str], list[Mapping[str, Any]]]:
    """What was told before each answer, and the answers, where TRL's messages say so."""
    if completion.messages is None:
        return [], []
    prompt = completion.prompt
    pending = [prompt if isinstance(prompt, str) else _text(prompt[-1]["content"])]
    told: list[str] = []
    answers: list[Mapping[str, Any]] = []
    for message in completion.messages:
        if message["role"] == "assistant":
            told.append("\n".join(pending))
            answers.append(message)
            pending = []
        else:
            pending.append(_text(message["content"]))
    return told, answers


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content)


def _action(key: str, text: str, tokens: Sequence[int], answer: Mapping[str, Any]) -> object:
    if key != "executed":
        return ACTION_KEYS[key](text, tokens).key
    calls = [tool_call(call) for call in answer.get("tool_calls") or ()]
    if not calls:
        return text.strip()
    return calls[0] if len(calls) == 1 else tuple(calls)
