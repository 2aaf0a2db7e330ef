"""verl-agent's call shape against the core on the same steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from bipace.core.returns import return_to_go, trajectory_return
from bipace.core.rows import build_batch
from bipace.integrations.verl_agent import compute_advantage


def episodes(seed=0, groups=3, members=4):
    rng = np.random.default_rng(seed)
    columns = {name: [] for name in ("task", "trajectory", "t", "reward", "observation", "action")}
    for group in range(groups):
        for member in range(members):
            steps = int(rng.integers(1, 5))
            for t in range(steps):
                values = (f"g{group}", f"g{group}m{member}", t, 10.0 * (t == steps - 1) * rng.integers(2),
                          f"o{rng.integers(3)}", f"a{rng.integers(2)}")  # fmt: skip
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
    features = rng.normal(size=(len(columns["task"]), 6)).astype(np.float32)
    return build_batch(**columns, features=features).batch, columns, features


def called(columns, features, batch, **more):
    mask = torch.ones(len(features), 4)
    mask[:, 3] = 0
    token_rewards = torch.zeros(len(features), 4, dtype=torch.float64)
    token_rewards[:, 2] = torch.from_numpy(trajectory_return(batch))
    return compute_advantage(
        token_level_rewards=token_rewards, step_rewards=torch.from_numpy(return_to_go(batch, gamma=0.95)),
        response_mask=mask, anchor_obs=np.array(columns["observation"], dtype=object), index=columns["task"],
        traj_index=columns["trajectory"], responses=[f"<action>{a}</action>" for a in columns["action"]],
        hidden_states=torch.from_numpy(features), **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bipace", {"eps": 0.8}), ("bigpo", {"eps": 0.8, "mode": "mean_norm"}), ("gigpo", {}), ("hgpo", {}),
        ("grpo", {}), ("diff_peer", {"eps": 0.8}), ("gigpo", {"convention": "verl_agent"}),
    ],
)  # fmt: skip
def test_values_are_the_cores_on_every_response_token_and_zero_elsewhere(name, options):
    batch, columns, features = episodes()
    found, returns = called(columns, features, batch, estimator=name, **options)
    expected = advantages(batch, recipe(name, **options)).values
    assert found[:, :3].numpy() == pytest.approx(np.repeat(expected[:, None], 3, 1), abs=1e-12)
    assert (found[:, 3] == 0).all()
    assert torch.equal(found, returns)
    assert np.abs(expected).max() > 0


def test_padding_rows_get_zero_and_change_nothing():
    batch, columns, features = episodes()
    plain, _ = called(columns, features, batch, estimator="gigpo")
    n = len(features)
    rows = [*range(n), 0, 0]
    mask = torch.ones(n + 2, 4)
    token_rewards = torch.zeros(n + 2, 4, dtype=torch.float64)
    token_rewards[:, 2] = torch.from_numpy(trajectory_return(batch))[rows]
    padded, _ = compute_advantage(
        token_level_rewards=token_rewards, step_rewards=return_to_go(batch, gamma=0.95)[rows], response_mask=mask,
        anchor_obs=[columns["observation"][i] for i in rows], index=[columns["task"][i] for i in rows],
        traj_index=[columns["trajectory"][i] for i in rows],
        responses=[f"<action>{columns['action'][i]}</action>" for i in rows],
        padding=[False] * n + [True] * 2, estimator="gigpo",
    )  # fmt: skip
    assert torch.equal(padded[:n, :3], plain[:, :3])
    assert (padded[n:] == 0).all()


def test_a_discount_is_refused_because_the_returns_carry_it():
    batch, columns, features = episodes()
    with pytest.raises(ValueError, match="discounted already"):
        called(columns, features, batch, estimator="gigpo", gamma=0.9)
