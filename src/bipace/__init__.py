"""Step-level credit for LLM agents: BiPACE and its baselines.

`import bipace` needs numpy alone. The core in three lines:

    rows = bipace.build_batch(task=..., trajectory=..., t=..., reward=..., observation=..., action=...,
    features=...) found = bipace.advantages(rows.batch, bipace.recipe("bipace", eps=0.1)) per_row =
    rows.scatter(found.values)
"""

from bipace import waiting as _waiting  # noqa: F401  (first: before anything can import torch)
from bipace.core.actions import ACTION_KEYS, ActionKey
from bipace.core.advantages import Advantages, Blend, Branch, Outcome, Recipe, Term, advantages
from bipace.core.baselines import Peers
from bipace.core.diagnostics import credit_diagnostics
from bipace.core.estimators import RECIPES, describe, recipe
from bipace.core.parts import needs
from bipace.core.rows import DroppedRowsWarning, LoneGroupsWarning, Rows, build_batch
from bipace.core.steps import StepBatch

__version__ = "0.1.0"

__all__ = [
    "ACTION_KEYS",
    "RECIPES",
    "ActionKey",
    "Advantages",
    "Blend",
    "Branch",
    "DroppedRowsWarning",
    "LoneGroupsWarning",
    "Outcome",
    "Peers",
    "Recipe",
    "Rows",
    "StepBatch",
    "Term",
    "__version__",
    "advantages",
    "build_batch",
    "credit_diagnostics",
    "describe",
    "needs",
    "recipe",
]
