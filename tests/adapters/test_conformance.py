"""The adapters that need no engine installed, held to the conformance test of all adapters."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from adapters.conformance import Conformance, episodes
from bipace.core.estimators import recipe
from bipace.core.rows import DroppedRowsWarning
from bipace.integrations.common.estimator import Estimator
from bipace.integrations.common.rows import UndeclaredPaddingWarning
from bipace.integrations.verl.rows import engine_steps
from bipace.integrations.verl_agent import compute_advantage
from bipace.rollout.records import EpisodeSummary


def verl_rows(steps):
    """verl's keys, what its agent loop leaves on each row, and which rows fill the batch."""
    keys = [f"{s.group}_{s.trajectory}_{s.t}" for s in steps]
    won = {(s.group, s.trajectory) for s in steps if s.terminated}
    records = [
        {
            "observation": s.observation, "action": s.action, "reward": s.reward, "parsed": s.parsed,
            "episode": asdict(EpisodeSummary(
                steps=s.steps, reward=0.0, won=False, terminated=(s.group, s.trajectory) in won,
                truncated=False,
                overlong=False, aborted=s.aborted, unparsed=0, rejected=0, unfinished=0,
            )),
        }
        for s in steps
    ]  # fmt: skip
    return keys, records, [s.padding for s in steps]


class TestVerlRows(Conformance):
    """verl's rows by their names; its tensors are tests/engines' part."""

    def credit(self, steps, features, *, estimator, options, rows_per_rollout=1):
        made = recipe(estimator, **options)
        credit = Estimator(made, invalid_action_penalty=self.penalty)(
            engine_steps(*verl_rows(steps)), features=features if "features" in made.needs else None
        )
        return credit.values, credit.metrics


class TestVerlAgent(Conformance):
    """verl-agent's tensors: returns that it has computed, no reward of a step."""

    lacks: ClassVar = {
        "aborted": "verl-agent has no mark for a rollout that failed",
        "missing": "verl-agent does not say how many steps a trajectory had",
        "no_reward": "verl-agent's rewards are a tensor",
    }
    penalty = 0.0

    def credit(self, steps, features, *, estimator, options, rows_per_rollout=1):
        rewards = {(s.group, s.trajectory, s.t): s.reward for s in steps}

        def to_go(s):
            later = range(s.t, s.steps)
            return sum(0.95 ** (t - s.t) * rewards[s.group, s.trajectory, t] for t in later)

        mask = torch.ones(len(steps), 4)
        mask[:, 3] = 0
        token_rewards = torch.zeros(len(steps), 4, dtype=torch.float64)
        token_rewards[:, 2] = torch.tensor([
            sum(rewards[s.group, s.trajectory, t] for t in range(s.steps)) for s in steps
        ])  # fmt: skip
        found, returns = compute_advantage(
            token_level_rewards=token_rewards, response_mask=mask,
            step_rewards=torch.tensor([to_go(s) for s in steps], dtype=torch.float64),
            anchor_obs=[s.observation for s in steps], index=[s.group for s in steps],
            traj_index=[s.trajectory for s in steps], step_index=[s.t for s in steps],
            responses=[f"<action>{s.action}</action>" for s in steps],
            hidden_states=torch.from_numpy(features),
            padding=[s.padding for s in steps], estimator=estimator, **options,
        )  # fmt: skip
        assert torch.equal(found, returns)
        assert (found[:, 3] == 0).all()
        assert (found[:, :3] == found[:, :1]).all()
        return found[:, 0].numpy(), {}

    def test_a_copied_row_that_nobody_marked_is_found(self):
        steps, features = episodes(9)
        plain = self.values(steps, features)
        with pytest.warns(UndeclaredPaddingWarning, match="2 rows are copies"):
            found = self.values([*steps, steps[0], steps[7]], np.concatenate([features, features[[0, 7]]]))
        assert found.tolist() == [*plain.tolist(), 0.0, 0.0]

    def test_what_is_dropped_is_said(self):
        steps, features = episodes(9)
        with pytest.warns(DroppedRowsWarning, match="non-finite reward"):
            self.values([replace(steps[0], reward=float("nan")), *steps[1:]], features)
