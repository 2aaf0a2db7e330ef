"""Step-level credit for LLM agents: BiPACE and its baselines.

`import bipace` needs numpy alone. The core in three lines:

    rows = bipace.build_batch(
        task=..., trajectory=..., t=..., reward=..., observation=..., action=..., features=...
    )
    outcome = bipace.advantages(rows.batch, bipace.recipe("bipace", eps=0.1))
    per_row = rows.scatter(outcome.values)

A recipe of one's own is a `Recipe` of `Term`s, and all that a term is made of is here: returns, clusterings,
baselines, scales and fallbacks. These names are stable (docs/design.md says what that means).
"""

from bipace import waiting as _waiting  # noqa: F401  (first: before anything can import torch)
from bipace.core.actions import ACTION_KEYS, ActionKey
from bipace.core.advantages import Advantages, Blend, Branch, Outcome, Recipe, Term, advantages
from bipace.core.baselines import (
    Peers,
    cluster_mean,
    cluster_std,
    leave_one_out,
    leave_trajectory_out,
    never,
    no_diff_action,
    no_same_action_peer,
    no_scale,
    other_actions_mean,
    own_return,
    same_action_mean,
)
from bipace.core.clustering import (
    ByFeatures,
    ByHistory,
    BySimilarity,
    Clustering,
    by_observation,
    by_prompt_group,
)
from bipace.core.diagnostics import credit_diagnostics
from bipace.core.estimators import RECIPES, describe, recipe
from bipace.core.parts import needs
from bipace.core.returns import Return, ReturnToGo, return_to_go, trajectory_return
from bipace.core.rows import DroppedRowsWarning, LoneGroupsWarning, Rows, build_batch
from bipace.core.steps import Bools, Floats, Ints, StepBatch

__version__ = "0.1.0"

__all__ = [
    "ACTION_KEYS",
    "RECIPES",
    "ActionKey",
    "Advantages",
    "Blend",
    "Bools",
    "Branch",
    "ByFeatures",
    "ByHistory",
    "BySimilarity",
    "Clustering",
    "DroppedRowsWarning",
    "Floats",
    "Ints",
    "LoneGroupsWarning",
    "Outcome",
    "Peers",
    "Recipe",
    "Return",
    "ReturnToGo",
    "Rows",
    "StepBatch",
    "Term",
    "__version__",
    "advantages",
    "build_batch",
    "by_observation",
    "by_prompt_group",
    "cluster_mean",
    "cluster_std",
    "credit_diagnostics",
    "describe",
    "leave_one_out",
    "leave_trajectory_out",
    "needs",
    "never",
    "no_diff_action",
    "no_same_action_peer",
    "no_scale",
    "other_actions_mean",
    "own_return",
    "recipe",
    "return_to_go",
    "same_action_mean",
    "trajectory_return",
]
