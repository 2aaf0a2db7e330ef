# long: every public part carries an example that a test runs; without them it is under 300 lines.
"""The choices inside a term: Q, V, the scale, and what happens when a step has no peer to be compared with.

Each is a plain function of `Peers` returning [N] numbers, so that a reader's own choice is a function in the
reader's own file. Notation, for step i in cluster C with n members, n_a of which took i's action: R_i is the
return, C= the members with i's action (i included), C!= the others.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from bipace.core import segments
from bipace.core.steps import Bools, Floats, Ints

__all__ = [
    "Peers",
    "cluster_mean",
    "cluster_std",
    "leave_one_out",
    "leave_trajectory_out",
    "never",
    "no_diff_action",
    "no_same_action_peer",
    "no_scale",
    "other_actions_mean",
    "own_return",
    "same_action_mean",
    "trajectories_mean",
    "trajectories_std",
]


@dataclass(frozen=True, eq=False)
class Peers:
    """Every step with its return, its cluster and its action key.

    Attributes:
        returns: [N] float64.
        cluster: [N] compact int labels.
        action: [N] int labels of the action key.
        group: [N] compact int labels of the prompt group; None where the members are trajectories.
        trajectory: [N] compact int labels of the trajectory; None where the members are trajectories.
        levels: [N, L] labels of nested clusters, widest first and `cluster` last; None where there is one
            level.

    The arrays are read-only views: a part of a user's own cannot change the table it reads.

    Examples:
        >>> from bipace.core.sample import sample_peers
        >>> peers = sample_peers()
        >>> peers.n.tolist(), peers.n_same.tolist(), peers.mean.tolist()
        ([3, 3, 3], [2, 2, 1], [0.5, 0.5, 0.5])
    """

    returns: Floats
    cluster: Ints
    action: Ints
    group: Ints | None = None
    trajectory: Ints | None = None
    levels: Ints | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                view = value[:]
                view.setflags(write=False)
                object.__setattr__(self, field.name, view)

    def take(self, rows: Ints) -> Peers:
        """The peers of the given rows, in the given order."""
        group, trajectory, levels = (
            None if v is None else v[rows] for v in (self.group, self.trajectory, self.levels)
        )
        return Peers(self.returns[rows], self.cluster[rows], self.action[rows], group, trajectory, levels)

    @cached_property
    def cluster_action(self) -> Ints:
        """[N] compact labels of (cluster, action)."""
        return segments.pair(self.cluster, self.action)

    @cached_property
    def n(self) -> Ints:
        """[N] members of the row's cluster."""
        return segments.count(self.cluster)

    @cached_property
    def n_same(self) -> Ints:
        """[N] members of the row's cluster with the row's action, itself included."""
        return segments.count(self.cluster_action)

    @cached_property
    def n_trajectories(self) -> Ints:
        """[N] trajectories that have a member in the row's cluster.

        The members where they are trajectories.
        """
        if self.trajectory is None:
            return self.n
        first = segments.first_rows(segments.pair(self.cluster, self.trajectory))
        return np.bincount(self.cluster[first], minlength=1)[self.cluster].astype(np.int64)

    @cached_property
    def mean(self) -> Floats:
        """[N] mean return of the row's cluster."""
        return segments.mean(self.returns, self.cluster)


def own_return(peers: Peers) -> Floats:
    """Q = R_i.

    Examples:
        >>> from bipace.core.baselines import own_return
        >>> from bipace.core.sample import sample_peers
        >>> own_return(sample_peers()).tolist()
        [1.0, 0.0, 0.5]
    """
    return peers.returns


def same_action_mean(peers: Peers) -> Floats:
    """Q = mean of R over C= (BiPACE's q_style).

    Examples:
        >>> from bipace.core.baselines import same_action_mean
        >>> from bipace.core.sample import sample_peers
        >>> same_action_mean(sample_peers()).tolist()
        [0.5, 0.5, 0.5]
    """
    return segments.mean(peers.returns, peers.cluster_action)


def cluster_mean(peers: Peers) -> Floats:
    """V = mean of R over C (GRPO, GiGPO, BiPACE).

    Examples:
        >>> from bipace.core.baselines import cluster_mean
        >>> from bipace.core.sample import sample_peers
        >>> cluster_mean(sample_peers()).tolist()
        [0.5, 0.5, 0.5]
    """
    return peers.mean


def leave_one_out(peers: Peers) -> Floats:
    """V = mean of R over C without i (RLOO); the own return where i is alone, so that nothing is credited.

    Examples:
        >>> from bipace.core.baselines import leave_one_out
        >>> from bipace.core.sample import sample_peers
        >>> leave_one_out(sample_peers()).tolist()
        [0.25, 0.75, 0.5]
    """
    return peers.mean - (peers.returns - peers.mean) / np.maximum(peers.n - 1, 1) * (peers.n > 1)


