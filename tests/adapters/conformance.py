"""What holds for every adapter: subclass `Conformance`, say how your engine holds some model calls, run
pytest.

    class TestMyEngine(Conformance):
        def credit(self, steps, features, *, estimator, options, rows_per_rollout=1):
            ...  # put the steps into a batch of your engine, run your adapter, read the tokens' values back
            return values, metrics

`credit` gets model calls as `EngineStep`s, in the order in which the engine's batch must hold them, and their
features [N, D]. It returns one value a call, in that order, as the engine's loss would see it (an adapter
whose engine holds tokens checks that the value stands on every token the call wrote and that all others have
0), and the metrics. The expected numbers come from the core by another way than `bipace.integrations.common`.

`lacks` names what the engine has no notion of, with the reason; those tests are then skipped with it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from bipace.core.rows import DroppedRowsWarning, build_batch
from bipace.integrations.common.rows import EngineStep
from glossary import unexplained

PENALTY = 0.1
RECIPES = [
    ("bipace", {"eps": 0.7}),
    ("bipace", {"eps": "auto", "whiten": "auto"}),
    ("bigpo", {"eps": 0.7, "mode": "mean_norm"}),
    ("diff_peer", {"eps": 0.7}),
    ("gigpo", {}),
    ("hgpo", {"base_group": True}),
    ("pooled", {"eps": 0.7, "clusters": "features"}),
    ("grpo", {}),
    ("rloo", {}),
]
CLOSEST = ("bipace", {"eps": 0.7})


def episodes(seed=0, groups=3, members=4, longest=5):
    """Random episodes of `groups` prompt groups, and features [N, 6]: repeated states, a quarter of them
    won.
    """
    rng = np.random.default_rng(seed)
    steps = []
    for group in range(groups):
        for member in range(members):
            length, won = int(rng.integers(1, longest + 1)), bool(rng.integers(4) == 0 or member == 0)
            steps += [
                EngineStep(
                    f"g{group}", member, t, f"o{rng.integers(3)}", f"a{rng.integers(2)}",
                    10.0 * (won and t == length - 1), parsed=bool(rng.integers(3)),
                    terminated=won and t == length - 1, truncated=not won and t == length - 1, steps=length,
                )
                for t in range(length)
            ]  # fmt: skip
    return steps, rng.normal(size=(len(steps), 6)).astype(np.float32)


def expected(steps, features, estimator, options, penalty=PENALTY):
    """The core's value of each call, computed from a table that this function sorts and filters itself."""
    bad = {
        (s.group, s.trajectory)
        for s in steps
        if not s.padding and (s.aborted or s.reward is None or not math.isfinite(s.reward))
    }
    kept = [i for i, s in enumerate(steps) if not s.padding and (s.group, s.trajectory) not in bad]
    kept.sort(key=lambda i: (steps[i].group, steps[i].trajectory, steps[i].t))
    made, rows = recipe(estimator, **options), [steps[i] for i in kept]
    batch = build_batch(
        task=[s.group for s in rows], trajectory=[s.trajectory for s in rows], t=[s.t for s in rows],
        reward=[s.reward for s in rows], observation=[s.observation for s in rows],
        action=[s.action for s in rows],
        features=features[kept] if "features" in made.needs else None,
        penalty=[penalty * (not s.parsed) for s in rows],
    ).batch  # fmt: skip
    values = np.zeros(len(steps))
    values[kept] = advantages(batch, made).values
    return values


