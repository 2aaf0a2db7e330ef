"""From what the environment says to prompt tokens, and from a response to an action.

Two styles. `transcript`: one growing chat; each reply of the environment is appended to the tokens as they
were sampled, so nothing is ever re-encoded and a KV cache survives the whole episode. `window`: one user
message rebuilt at each step from the task, the last `history_length` (observation, action) pairs, the current
observation and the admissible actions (verl-agent's form).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from bipace.envs.base import Turn

__all__ = ["Chat", "ChatTokenizer", "Parsed", "PromptStyle", "parse_response", "window_message"]

PromptStyle = Literal["transcript", "window"]
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_CHINESE = re.compile("[\u4e00-\u9fff]")
_MARK = "\u241e"  # stands in for content, so that a rendered template can be split at it


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that prompts need."""

    all_special_tokens: list[str]

    def apply_chat_template(self, conversation: Sequence[Mapping[str, str]], **kwargs: Any) -> Any:
        """Render a chat as text or tokens."""
        ...

    def encode(self, text: str, **kwargs: Any) -> list[int]:
        """Text to token ids."""
        ...

    def decode(self, token_ids: Any, **kwargs: Any) -> Any:
        """Token ids to text."""
        ...


@dataclass(frozen=True, slots=True)
class Parsed:
    """The action inside a response, and whether the response had the required form."""

    action: str
    ok: bool


def parse_response(text: str, tagged: bool, *, lowercase: bool = False, strict: bool = False) -> Parsed:
    """The action a response asks for, and whether the response has the required form.

    Tagged: the text inside the first `<action>...</action>`; without a complete pair the whole response is
    sent to the environment as it is, with ok=False (it is counted, and costs the invalid-action penalty).
    Plain: the whole response, stripped; ok unless it is empty.

    Args:
        text: the decoded response.
        tagged: see above.
        lowercase: lower-case the action, so that the environment never sees how it was written
            (verl-agent's).
        strict: ok needs a complete `<think>...</think>` and no Chinese character as well (verl-agent's). The
            action is the same; only whether the response pays the penalty changes. Plain responses are not
            affected.
    """
    if tagged:
        match = _ACTION.search(text)
        action, ok = (match[1] if match else text).strip(), match is not None
        if strict:
            ok = ok and _THOUGHT.search(text) is not None and _CHINESE.search(text) is None
    else:
        action, ok = text.strip(), bool(text.strip())
    return Parsed(action.lower() if lowercase else action, ok)


def window_message(
    instructions: str,
    task: str,
    history: Sequence[tuple[str, str]],
    steps_taken: int,
    turn: Turn,
    tagged: bool,
) -> str:
    """The user message of one step in `window` style.

    Args:
        instructions: the suite's rules; may be empty.
        task: what states the task (`Offers.task_text` of the first observation).
        history: the last (observation, action) pairs, oldest first.
        steps_taken: actions taken so far; the history may show fewer.
        turn: what the environment says now.
        tagged: ask for <think> and <action> tags.
    """
    parts = [instructions.strip()] if instructions.strip() else []
    parts.append(f"Your task:\n{task.strip()}")
    if history:
        shown = "\n".join(
            f"[Observation {i}: {o!s}, Action {i}: {a!s}]"
            for i, (o, a) in enumerate(history, start=steps_taken - len(history) + 1)
        )
        parts.append(
            f"Prior to this step, you have already taken {steps_taken} step(s). The most recent "
            f"{len(history)} observations and the actions you took:\n{shown}"
        )
    if steps_taken or task.strip() != turn.observation.strip():
        parts.append(
            f"You are now at step {steps_taken + 1} and your current observation is:\n{turn.observation}"
        )
    if turn.admissible:
        parts.append("Your admissible actions of the current situation are:\n" + "\n".join(turn.admissible))
    parts.append(
        "Reason step by step inside <think> </think> tags, then give one action inside <action> </action> "
        "tags."
        if tagged
        else "Reply with one action."
    )
    return "\n\n".join(parts)


class Chat:
    """Chat template -> tokens, with text from environments unable to forge the template's special tokens.

    `reply` raises ValueError for a template that does not keep earlier turns as they were: a transcript
    cannot grow under it.
    """

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = sorted((t for t in tokenizer.all_special_tokens if len(t) > 1), key=len, reverse=True)

    @cached_property
    def _reply_parts(self) -> tuple[list[int], list[int], list[int]]:
        """What closes an unfinished response, what stands before an observation, what behind it."""
        chat = [{"role": "user", "content": "u"}, {"role": "assistant", "content": _MARK}]
        pieces = self._render([*chat, {"role": "user", "content": _MARK}], generate=True).split(_MARK)
        if len(pieces) != 3 or pieces[0] != self._render(chat[:1], generate=True):
            raise ValueError(
                "chat_template: it rewrites earlier turns or adds text around them, so a transcript cannot "
                "grow token by token; use prompt.style=window with this model"
            )
        end = next((token for token in self._special if pieces[1].startswith(token)), "")
        # The end token closes the response: the model samples it, so the reply starts behind it.
        close = self._encode(end) if end else []
        return close, self._encode(pieces[1][len(end) :]), self._encode(pieces[2])

    def prompt(self, message: str) -> list[int]:
        """Tokens of a chat with one user message, ready for the assistant's first token."""
        return self._encode(self._render([{"role": "user", "content": self.neutral(message)}], generate=True))

    def reply(self, observation: str, finished: bool) -> list[int]:
        """Tokens appended behind a response: the observation as a user turn, ready for the next response.

        Args:
            observation: what the environment said.
            finished: True when the response ended with its end token; otherwise the end token is added here,
                as context that was never sampled and is never trained on.
        """
        close, before, after = self._reply_parts
        return [*(() if finished else close), *before, *self._encode(self.neutral(observation)), *after]

    def decode(self, tokens: Any) -> str:
        """Text of a response, without the template's special tokens."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def neutral(self, text: str) -> str:
        """The text with every special token of the tokenizer broken by a space: it stays plain text."""
        for token in self._special:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _render(self, chat: Sequence[Mapping[str, str]], generate: bool) -> str:
        return self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=generate)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))