def leave_trajectory_out(peers: Peers) -> Floats:
    """V = mean of R over the members of C from other trajectories; the own return where there are none.

    A step that its own trajectory passes five times is no evidence about itself. Terms with this baseline set
    `alone="trajectory"`, so that a cluster of one trajectory credits nothing.

    Raises:
        ValueError: peers whose members are trajectories.

    Examples:
        >>> from bipace.core.baselines import leave_trajectory_out
        >>> from bipace.core.sample import sample_peers
        >>> leave_trajectory_out(sample_peers()).tolist()
        [0.5, 0.5, 0.5]
    """
    if peers.trajectory is None:
        raise ValueError('peers: no trajectories; leave_trajectory_out is for step terms (unit="step")')
    own = segments.pair(peers.cluster, peers.trajectory)
    others = peers.n - segments.count(own)
    own_sum = segments.total(peers.returns - peers.mean, own)
    return np.where(others > 0, peers.mean - own_sum / np.maximum(others, 1), peers.returns)


def trajectories_mean(peers: Peers) -> Floats:
    """V = mean over the prompt group's trajectories, each counted once.

    For returns that are one number a trajectory.

    Raises:
        ValueError: peers whose members are trajectories; `cluster_mean` is theirs.

    Examples:
        >>> from dataclasses import replace
        >>> import numpy as np
        >>> from bipace.core.baselines import trajectories_mean
        >>> from bipace.core.sample import sample_peers
        >>> peers = replace(sample_peers(), group=np.zeros(3, np.int64))
        >>> trajectories_mean(peers).round(3).tolist()
        [0.75, 0.75, 0.75]
    """
    first, group, row = _one_row_each(peers)
    return segments.mean(peers.returns[first], group)[row]


def other_actions_mean(peers: Peers) -> Floats:
    """V = mean of R over C!= (diff_peer); the own return where every member took i's action.

    Examples:
        >>> from bipace.core.baselines import other_actions_mean
        >>> from bipace.core.sample import sample_peers
        >>> other_actions_mean(sample_peers()).tolist()
        [0.5, 0.5, 0.5]
    """
    same = segments.total(peers.returns - peers.mean, peers.cluster_action)
    others = peers.n - peers.n_same
    return np.where(others > 0, peers.mean - same / np.maximum(others, 1), peers.returns)


def no_scale(peers: Peers) -> Floats:
    """Divide by 1 (`mean_norm`).

    Examples:
        >>> from bipace.core.baselines import no_scale
        >>> from bipace.core.sample import sample_peers
        >>> no_scale(sample_peers()).tolist()
        [1.0, 1.0, 1.0]
    """
    return np.ones(len(peers.returns))


def cluster_std(peers: Peers, ddof: int = 1, delta: float = 1e-6) -> Floats:
    """Divide by sigma_C + delta (`mean_std_norm`).

    Sample deviation (ddof 1) or population deviation (ddof 0).

    Examples:
        >>> from bipace.core.baselines import cluster_std
        >>> from bipace.core.sample import sample_peers
        >>> cluster_std(sample_peers()).round(3).tolist()
        [0.5, 0.5, 0.5]
    """
    return segments.std(peers.returns, peers.cluster, ddof) + delta


def trajectories_std(peers: Peers, delta: float = 1e-6) -> Floats:
    """Divide by the sample deviation over the prompt group's trajectories + delta, each counted once.

    Raises:
        ValueError: as `trajectories_mean`.

    Examples:
        >>> from dataclasses import replace
        >>> import numpy as np
        >>> from bipace.core.baselines import trajectories_std
        >>> from bipace.core.sample import sample_peers
        >>> peers = replace(sample_peers(), group=np.zeros(3, np.int64))
        >>> trajectories_std(peers).round(3).tolist()
        [0.354, 0.354, 0.354]
    """
    first, group, row = _one_row_each(peers)
    return segments.std(peers.returns[first], group)[row] + delta


def no_diff_action(peers: Peers) -> Bools:
    """Fall back where the cluster holds one action only: there is no counterfactual to compare with.

    Examples:
        >>> from bipace.core.baselines import no_diff_action
        >>> from bipace.core.sample import sample_peers
        >>> no_diff_action(sample_peers()).tolist()
        [False, False, False]
    """
    return peers.n_same == peers.n


def no_same_action_peer(peers: Peers) -> Bools:
    """Fall back where nobody else in the cluster took i's action: Q would be i's own return.

    Examples:
        >>> from bipace.core.baselines import no_same_action_peer
        >>> from bipace.core.sample import sample_peers
        >>> no_same_action_peer(sample_peers()).tolist()
        [False, False, True]
    """
    return peers.n_same == 1


def never(peers: Peers) -> Bools:
    """Never fall back: a cluster with one action gives 0.

    Examples:
        >>> from bipace.core.baselines import never
        >>> from bipace.core.sample import sample_peers
        >>> never(sample_peers()).tolist()
        [False, False, False]
    """
    return np.zeros(len(peers.returns), np.bool_)


def _one_row_each(peers: Peers) -> tuple[Ints, Ints, Ints]:
    """One row of each trajectory, their prompt groups, and where each row's own trajectory is among them."""
    if peers.group is None or peers.trajectory is None:
        raise ValueError('peers: no trajectories; their mean over the group is for step terms (unit="step")')
    row = segments.compact(peers.trajectory)
    first = segments.first_rows(row)
    return first, segments.compact(peers.group[first]), row
