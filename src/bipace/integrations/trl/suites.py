"""The suites of bipace (or one's own) as TRL wants environments, and actors that answer with a command.

    tokenizer = bare_commands(AutoTokenizer.from_pretrained(folder))
    trainer = StepCreditTrainer(
        ..., processing_class=tokenizer, environment_factory=suite_environment(suite, tokenizer),
    steps=SUITE_STEPS )

A row of the data set names a task: {"prompt": [{"role": "user", "content": ""}], "task": "..."}
(`suite_rows`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from bipace.envs.base import Suite, Turn, executed_command
from bipace.rollout.prompts import Chat

__all__ = ["SUITE_STEPS", "bare_commands", "suite_environment", "suite_rows"]

_log = logging.getLogger(__name__)

SUITE_STEPS = {
    "reward": "step_reward",
    "done": "done",
    "state": "state",
    "executed": "executed",
    "stop": True,
}
"""What `StepCreditTrainer(steps=...)` reads of these environments."""

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ 'user' if message['role'] == 'tool' else message['role'] "
    "}}\n"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}{{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}{% else %}{{ message['content'] }}{% endif "
    "%}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"(?=[\s\S])",
            "close_pattern": r"<\|im_end\|>\s*",
            "repeats": True,
            "content": "text",
            "transform": {
                "type": "function",
                "function": {"name": "act", "arguments": {"command": "{content}"}},
            },
        }
    },
}


# long: TRL wants a class without arguments, so the class is made in a closure
def suite_environment(suite: Suite, tokenizer: Any, max_steps: int | None = None) -> type[Any]:
    """A class for TRL's `environment_factory`: one tool, `act`, which plays a suite's episodes.

    Step rewards, the end, the state and the executed command are attributes (`SUITE_STEPS`). An environment
    that fails, in reset or in a step, ends its episode and has no reward, so that its trajectory gets
    advantage 0 and enters no statistic.

    Args:
        suite: a family of tasks.
        tokenizer: whose special tokens are broken up in the environment's text, so that no text can forge a
            turn.
        max_steps: horizon in commands; None is the suite's own.
    """
    horizon = max_steps or suite.max_steps
    neutral = Chat(tokenizer).neutral

    class SuiteEnvironment:
        """One episode after the other; TRL makes one of these a rollout and uses it again."""

        def __init__(self) -> None:
            self._environment: Any = suite.make()
            self._steps, self._total, self._failed = 0, 0.0, False
            self.step_reward, self.done, self.won, self.state, self.executed = 0.0, False, False, "", None
            self._offered = Turn("")

        def reset(self, task: str, **_: Any) -> str:
            """Begin the task with this id."""
            self._steps, self._total, self._failed = 0, 0.0, False
            self.step_reward, self.done, self.won = 0.0, False, False
            try:
                turn = self._environment.reset(task)
            except Exception:
                _log.warning("task %r could not be opened; its rollout is left out", task, exc_info=True)
                turn = self._lost()
            return self._told(turn)

        def act(self, command: str) -> str:
            """Give one command.

            Args:
                command: The command, as the rules describe it.

            Returns:
                What happened.
            """
            self._steps += 1
            self.executed = None
            try:
                # TRL asks on after the end unless it is told to stop; nothing may happen any more.
                turn = Turn("It is over.", valid=False) if self.done else self._environment.step(command)
                self.executed = executed_command(command, self._offered, turn)
            except Exception:
                _log.warning(
                    "the environment failed at step %d; the rollout is left out", self._steps, exc_info=True
                )
                turn = self._lost()
            self._total += turn.reward
            self.step_reward, self.won = turn.reward, self.won or turn.won
            self.done = self.done or turn.terminated or self._steps >= horizon
            return self._told(turn)

        def get_reward(self) -> float | None:
            """The episode's reward, or None where the environment failed."""
            return None if self._failed else self._total

        def _lost(self) -> Turn:
            self._failed, self.done, self._environment = True, True, suite.make()
            return Turn("The environment failed.", valid=False)

        def _told(self, turn: Turn) -> str:
            self._offered, self.state = turn, neutral(turn.observation)
            return self.state

    return SuiteEnvironment


def suite_rows(tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a data set for `suite_environment`: the prompt is what reset answers, so it is empty here."""
    return [{"prompt": [{"role": "user", "content": ""}], "task": task} for task in tasks]


def bare_commands(tokenizer: Any) -> Any:
    """The tokenizer of an actor that answers with a bare command.

    Every response is read as act(command=response).

    Results of the tool are rendered as user turns, as these actors were trained (`<|im_start|>` and
    `<|im_end|>`).

    Raises:
        ValueError: a tokenizer without these tokens, for whose model the template would be wrong.
    """
    for token in ("<|im_start|>", "<|im_end|>"):
        if token not in tokenizer.get_vocab():
            raise ValueError(
                f"processing_class: has no token {token}; bare_commands is for actors with ChatML turns"
            )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.response_template = _RESPONSE
    return tokenizer
