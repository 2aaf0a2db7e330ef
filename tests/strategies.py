"""Tables of steps as hypothesis draws them: every ugly shape an estimator must survive.

`step_tables()` draws lists of row dicts as `oracles` reads them; `to_batch` makes the same table a
`StepBatch`.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from bipace.core.labels import label
from bipace.core.steps import StepBatch

EPS = 0.1
"""The radius that the feature palette is built around: use it (or 0) where borderline pairs are wanted."""

EXACT_GAMMAS = (0.0, 0.5, 1.0)
"""Discounts under which the drawn returns are exact in float64.

HGPO drops entries that are exactly 0, so a mean off by one unit in the last place changes its weights for
real. Rewards are quarters; with these discounts both sides agree on what is 0.
"""

TEXTS = (
    "You are in the kitchen. There is a table, a lamp and a door to the north.",
    "You are in the kitchen. There is a table, a lamp and a door to the south.",
    "You carry: nothing.",
    "Nothing happens.",
    "",
)

ACTIONS = ("go north", "take lamp", "look")


def rotated(distance):
    """The unit vector at this cosine distance from (1, 0, 0), in the plane of the first two axes."""
    cosine = 1.0 - distance
    return [cosine, math.sqrt(1.0 - cosine**2), 0.0]


FEATURES = (
    [0.0, 0.0, 0.0],
    [1.0, 0.0, 0.0],
    [3.0, 0.0, 0.0],
    [0.0, 1.0, 0.0],
    [0.0, 0.0, 2.0],
    rotated(EPS),
    rotated(EPS - 1e-4),
    rotated(EPS + 1e-4),
    rotated(EPS / 2),
    [-1.0, 0.5, 0.25],
)


@st.composite
def step_tables(draw, max_tasks=3, max_group=4, max_steps=5, penalties=False):
    """A non-empty list of row dicts in any order; trajectory numbers are unique over the table.

    With `penalties`, some rows carry a penalty.
    """
    tasks = draw(st.lists(st.integers(0, 9), min_size=1, max_size=max_tasks, unique=True))
    sizes = [draw(st.integers(1, max_group)) for _ in tasks]
    names = draw(st.permutations(range(sum(sizes))))
    texts = TEXTS[: draw(st.integers(1, len(TEXTS)))]
    actions = ACTIONS[: draw(st.integers(1, len(ACTIONS)))]
    features = st.sampled_from(FEATURES) | st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=3)
    rewards = draw(
        st.sampled_from(
            [
                st.just(0.0),
                st.just(1.0),
                st.sampled_from([0.0, 10.0]),
                st.integers(-8, 8).map(lambda quarters: quarters / 4),
            ]
        )
    )
    rows = []
    for task, size in zip(tasks, sizes, strict=True):
        for _ in range(size):
            trajectory = names[len({row["trajectory"] for row in rows})]
            for t in range(draw(st.integers(1, max_steps))):
                rows.append(
                    {
                        "task": task,
                        "trajectory": trajectory,
                        "t": t,
                        "reward": draw(rewards),
                        "observation": draw(st.sampled_from(texts)),
                        "action": draw(st.sampled_from(actions)),
                        "feature": draw(features),
                    }
                )
    cut = draw(st.sets(st.sampled_from([row["trajectory"] for row in rows])))
    lasts = {row["trajectory"]: row["t"] for row in rows}
    for row in rows:
        row["truncated"] = row["trajectory"] in cut and row["t"] == lasts[row["trajectory"]]
    if penalties:
        for row in rows:
            row["penalty"] = draw(st.sampled_from([0.0, 0.0, 0.125]))
    return draw(st.permutations(rows))


def to_batch(rows):
    """The same table as arrays, row for row.

    Task and trajectory numbers are kept: they decide the visit order.
    """
    columns = {name: [row[name] for row in rows] for name in ("task", "trajectory", "t", "reward")}
    observation, texts = label([row["observation"] for row in rows])
    last = {(row["trajectory"], row["t"]) for row in rows}
    return StepBatch(
        **columns,
        terminated=[
            (row["trajectory"], row["t"] + 1) not in last and not row.get("truncated") for row in rows
        ],
        truncated=[row.get("truncated", False) for row in rows],
        observation=observation,
        action=label([row["action"] for row in rows])[0],
        features=np.array([row["feature"] for row in rows], np.float32).reshape(len(rows), -1),
        penalty=[row["penalty"] for row in rows] if "penalty" in rows[0] else None,
        texts=texts,
    )
