"""Why a run stops before its end."""

from __future__ import annotations

from collections.abc import Sequence

from bipace.rollout.records import Trajectory

__all__ = ["NonFiniteError", "NothingPlayed", "RunStopped", "refuse_aborted"]


class RunStopped(RuntimeError):
    """The run cannot go on; the message says why, and the last checkpoint is kept."""


class NothingPlayed(RunStopped):
    """Every episode was aborted by its environment: there is nothing to learn from or to judge by."""


class NonFiniteError(RunStopped):
    """The policy broke down: too many non-finite updates, or its weights or probabilities are no numbers.

    The last checkpoint is kept.
    """


def refuse_aborted(trajectories: Sequence[Trajectory], where: str, way_out: str) -> None:
    """Raise NothingPlayed where there are episodes and every one of them was aborted.

    0 % would not be the policy's.
    """
    if trajectories and all(t.error for t in trajectories):
        raise NothingPlayed(
            f"env.suite: all {len(trajectories)} episodes {where} were aborted by the environment, the first "
            f"by {trajectories[0].error[:300]!r}. {way_out}"
        )
