"""The rules of play: what a command means, and an episode.

A command's meaning depends on its text alone, so it is compiled once and remembered; what depends on the
inventory is only whether there is enough. A step is then a look-up and a few additions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from bipace.envs.base import Turn
from bipace.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook, load_recipe_book, spoken_name

__all__ = ["TextCraft"]

REMEMBERED_COMMANDS = 65536
LONGEST_REMEMBERED = 256  # characters; longer text is untrusted noise and not worth keeping
COUNT_DIGITS = (
    9  # Python refuses to read integers of several thousand digits; nine are more than any recipe needs
)


@dataclass(slots=True)  # not frozen: that would make it three times as dear to build, and it is never changed
class _Command:
    """A compiled command.

    Attributes:
        turn: the answer where the inventory holds `spent`.
        gained: the item added; nothing is taken or added where `count` is 0.
        count: how many of it.
        spent: the items and counts taken.
        lacking: what is said where the inventory does not hold `spent`; empty where nothing is spent.
        crafts: True for a craft, which may reach the goal.
    """

    turn: Turn
    gained: str = ""
    count: int = 0
    spent: tuple[tuple[str, int], ...] = ()
    lacking: str = ""
    crafts: bool = False


_INVENTORY = _Command(Turn("Inventory: You are not carrying anything.", executed="inventory"))


class TextCraft:
    """One episode at a time of the crafting game: an `Environment` of `bipace.envs.base`.

    Attributes:
        inventory: item id -> count, always positive, in the order the items were first held.
        goal: the item id to craft; empty before the first reset.
    """

    __slots__ = ("_open", "goal", "inventory")

    def __init__(self, open_task: Callable[[str], tuple[str, Turn]]) -> None:
        """`open_task` gives a task's goal and its first Turn, and raises UnknownTask."""
        self._open = open_task
        self.goal = ""
        self.inventory: dict[str, int] = {}

    def reset(self, task: str) -> Turn:
        """Begin the task with an empty inventory.

        Raises UnknownTask (the episode in play is then untouched).
        """
        self.goal, turn = self._open(task)
        self.inventory = {}
        return turn

    def step(self, action: str) -> Turn:
        """Apply one command; surrounding white space is ignored.

        Text that means nothing is a Turn with valid=False.
        """
        text = action.strip()
        command = _remembered(text) if len(text) <= LONGEST_REMEMBERED else _compile(text)
        inventory = self.inventory
        for item, count in command.spent:
            if inventory.get(item, -1) < count:
                return Turn(command.lacking, valid=False)
        if not command.count:
            return self._listing() if command is _INVENTORY else command.turn
        for item, count in command.spent:
            inventory[item] -= count
            if not inventory[item]:
                del inventory[item]
        inventory[command.gained] = inventory.get(command.gained, 0) + command.count
        if command.crafts and command.gained == self.goal:
            return Turn(command.turn.observation, 1.0, True, True, executed=command.turn.executed)
        return command.turn

    def copy(self) -> TextCraft:
        """An independent episode in the same state."""
        twin = TextCraft(self._open)
        twin.goal = self.goal
        twin.inventory = self.inventory.copy()
        return twin

    def _listing(self) -> Turn:
        if not self.inventory:
            return _INVENTORY.turn
        held = "".join(f"[{spoken_name(item)}] ({count}) " for item, count in self.inventory.items())
        return Turn(f"Inventory: {held}", executed="inventory")


def _compile(text: str) -> _Command:
    line = text.partition("\n")[0]
    made, using, inputs = line.removeprefix("craft ").rpartition(" using ")
    if using and line.startswith("craft "):
        return _compile_craft(made, inputs)
    digits, space, spoken = line.removeprefix("get ").partition(" ")
    if space and line.startswith("get ") and digits.isdigit() and digits.isascii():
        return _compile_get(digits, spoken)
    if text.startswith("inventory"):
        return _INVENTORY
    return _refused(f"Could not execute {text}")


_remembered = lru_cache(maxsize=REMEMBERED_COMMANDS)(_compile)


def _refused(answer: str) -> _Command:
    return _Command(Turn(answer, valid=False))


def _compile_get(digits: str, spoken: str) -> _Command:
    item = _item_id(spoken)
    count = int(digits) if len(digits) <= COUNT_DIGITS else 0
    if not count or item not in load_recipe_book().gettable:
        return _refused(f"Could not find {spoken}")
    executed = f"get {count} {spoken_name(item)}"
    return _Command(Turn(f"Got {count} {spoken}", executed=executed), gained=item, count=count)


def _compile_craft(made: str, using: str) -> _Command:
    counted = _counted(made, uncounted=1)
    if counted is None:
        return _refused(f"Wrong item format: {made}")
    wanted, count = counted
    named: list[tuple[str, int]] = []
    spent: dict[str, int] = {}
    for part in using.split(","):
        entry = _counted(part.strip())
        if entry is None:
            return _refused(f"Wrong item format: {part.strip()}")
        named.append(entry)
        spent[entry[0]] = spent.get(entry[0], 0) + entry[1]
    book = load_recipe_book()
    tag, item = (wanted, None) if wanted in book.tags else (None, wanted)
    lacking = f"Could not find enough items to craft {item}"
    if not spent.keys() <= book.items or not book.tags.isdisjoint(spent):
        return _refused(lacking)  # no inventory holds what is no item
    for recipe in book.by_item.get(wanted, ()):
        if _matches(book, recipe, named):
            # The written output count changes nothing, nor does the order of the inputs.
            inputs = ", ".join(sorted(f"{n} {spoken_name(name)}" for name, n in spent.items()))
            executed = f"craft {recipe.count} {spoken_name(recipe.output)} using {inputs}"
            turn = Turn(f"Crafted {recipe.count} {recipe.output}", executed=executed)
            return _Command(turn, recipe.output, recipe.count, tuple(spent.items()), lacking, crafts=True)
    shown = f"ItemTagWithCount(item_tag=ItemTag(tag={tag!r}, item_id={item!r}), count={count})"
    turn = Turn(f"Could not find a valid recipe for {shown}", valid=False)
    return _Command(turn, spent=tuple(spent.items()), lacking=lacking)


def _matches(book: RecipeBook, recipe: Recipe, named: list[tuple[str, int]]) -> bool:
    """True when the named inputs are the recipe's, one for one and in its counts."""
    left = list(named)
    for part in recipe.inputs:
        for entry in left:
            if _serves(book, part, entry[0]):
                break
        else:
            return False
        if entry[1] != part.count:
            return False
        left.remove(entry)
    return not left


def _serves(book: RecipeBook, part: Ingredient, item: str) -> bool:
    return book.tag_of.get(item) == part.name if part.is_tag else item == part.name


def _counted(text: str, uncounted: int | None = None) -> tuple[str, int] | None:
    """Item id and count of "2 oak logs"; without a number the count is `uncounted`. None: no usable count."""
    digits, space, spoken = text.partition(" ")
    if not (space and digits.isdigit() and digits.isascii()):
        return None if uncounted is None else (_item_id(text), uncounted)
    return (_item_id(spoken), int(digits)) if len(digits) <= COUNT_DIGITS else None


def _item_id(spoken: str) -> str:
    return "minecraft:" + spoken.replace(" ", "_")
