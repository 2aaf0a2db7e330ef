"""The published methods as recipes: each a few choices over the same parts.

| recipe | trajectory term | step term |
|---|---|---|
| dr_grpo / grpo | group mean, without / with division by the group's deviation | none |
| rloo | leave-one-out mean | none |
| gigpo | as grpo | same observation: (R - cluster mean) / deviation |
| hgpo | none (`base_group` adds it) | blend over k of: same last k observations |
| salt | none | same state, action and next state: mean of the trajectories' advantages |
| mt_grpo | the last reward, as grpo | same turn: rewards to come - mean of the group, absent turns 0 |
| gagpo | none | same observation: TD(lambda) of the mean returns, over the group's deviation |
| g2po | as grpo | same observation: value of the next one against its peers', and the gain in value |
| graphgpo | as grpo | same observation: distance of the next one to the goal in the group's graph |
| bigpo | as grpo | near hidden state: (R - cluster mean) / deviation |
| diff_peer | as grpo | near hidden state: R - mean of the other actions |
| bipace | as grpo | near hidden state: mean of the same action - cluster mean |
| pooled | none | same observation, partial pooling: V shrunk to the group's mean, Q shrunk to V |
| multiscale | none (`trajectory` adds it) | nested clusters of hidden states, values shrunk to the wider |

Switches that several recipes share:
    mode: verl-agent's one switch for both terms: "mean_std_norm" divides both by their sample deviation +
        1e-6 (its ALFWorld), "mean_norm" neither (its WebShop). None: each term has the recipe's own default.
    trajectory_mode, step_mode: the same words for one term. The sources write BiPACE's trajectory term with
        the division (Eq. 1) and its step term, Qhat - Vhat, without; GiGPO divides both (Eq. 2), and so does
        the state side alone, which changes the partition and nothing else.
    w: weight of the step term; 1 in every published run.
    gamma: discount of the return-to-go; 0.95.
    leave_out: "trajectory" takes the mean of the other trajectories' steps as the step term's V.
    convention: "paper", or "verl_agent" for parity with that public code: trajectory statistics over step
        rows (long episodes weigh more), a lone trajectory keeps its raw return, penalties enter the returns.
"""

from bipace.core.estimators.graphs import g2po, gagpo, graphgpo, salt
from bipace.core.estimators.hidden_states import bigpo, bipace, diff_peer
from bipace.core.estimators.observations import gigpo, hgpo
from bipace.core.estimators.registry import RECIPES, describe, recipe, recipe_options
from bipace.core.estimators.shrinkage import multiscale, pooled
from bipace.core.estimators.trajectory import dr_grpo, grpo, rloo
from bipace.core.estimators.turns import mt_grpo

__all__ = [
    "RECIPES",
    "bigpo",
    "bipace",
    "describe",
    "diff_peer",
    "dr_grpo",
    "g2po",
    "gagpo",
    "gigpo",
    "graphgpo",
    "grpo",
    "hgpo",
    "mt_grpo",
    "multiscale",
    "pooled",
    "recipe",
    "recipe_options",
    "rloo",
    "salt",
]
