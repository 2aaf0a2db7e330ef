"""From an engine's rows to one value a model call, with the metrics of docs/metrics.md."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from bipace.core.advantages import Advantages, Recipe, advantages
from bipace.core.diagnostics import credit_diagnostics
from bipace.core.features import FeaturesElsewhere
from bipace.core.radius import at_radius
from bipace.core.rows import Rows
from bipace.core.steps import Floats
from bipace.integrations.common.rows import EngineStep, to_table

__all__ = ["Credit", "Estimator"]


@dataclass(frozen=True, eq=False)
class Credit:
    """What a batch's rows were credited.

    Attributes:
        values: [N] one advantage a row, in the order the rows came; 0 on rows that were left out.
        metrics: `event/`, `group/`, `cluster/` and `credit/` as docs/metrics.md names them.
        seconds: wall time of table, clusters, advantages and metrics.
        rows: the table and the way back.
        advantages: every term's outcome, for reports.

    Examples:
        >>> import bipace
        >>> from bipace.integrations.common.estimator import Estimator
        >>> from bipace.integrations.common.rows import EngineStep
        >>> steps = [EngineStep("cup", k, 0, "a door", "open" if k else "wait", float(k)) for k in range(2)]
        >>> Estimator(bipace.recipe("rloo"))(steps).metrics["group/trajectories"]
        2.0
    """

    values: Floats
    metrics: dict[str, float]
    seconds: float
    rows: Rows
    advantages: Advantages


@dataclass
class Estimator:
    """A recipe applied to an engine's batches, one after the other.

    Attributes:
        recipe: what is computed.
        calibrate_every: batches between two choices of `eps="auto"`; 0 chooses once, on the first batch.
        invalid_action_penalty: cost of a response without the required form, on its own row.
        radius: (eps, whiten) that `eps="auto"` chose last; None before the first choice. An adapter that
            resumes a job puts it back.

    Examples:
        >>> import bipace
        >>> from bipace.integrations.common.estimator import Estimator
        >>> from bipace.integrations.common.rows import EngineStep
        >>> steps = [EngineStep("cup", k, 0, "a door", "open" if k else "wait", float(k)) for k in range(2)]
        >>> credit = Estimator(bipace.recipe("rloo"))(steps)
        >>> credit.values.tolist()
        [-1.0, 1.0]
    """

    recipe: Recipe
    calibrate_every: int = 1
    invalid_action_penalty: float = 0.0
    radius: tuple[float, int] | None = None

    def __call__(
        self,
        steps: Sequence[EngineStep],
        *,
        features: NDArray[Any] | FeaturesElsewhere | None = None,
        added: Floats | None = None,
        to_go: Floats | None = None,
        whole: Floats | None = None,
        iteration: int = 0,
    ) -> Credit:
        """Credit one batch.

        Args:
            steps: N model calls in any order.
            features: [N, D] hidden states, or None.
            added: [N] what the engine added to rewards; see `to_table`.
            to_go: [N] see `to_table`.
            whole: [N] see `to_table`.
            iteration: batches before this one; decides whether `eps="auto"` chooses anew.

        Raises:
            ValueError: what `to_table` and the recipe refuse.
        """
        started = time.perf_counter()
        rows, events = to_table(
            steps,
            features=features,
            added=added,
            invalid_action_penalty=self.invalid_action_penalty,
            to_go=to_go,
            whole=whole,
        )
        recipe, self.radius, chosen = at_radius(
            self.recipe, rows.batch, self.radius, every=self.calibrate_every, iteration=iteration
        )
        found = advantages(rows.batch, recipe)
        metrics = {**events, **credit_diagnostics(rows.batch, found), **chosen}
        return Credit(rows.scatter(found.values), metrics, time.perf_counter() - started, rows, found)
