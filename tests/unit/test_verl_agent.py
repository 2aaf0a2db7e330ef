"""verl-agent's call shape against the core on the same steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bipace.core.advantages import advantages
from bipace.core.estimators import recipe
from bipace.core.returns import return_to_go, trajectory_return
from bipace.core.rows import DroppedRowsWarning, build_batch
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
        token_level_rewards=token_rewards, step_rewards=return_to_go(batch, gamma=0.95)[rows],
        response_mask=mask,
        anchor_obs=[columns["observation"][i] for i in rows], index=[columns["task"][i] for i in rows],
        traj_index=[columns["trajectory"][i] for i in rows],
        responses=[f"<action>{columns['action'][i]}</action>" for i in rows],
        padding=[False] * n + [True] * 2, estimator="gigpo",
    )  # fmt: skip
    assert torch.equal(padded[:n, :3], plain[:, :3])
    assert (padded[n:] == 0).all()


def tensors(columns, features, batch, rows, **more):
    """The call on some rows, in that order."""
    mask = torch.ones(len(rows), 4)
    token_rewards = torch.zeros(len(rows), 4, dtype=torch.float64)
    token_rewards[:, 2] = torch.from_numpy(trajectory_return(batch))[rows]
    given = {
        "token_level_rewards": token_rewards, "response_mask": mask,
        "step_rewards": return_to_go(batch, gamma=0.95)[rows],
        "anchor_obs": [columns["observation"][i] for i in rows], "index": [columns["task"][i] for i in rows],
        "traj_index": [columns["trajectory"][i] for i in rows], "hidden_states": features[rows],
        "responses": [f"<action>{columns['action'][i]}</action>" for i in rows],
    }  # fmt: skip
    return compute_advantage(**{**given, **more})[0]


@pytest.mark.parametrize(
    ("name", "options"), [("hgpo", {}), ("bipace", {"eps": 0.8}), ("gigpo", {"similarity": 0.5})]
)
def test_rows_in_any_order_carry_the_same_values_where_their_steps_are_known(name, options):
    batch, columns, features = episodes(5, members=12)
    plain = tensors(columns, features, batch, list(range(len(features))), estimator=name, **options)
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(features)).tolist()
        steps = [columns["t"][i] for i in rows]
        found = tensors(columns, features, batch, rows, step_index=steps, estimator=name, **options)
        assert torch.equal(found, plain[rows])
        with pytest.raises(ValueError, match="do not lie side by side"):
            tensors(columns, features, batch, rows, estimator=name, **options)


def test_eps_auto_calibrates_on_the_given_returns():
    batch, columns, features = episodes(6, groups=4, members=8)
    rows = list(range(len(features)))
    found = tensors(columns, features, batch, rows, estimator="bipace", eps="auto", whiten="auto")
    expected = advantages(batch, recipe("bipace", eps="auto", whiten="auto")).values
    assert found[:, 0].numpy() == pytest.approx(expected, abs=1e-12)


OWN = """
from bipace.core.advantages import Recipe, Term
from bipace.core.clustering import by_observation
def last_reward(batch):
    return batch.reward * 3.0
def mine():
    return Recipe("mine", (Term(last_reward, by_observation),))
"""


def test_a_return_of_ones_own_is_computed_and_never_replaced(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    own = f"{tmp_path / 'mine.py'}:mine"
    batch, columns, features = episodes(7)
    rows = list(range(len(features)))
    with pytest.raises(ValueError, match="rewards: None, but a return"):
        tensors(columns, features, batch, rows, estimator=own)
    found = tensors(columns, features, batch, rows, estimator=own, rewards=columns["reward"])
    expected = advantages(batch, recipe(own)).values
    assert np.abs(expected).max() > 0
    assert found[:, 0].numpy() == pytest.approx(expected, abs=1e-12)


def test_one_score_that_is_no_number_costs_its_own_trajectory():
    batch, columns, features = episodes(8)
    rows = list(range(len(features)))
    lost = [t == columns["trajectory"][0] for t in columns["trajectory"]]
    scores = torch.zeros(len(rows), 4, dtype=torch.float64)
    scores[:, 2] = torch.from_numpy(trajectory_return(batch))
    scores[0, 1] = float("nan")
    with pytest.warns(DroppedRowsWarning):
        found = tensors(columns, features, batch, rows, token_level_rewards=scores, estimator="gigpo")
    kept = [i for i in rows if not lost[i]]
    assert torch.equal(found[kept], tensors(columns, features, batch, kept, estimator="gigpo"))
    assert not found[lost].any()


def test_whole_number_rewards_do_not_cut_the_values():
    batch, columns, features = episodes(9)
    rows = list(range(len(features)))
    whole = torch.zeros(len(rows), 4, dtype=torch.int64)
    whole[:, 2] = torch.from_numpy(trajectory_return(batch)).long()
    found = tensors(columns, features, batch, rows, token_level_rewards=whole, estimator="gigpo")
    assert found.dtype == torch.float32
    assert torch.allclose(
        found.double(), tensors(columns, features, batch, rows, estimator="gigpo"), atol=1e-6
    )
    assert (found != found.round()).any()


def test_a_discount_is_refused_because_the_returns_carry_it():
    batch, columns, features = episodes()
    with pytest.raises(ValueError, match="discounted already"):
        called(columns, features, batch, estimator="gigpo", gamma=0.9)
