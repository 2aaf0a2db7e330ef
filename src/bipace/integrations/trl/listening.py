"""What an environment says after each call of its tools: TRL itself asks once, when the rollout is over."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bipace.integrations.trl.settings import StepSettings

__all__ = ["ATTRIBUTES", "Final", "FinalBlocks", "Heard", "check_environment", "listening", "said"]


ATTRIBUTES = ("reward", "done", "state", "executed")
"""Keys of `steps` that name an attribute of the environments."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What an environment said after one call.

    Attributes:
        row: which rollout of this process.
        turn: which turn of it made the call.
        reward: of the call.
        done: True where the episode is over.
        state: what `steps.state` names; None where it names nothing.
        executed: what `steps.executed` names; None where it names nothing or the call was refused.
    """

    row: int
    turn: int
    reward: float
    done: bool
    state: Any
    executed: Any


class Final(str):
    """The result of a call after which the episode is over: equal to its text, and still known by its type.

    TRL turns results into text by str(), which keeps a subclass whose __str__ returns itself.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return self


class FinalBlocks(list[Any]):
    """The same for a result that is a list of content blocks, which TRL keeps as it is."""


def said(environment: Any, settings: StepSettings) -> tuple[float, bool, Any, Any]:
    """Reward, done, state and executed command of an environment now."""
    reward, done, state, executed = (
        None if name is None else getattr(environment, name)
        for name in (settings.reward, settings.done, settings.state, settings.executed)
    )
    return float(reward or 0.0), bool(done), state, executed


def check_environment(environment: Any, settings: StepSettings) -> None:
    """Raise ValueError where an environment lacks an attribute that the settings name."""
    for key in ATTRIBUTES:
        name = getattr(settings, key)
        if name is not None and not hasattr(environment, name):
            raise ValueError(
                f"steps.{key}: {name!r}, but {type(environment).__name__} has no attribute of that name when "
                "it is made; define it in __init__ (an attribute or property, not a public method: TRL makes "
                "those tools)"
            )


def listening(
    tool: Callable[..., Any],
    environment: Any,
    row: int,
    turn: Callable[[], int],
    settings: StepSettings,
    tell: Callable[[Heard], None],
) -> Callable[..., Any]:
    """The tool, which also tells what its environment says once it has answered.

    A tool of nobody's is returned as it is: after its call an environment's attributes are those of an
    earlier call. A call that raises tells nothing; TRL hands the error to the model as the result.

    Args:
        tool: a function or coroutine function, as TRL collected it.
        environment: whose method it may be.
        row: which rollout.
        turn: the index of the turn that is calling.
        settings: which attributes are read.
        tell: gets what was heard.
    """
    if getattr(tool, "__self__", None) is not environment:
        return tool

    def heard(result: Any) -> Any:
        reward, done, state, executed = said(environment, settings)
        tell(Heard(row, turn(), reward, done, state, executed))
        if not (done and settings.stop):
            return result
        return FinalBlocks(result) if isinstance(result, list) else Final(result)

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return heard(await tool(*args, **kwargs))

    def function(*args: Any, **kwargs: Any) -> Any:
        return heard(tool(*args, **kwargs))

    return coroutine if inspect.iscoroutinefunction(tool) else function