class Conformance:
    """Any adapter's values are the core's, whatever its engine did to the rows."""

    lacks: ClassVar[dict[str, str]] = {}
    tolerance = 1e-9
    penalty = PENALTY

    def credit(self, steps, features, *, estimator, options, rows_per_rollout=1):
        """See the head of this file."""
        raise NotImplementedError

    def needs(self, what):
        if what in self.lacks:
            pytest.skip(f"{type(self).__name__}: {self.lacks[what]}")

    def values(self, steps, features, method=CLOSEST, **more):
        found, metrics = self.credit(steps, features, estimator=method[0], options=method[1], **more)
        assert len(found) == len(steps)
        assert unexplained(metrics) == set()
        return np.asarray(found, np.float64)

    def same(self, found, steps, features, method=CLOSEST):
        assert found == pytest.approx(expected(steps, features, *method, self.penalty), abs=self.tolerance)

    @pytest.mark.parametrize("method", RECIPES, ids=lambda m: "-".join([m[0], *map(str, m[1].values())]))
    def test_the_values_are_the_cores(self, method):
        steps, features = episodes()
        found = self.values(steps, features, method)
        self.same(found, steps, features, method)
        assert np.abs(found).max() > 0.1

    @pytest.mark.parametrize("method", RECIPES[:1] + RECIPES[4:7], ids=lambda m: m[0])
    def test_the_order_of_rows_is_irrelevant(self, method):
        steps, features = episodes(1, members=12)
        plain = self.values(steps, features, method)
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(len(steps))
            shuffled = self.values([steps[i] for i in order], features[order], method)
            assert shuffled.tolist() == plain[order].tolist()

    def test_a_lone_trajectory_gets_no_credit_but_its_penalty(self):
        steps, features = episodes(2)
        lone = [s for s in steps if s.group != "g1" or s.trajectory == 0]
        features = features[[s in lone for s in steps]]
        for method in (CLOSEST, ("grpo", {})):
            found = self.values(lone, features, method)
            self.same(found, lone, features, method)
            alone = [
                v + self.penalty * (not s.parsed) for v, s in zip(found, lone, strict=True) if s.group == "g1"
            ]
            if method[0] == "grpo":
                assert alone == pytest.approx([0.0] * len(alone), abs=self.tolerance)

    def test_an_aborted_rollout_leaves_its_siblings_as_if_it_never_ran(self):
        self.needs("aborted")
        steps, features = episodes(3)
        broken = [replace(s, aborted=(s.group, s.trajectory) == ("g0", 1)) for s in steps]
        found = self.values(broken, features)
        self.same(found, broken, features)
        rest = [i for i, s in enumerate(broken) if not s.aborted]
        self.same(found[rest], [steps[i] for i in rest], features[rest])
        assert not any(found[i] for i, s in enumerate(broken) if s.aborted)

    def test_a_rollout_with_a_missing_row_gets_zero_and_leaves_its_siblings_alone(self):
        self.needs("missing")
        steps, features = episodes(4)
        lost = next(s for s in steps if s.steps > 2 and s.t == 1)
        keep = [i for i, s in enumerate(steps) if s is not lost]
        part = [steps[i] for i in keep]
        found = self.values(part, features[keep])
        torn = [replace(s, aborted=(s.group, s.trajectory) == (lost.group, lost.trajectory)) for s in part]
        self.same(found, torn, features[keep])

    def test_padding_rows_get_zero_and_change_nothing(self):
        self.needs("padding")
        steps, features = episodes(5)
        plain = self.values(steps, features)
        copies = [0, 0, 7]
        more = [*steps, *(replace(steps[i], padding=True) for i in copies)]
        found = self.values(more, np.concatenate([features, features[copies]]))
        assert found[: len(steps)].tolist() == plain.tolist()
        assert found[len(steps) :].tolist() == [0.0] * len(copies)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None], ids=str)
    def test_a_reward_that_is_no_number_costs_its_own_trajectory_alone(self, bad):
        self.needs("non_finite")
        if bad is None:
            self.needs("no_reward")
        steps, features = episodes(6)
        where = next(i for i, s in enumerate(steps) if s.group == "g2")
        steps[where] = replace(steps[where], reward=bad)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedRowsWarning)
            found = self.values(steps, features)
            self.same(found, steps, features)
        lost = (steps[where].group, steps[where].trajectory)
        assert not any(v for v, s in zip(found, steps, strict=True) if (s.group, s.trajectory) == lost)
        assert np.count_nonzero(found)

    @pytest.mark.parametrize("rows", [1, 2, 3])
    def test_the_segments_of_a_rollout_are_one_trajectory(self, rows):
        steps, features = episodes(7)
        found = self.values(steps, features, rows_per_rollout=rows)
        self.same(found, steps, features)

    def test_a_batch_of_which_nothing_is_left_gives_zeros(self):
        self.needs("aborted")
        steps, features = episodes(8, groups=1, members=2)
        found = self.values([replace(s, aborted=True) for s in steps], features)
        assert found.tolist() == [0.0] * len(steps)
