"""Transitions: a step leads from its state to the next step's, and a group's steps make one graph.

The state of a step is its cluster (an equal observation, near hidden states); clusters never span prompt
groups, so every group is a graph of its own. The last step of a trajectory leads to an end that was not
seen. It counts as the end of the task where the environment ended the episode; at a horizon nothing is known
of what came after, and no terminal state is made up for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bipace.core import segments
from bipace.core.clustering import Clustering
from bipace.core.parts import needs_of
from bipace.core.returns import discounted, return_to_go, trajectory_return
from bipace.core.steps import Bools, Floats, Ints, StepBatch

__all__ = [
    "ByEdges",
    "ByStatesWithAnEnd",
    "GraphReturn",
    "NextValue",
    "TemporalDifferences",
    "ValueGain",
    "distances",
    "next_rows",
    "succeeded",
]


def next_rows(batch: StepBatch) -> Ints:
    """[N] the row of the trajectory's next step; -1 at its last step."""
    following = np.full(len(batch), -1, np.int64)
    order = batch.order()
    here, there = order[:-1], order[1:]
    same = batch.trajectory[here] == batch.trajectory[there]
    following[here[same]] = there[same]
    return following


def succeeded(batch: StepBatch, above: float = 0.0) -> Bools:
    """[N] True on rows of successful trajectories: a return above `above`, and no horizon that cut it.

    Rewards say what an outcome was; a task with rewards on the way says by `above` which return is success.
    """
    trajectory = segments.compact(batch.trajectory)
    cut = segments.total(batch.truncated.astype(np.float64), trajectory) > 0
    return (trajectory_return(batch) > above) & ~cut


def distances(source: Ints, target: Ints, goals: Ints, nodes: int) -> Ints:
    """[nodes] fewest edges from each node to a goal along (source, target) edges; -1 where none leads there.

    Breadth first from the goals over reversed edges: every edge is looked at once, after one sort.

    Args:
        source: [E] node that each edge leaves.
        target: [E] node that it enters.
        goals: nodes at distance 0.
        nodes: number of nodes.
    """
    found = np.full(nodes, -1, np.int64)
    by_target = np.argsort(target, kind="stable")
    origin = source[by_target]
    start = np.searchsorted(target[by_target], np.arange(nodes + 1))
    frontier = np.unique(goals)
    steps = 0
    while len(frontier):
        found[frontier] = steps
        steps += 1
        count = start[frontier + 1] - start[frontier]
        # Positions of all edges that enter the frontier, laid end to end.
        offset = np.repeat(start[frontier] - np.r_[0, np.cumsum(count)[:-1]], count)
        before = origin[offset + np.arange(int(count.sum()))]
        frontier = np.unique(before[found[before] < 0])
    return found


@dataclass(frozen=True)
class _OverStates:
    """A part that reads the graph of states."""

    states: Clustering

    @property
    def needs(self) -> frozenset[str]:
        """What the states need."""
        return needs_of(self.states)


@dataclass(frozen=True)
class ByEdges(_OverStates):
    """Peers took the same action from the same state and came to the same state.

    Last steps lead to one common end of the task; where a horizon cut the episode what came next is unknown,
    and the step is a cluster of its own.
    """

    name: ClassVar[str] = "by_edges"

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        state, following = segments.compact(self.states(batch)), next_rows(batch)
        target = np.where(following >= 0, state[following], -1)
        cut = (following < 0) & batch.truncated
        target[cut] = len(batch) + np.flatnonzero(cut)
        return segments.pair(segments.pair(state, batch.action), target)


@dataclass(frozen=True)
class ByStatesWithAnEnd(_OverStates):
    """The states, but last steps that a horizon cut are alone: where they led was not seen."""

    name: ClassVar[str] = "by_states_with_an_end"

    def __call__(self, batch: StepBatch) -> Ints:
        """[N] compact labels."""
        cut = (next_rows(batch) < 0) & batch.truncated
        own = len(batch) + np.arange(len(batch))
        return segments.compact(np.where(cut, own, segments.compact(self.states(batch))))


