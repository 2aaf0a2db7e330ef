"""How trajectories are read and credited: what `bipace analyze` can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bipace.config.sections import PAIRS

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """How to compute.

    Attributes:
        gamma: discount of the return-to-go.
        w: weight of the step terms.
        mode: "mean_std_norm" or "mean_norm" for both terms; None: each recipe its own.
        eps: cosine radius of the recipes that cluster by features.
        action_key: "action_tag" or "first_word".
        model: local Hugging Face folder for hidden states; text vectors where None.
        layer: of the hidden states: index, negative from the end, or fraction of the depth.
        format: reader; None detects.
        columns: part -> column of a flat table.
        merge: join equal task names of several files; None: only where each file holds one trajectory.
        strict: stop at the first place that cannot be read.
        row_reward: what a reward on every row of a trajectory means: "auto", "last" or "each".
        rewards: file of rewards kept elsewhere, joined by id.
        recipes: recipes of one's own, `file.py:name` or `module:name`, shown beside the shipped ones.
        page_steps: at most this many steps go into the page; larger inputs are sampled by group.
        page_mb: the page's texts are cut, down to 300 characters each, until it is about this small.

    Examples:
        >>> from bipace.analyze import Options
        >>> Options(eps=0.2).gamma
        0.95
    """

    gamma: float = 0.95
    w: float = 1.0
    mode: str | None = None
    eps: float = PAIRS["7B"][1]
    action_key: str = "action_tag"
    model: str | None = None
    layer: int | float = PAIRS["7B"][0]
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    merge: bool | None = None
    strict: bool = False
    row_reward: str = "auto"
    rewards: str | Path | None = None
    recipes: Sequence[str] = ()
    page_steps: int = 30_000
    page_mb: float = 3.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.eps <= 2.0:
            raise ValueError(f"--eps {self.eps}: expected a cosine distance in [0, 2]")
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"--gamma {self.gamma}: expected a discount in [0, 1]")
        if self.page_steps < 1:
            raise ValueError(f"--page-steps {self.page_steps}: expected at least 1")
        if not self.page_mb > 0:
            raise ValueError(f"--page-mb {self.page_mb}: expected a size above 0, e.g. 3")
