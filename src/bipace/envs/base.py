"""What an environment is: text in, text out, a reward, and tasks with names.

Four small types. A `Turn` is what the environment says. An `Environment` plays one episode at a time. A
`Suite` is an environment family: it knows its tasks by id, its splits and its planner, and makes
environments. What it has beside these it declares in one place, its `Offers`. Nothing here imports a
deep-learning framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

__all__ = ["Environment", "Offers", "Suite", "Turn", "UnknownTask", "executed_command", "offers_of"]


class UnknownTask(ValueError):
    """A task id that the suite does not know; the message names the id and shows an id that works.

    Examples:
        >>> from bipace.envs.base import UnknownTask
        >>> from bipace.envs.registry import get_suite
        >>> try:
        ...     get_suite("alfworld").make().reset("gen/cook/0")
        ... except UnknownTask as error:
        ...     print(str(error).split(";")[0])
        ...
        unknown alfworld task 'gen/cook/0'
    """


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the environment.

    Attributes:
        observation: the text the agent reads.
        reward: reward of the action that led here (0.0 at reset), in the environment's own unit.
        terminated: True when the episode is over by the environment's own rule (the horizon is the
            collector's).
        won: True when the task is solved.
        valid: False when the command could not be understood or applied; the state is then unchanged.
        admissible: the commands that apply in this state, in a documented order; empty where the environment
            offers no list.
        executed: the command that the environment executed to get here, in canonical form: two texts with
            which it does the same have the same. None at reset and where the action was refused. An
            environment that does not say leaves it None beside valid=True; the action's own text, stripped,
            then counts as executed.
        unlisted: True where commands that `admissible` does not list apply too, such as WebShop's search,
            which works on every page; otherwise an executed command has to be a listed one.

    Examples:
        >>> from bipace.envs.base import Turn
        >>> Turn("You are in the hall.", reward=1.0, terminated=True, won=True).valid
        True
    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    won: bool = False
    valid: bool = True
    admissible: tuple[str, ...] = ()
    executed: str | None = None
    unlisted: bool = False


def executed_command(action: str, offered: Turn, answer: Turn) -> str | None:
    """The command an environment executed: what it says, else the action's own text; None where it refused.

    Args:
        action: what was sent to it.
        offered: the turn before the action.
        answer: the turn that the action led to.

    Raises:
        ValueError: the environment contradicts itself: it says that it executed something and that the action
            was not valid, or it says that it executed a command that it had not offered.

    Examples:
        >>> from bipace.envs.base import Turn, executed_command
        >>> executed_command(" look ", Turn("A hall."), Turn("A hall."))
        'look'
        >>> executed_command("fly", Turn("A hall."), Turn("A hall.", valid=False)) is None
        True
    """
    if not answer.valid:
        if answer.executed is not None:
            raise ValueError(
                f"Turn.executed: {answer.executed!r} beside valid=False; a refused action has executed=None"
            )
        return None
    if answer.executed is None:
        return action.strip()
    if offered.admissible and not offered.unlisted and answer.executed not in offered.admissible:
        raise ValueError(
            f"Turn.executed: {answer.executed!r} is none of the {len(offered.admissible)} admissible "
            "commands offered before it; give it as it stands in Turn.admissible, or set Turn.unlisted where "
            "others apply too"
        )
    return answer.executed


@runtime_checkable
class Environment(Protocol):
    """Plays episodes of one suite, one at a time.

    Deterministic: the same task and actions give the same text.

    Safe to use many instances in one thread or process; an instance is not shared between threads.

    Examples:
        >>> from bipace.envs.base import Environment
        >>> from bipace.envs.registry import get_suite
        >>> environment: Environment = get_suite("alfworld").make()
        >>> turn = environment.reset("gen/pick_and_place_simple/17")
        >>> turn.observation.splitlines()[0]
        '-= Welcome to TextWorld, ALFRED! =-'
    """

    def reset(self, task: str) -> Turn:
        """Begin the task with this id. Raises UnknownTask."""
        ...

    def step(self, action: str) -> Turn:
        """Apply one action. Any text is accepted; what makes no sense is a Turn with valid=False."""
        ...

    def copy(self) -> Environment:
        """An independent environment in the same state (for branching and credit measurement)."""
        ...


@runtime_checkable
class Suite(Protocol):
    """A family of tasks.

    Attributes:
        name: short name used in configs and file names, e.g. "textcraft".
        max_steps: the horizon users of this suite expect.
        instructions: the rules given to the agent once, before the first observation.
        splits: split name -> task ids, in a fixed order that no process or file system can change.

    Examples:
        >>> from bipace.envs.base import Suite
        >>> from bipace.envs.registry import get_suite
        >>> suite = get_suite("alfworld")
        >>> isinstance(suite, Suite), suite.max_steps
        (True, 50)
    """

    name: str
    max_steps: int
    instructions: str
    splits: Mapping[str, Sequence[str]]

    def make(self) -> Environment:
        """A fresh environment."""
        ...

    def family(self, task: str) -> str:
        """The family a task is reported under, e.g. "depth-2" or "pick_and_place_simple"."""
        ...

    def expert(self, task: str) -> tuple[str, ...]:
        """Actions that solve the task from its reset state (a planner's). Raises UnknownTask."""
        ...


def _whole(first: str) -> str:
    return first


@dataclass(frozen=True)
class Offers:
    """What a suite has beside its tasks; it declares what is not the default here as its attribute `offers`.

    Attributes:
        data_label: what the data are, in words, shown beside every score; empty where there is nothing to
            say.
        provenance: how scores come about (data, digest, seed, ...), kept with every run.
        absent: what to do about data that are not here, to be added to an error; empty where all are here.
        incomplete: split -> what is missing of it, where only a part is here. Such a split is not used.
        panels: training split -> its panels: the first validates, the others are held out. For a training
            split that is not named here, `bipace.rollout.panel.choose_panels` goes by the panels' names.
        marks: strings that separate the parts of texts and actions; a tokenizer made for the suite keeps each
            whole.
        demonstration: task -> actions to imitate, where the expert knows what an agent cannot see.
        task_text: first observation -> the part that states the task, to head every prompt in `window` style.
        pages: plays the suite in a browser on this port, until interrupted.

    Examples:
        >>> from bipace.envs.base import Offers
        >>> Offers(data_label="made up").data_label
        'made up'
    """

    data_label: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    absent: str = ""
    incomplete: Mapping[str, str] = field(default_factory=dict[str, str])
    panels: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    marks: tuple[str, ...] = ()
    demonstration: Callable[[str], tuple[str, ...]] | None = None
    task_text: Callable[[str], str] = _whole
    pages: Callable[[int], None] | None = None


def offers_of(suite: Suite) -> Offers:
    """What the suite declares; a suite without `offers` declares nothing.

    Raises:
        TypeError: `offers` is something else.

    Examples:
        >>> from bipace.envs.base import offers_of
        >>> from bipace.envs.registry import get_suite
        >>> offers_of(get_suite("alfworld")).panels["train"]
        ('valid_seen', 'valid_unseen')
    """
    declared: Any = getattr(suite, "offers", Offers())  # optional: the only place that looks for it
    if not isinstance(declared, Offers):
        raise TypeError(f"{suite.name}.offers: a {type(declared).__name__}, expected bipace.envs.base.Offers")
    return declared