@dataclass(frozen=True)
class TemporalDifferences(_OverStates):
    """sum_l (gamma lambda)^l delta_{t+l}, delta_t = r_t + gamma V(s_{t+1}) - V(s_t).

    V is a state's mean return-to-go. V of what follows the last step is 0, as in `return_to_go`. A prompt
    group of one trajectory gives 0: its values are its own returns.

    Raises:
        ValueError: gamma or lam outside [0, 1].
    """

    gamma: float = 0.95
    lam: float = 0.95
    name: ClassVar[str] = "temporal_differences"

    def __call__(self, batch: StepBatch) -> Floats:
        """[N] float64 in units of reward."""
        if not 0.0 <= self.lam <= 1.0:
            raise ValueError(f"lam: {self.lam}, expected a trace decay in [0, 1]")
        value = segments.mean(return_to_go(batch, self.gamma), segments.compact(self.states(batch)))
        following = next_rows(batch)
        after = np.where(following >= 0, value[following], 0.0)
        delta = batch.reward + self.gamma * after - value
        return np.where(_lone(batch), 0.0, discounted(batch, delta, self.gamma * self.lam))


@dataclass(frozen=True)
class NextValue(_OverStates):
    """Value of the state that a step leads to: V(s) = gamma * mean return-to-go of the steps that saw s.

    A last step leads to its own last reward: the outcome, of which a state one step before it is worth gamma
    times as much. With `charged` the step's penalty is taken off (verl-agent's convention).

    Raises:
        ValueError: gamma outside [0, 1].
    """

    gamma: float = 0.95
    charged: bool = False
    name: ClassVar[str] = "next_value"

    def __call__(self, batch: StepBatch) -> Floats:
        """[N] float64 in units of reward."""
        after = _values(batch, self.states, self.gamma)[1]
        return after - batch.penalty if self.charged and batch.penalty is not None else after


@dataclass(frozen=True)
class ValueGain(_OverStates):
    """`NextValue` less the value of the step's own state; 0 in a prompt group of one trajectory."""

    gamma: float = 0.95
    name: ClassVar[str] = "value_gain"

    def __call__(self, batch: StepBatch) -> Floats:
        """[N] float64 in units of reward."""
        here, after = _values(batch, self.states, self.gamma)
        return np.where(_lone(batch), 0.0, after - here)


@dataclass(frozen=True)
class GraphReturn(_OverStates):
    """C omega^d(s'), d the fewest steps from the next state to the goal in the prompt group's graph.

    Edges are the steps that any trajectory of the group took; the last step of a successful one leads to the
    goal. States from which no edge path leads there are one step beyond the farthest that has one. C is the
    largest return of the group's successful trajectories; a group without success gives 0.

    Attributes:
        omega: decay a step, between 0 and 1.
        above: the return above which a trajectory has succeeded (`succeeded`).

    Raises:
        ValueError: omega outside (0, 1).
    """

    omega: float = 0.1
    above: float = 0.0
    name: ClassVar[str] = "graph_return"

    def __call__(self, batch: StepBatch) -> Floats:
        """[N] float64 in units of reward."""
        if not 0.0 < self.omega < 1.0:
            raise ValueError(f"omega: {self.omega}, expected a decay between 0 and 1")
        if not len(batch):
            return np.zeros(0)
        state, following, group = (
            segments.compact(self.states(batch)),
            next_rows(batch),
            segments.compact(batch.task),
        )
        nodes, success = int(state.max()) + 1, succeeded(batch, self.above)
        last = following < 0
        # Beside the states: one goal, and one node for ends that are none.
        goal, nowhere = nodes, nodes + 1
        target = np.where(last, np.where(success, goal, nowhere), state[following])
        found = distances(state, target, np.array([goal]), nodes + 2)
        own = found[state]
        farthest = np.zeros(int(group.max()) + 1, np.int64)
        np.maximum.at(farthest, group, own)
        away = np.where(found[target] >= 0, found[target], farthest[group] + 1)
        best = np.zeros(len(farthest))
        np.maximum.at(best, group[success], np.maximum(trajectory_return(batch)[success], 0.0))
        return best[group] * np.power(self.omega, away.astype(np.float64))


def _values(batch: StepBatch, states: Clustering, gamma: float) -> tuple[Floats, Floats]:
    """[N] the value of each step's state, and of the state it leads to."""
    state, following = segments.compact(states(batch)), next_rows(batch)
    here = gamma * segments.mean(return_to_go(batch, gamma), state)
    return here, np.where(following >= 0, here[following], batch.reward)


def _lone(batch: StepBatch) -> Bools:
    """[N] True on rows of prompt groups that hold one trajectory."""
    group = segments.compact(batch.task)
    first = segments.first_rows(segments.compact(batch.trajectory))
    return np.bincount(group[first], minlength=1)[group] == 1 if len(group) else np.zeros(0, np.bool_)
