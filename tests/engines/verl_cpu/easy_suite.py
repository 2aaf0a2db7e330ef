"""TextCraft with eight goals that the shipped actor reaches half the time, so that few episodes hold a
lesson.

Also stands for a user's own suite, which a job names by import path.
"""

from dataclasses import replace

from bipace.envs.textcraft import suite as textcraft

GOALS = (
    "blackstone_stairs", "dropper", "glass_bottle", "golden_carrot", "polished_blackstone", "sandstone",
    "scaffolding",
    "turtle_helmet",
)  # fmt: skip


def _grid(seeds):
    return tuple(f"minecraft:{goal}/{seed}" for seed in seeds for goal in GOALS)


def suite():
    """The suite; `panel` repeats the goals of `train` with recipe lists that no row of it shows."""
    splits = {"train": _grid(range(64)), "panel": _grid(range(1000, 1004))}
    return replace(textcraft(), name="easy", max_steps=5, splits=splits)
