"""The adapter of docs/adapters.md, built from the page in a temporary folder and held to the conformance
test.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from adapters.conformance import Conformance, episodes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adapters.md"
LINES = 120
# tokens of a response, of what stands before it; layers of the engine's model
WRITTEN, HEARD, DEPTH = (3, 2, 2)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """The page's adapter as a module of its own."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("next") / "toy_adapter.py"
    path.write_text(source, encoding="utf-8")
    assert len(source.splitlines()) <= LINES
    spec = importlib.util.spec_from_file_location("toy_adapter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def config(**bipace):
    return {"version": "2.1.0", "group_size": 4, "layers": DEPTH, "bipace": bipace}


def rows_of(steps, rows_per_rollout):
    """Lists of indices of steps, a row of the engine each: consecutive calls of one rollout, in the steps'
    order.
    """
    rollouts = {}
    for i, s in enumerate(steps):
        rollouts.setdefault((s.group, s.trajectory, s.padding and i), []).append(i)
    for found in rollouts.values():
        found.sort(key=lambda i: steps[i].t)
        calls = [len(part) for part in np.array_split(found, min(rows_per_rollout, len(found)))]
        for start, count in zip(np.cumsum([0, *calls[:-1]]).tolist(), calls, strict=True):
            part = found[start : start + count]
            # A row lost between two calls leaves two rows.
            gaps = [
                i + 1 for i, (a, b) in enumerate(itertools.pairwise(part)) if steps[b].t != steps[a].t + 1
            ]
            yield from (part[a:b] for a, b in itertools.pairwise([0, *gaps, len(part)]))


def batch_of(steps, features, rows_per_rollout):
    """A batch of the toy engine, and where each step's tokens stand."""
    rows = list(rows_of(steps, rows_per_rollout))
    length = max(map(len, rows)) * (HEARD + WRITTEN) + 4
    mask = np.zeros((len(rows), length), np.int64)
    states = np.zeros((DEPTH + 1, len(rows), length, features.shape[1]), np.float32)
    places = {}
    for row, members in enumerate(rows):
        for i, step in enumerate(members):
            start = i * (HEARD + WRITTEN) + HEARD
            mask[row, start : start + WRITTEN] = 1
            states[1, row, start - 1] = features[step]
            places[step] = (row, start)
    ends = {(s.group, s.trajectory): "done" if s.terminated else "cut" for s in steps if s.t == s.steps - 1}

    def status(s):
        return "filler" if s.padding else "failed" if s.aborted else ends.get((s.group, s.trajectory), "cut")

    def turn(s):
        return {
            "observation": s.observation, "response": f"<action>{s.action}</action>", "tokens": (1, 2, 3),
            "reward": s.reward, "well_formed": s.parsed,
        }  # fmt: skip

    heads = [steps[members[0]] for members in rows]
    return {
        "prompt_id": [s.group for s in heads], "rollout_id": [s.trajectory for s in heads],
        "first": [s.t for s in heads], "calls": [s.steps for s in heads],
        "status": [status(s) for s in heads],
        "mask": mask, "hidden_states": states,
        "turns": [[turn(steps[i]) for i in members] for members in rows],
    }, places  # fmt: skip


@pytest.mark.usefixtures("_module")
class TestToy(Conformance):
    @pytest.fixture
    def _module(self, toy):
        self.module = toy

    def credit(self, steps, features, *, estimator, options, rows_per_rollout=1):
        adapter = self.module.ToyCredit(config(estimator=estimator, credit=options, features={"layer": 1}))
        batch, places = batch_of(steps, features, rows_per_rollout)
        found, metrics = adapter(batch, iteration=0)
        assert not found[batch["mask"] == 0].any()
        values = []
        for i in range(len(steps)):
            row, start = places[i]
            (value,) = set(found[row, start : start + WRITTEN].tolist())
            values.append(value)
        return values, metrics

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": "3.0.0"}, r"toy >=2.0.0,<3.0 and this is toy 3.0.0"),
            ({"group_size": 1}, "group_size: 1 with the step-level recipe 'bipace'"),
            ({"layers": 0}, "bipace.features.layer: 1 is outside the model"),
            ({"bipace": {"features": {"layer": "last"}}}, "bipace.features.layer: 'last'"),
            ({"bipace": {"credits": {}}}, "did you mean bipace.credit?"),
        ],
    )
    def test_bad_input_is_refused_by_its_key(self, change, message):
        with pytest.raises((ValueError, ImportError), match=message):
            self.module.ToyCredit({**config(features={"layer": 1}), **change})

    def test_the_radius_is_chosen_once_and_then_held(self):
        adapter = self.module.ToyCredit(
            config(credit={"eps": "auto"}, features={"layer": 1, "calibrate_every": 0}),
        )
        chosen = []
        for iteration in range(3):
            batch, _ = batch_of(*episodes(iteration), 1)
            metrics = adapter(batch, iteration)[1]
            chosen.append(
                (metrics["credit/eps"], sum(name.startswith("credit/eps_error") for name in metrics))
            )
        assert [curve for _, curve in chosen] == [9, 0, 0]
        assert len({eps for eps, _ in chosen}) == 1
