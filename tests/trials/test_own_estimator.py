"""Trial: an estimator of a user's own file, which clusters features, works wherever a shipped one does."""

import dataclasses
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")

import bipace
from bipace.analyze import Options, analyze
from bipace.integrations.common.estimator import Estimator
from bipace.integrations.verl.rows import engine_steps
from bipace.integrations.verl.settings import read_settings
from bipace.integrations.verl_agent import compute_advantage
from bipace.rollout.records import EpisodeSummary
from bipace.train.config import load_config
from bipace.train.loop import train

OWN = """
import numpy as np
from bipace import Recipe, ReturnToGo, Term, needs

@needs("features")
def by_sign(batch):
    return 2 * batch.task + (batch.features[:, 0] > np.median(batch.features[:, 0]))

def mine(w: float = 1.0):
    return Recipe("mine", (Term(ReturnToGo(0.95), by_sign, weight=w),))
"""
STEPS, MEMBERS, GROUPS = 3, 4, 2


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    return f"{tmp_path / 'mine.py'}:mine"


@pytest.fixture
def table():
    """Columns of steps, their features, and what the recipe's equation gives, as plain loops."""
    random = np.random.default_rng(0)
    rows = [(g, m, t) for g in range(GROUPS) for m in range(MEMBERS) for t in range(STEPS)]
    wins = {(g, m): float(random.integers(2)) for g in range(GROUPS) for m in range(MEMBERS)}
    features = random.normal(size=(len(rows), 4)).astype(np.float32)
    reward = [10.0 * wins[g, m] * (t == STEPS - 1) for g, m, t in rows]
    to_go = [10.0 * wins[g, m] * 0.95 ** (STEPS - 1 - t) for g, m, t in rows]
    high = features[:, 0] > np.median(features[:, 0])
    expected = []
    for i, (g, _, _) in enumerate(rows):
        peers = [to_go[j] for j, (h, _, _) in enumerate(rows) if h == g and high[j] == high[i]]
        expected.append(to_go[i] - sum(peers) / len(peers) if len(peers) > 1 else 0.0)
    assert np.abs(expected).max() > 1
    return rows, features, reward, to_go, np.array(expected)


@pytest.mark.slow
def test_train(own, tmp_path):
    words = (
        f"estimator={own}",
        "credit.w=2.0",
        "run.iterations=1",
        "rollout.tasks=4",
        "rollout.group_size=4",
    )
    config = load_config(
        overrides=[*words, "env.split=demo", "env.panel=depth4-panel", "env.held_out=[]", "actor.threads=1"]
    )
    assert config.captures
    train(config, tmp_path / "run", on_iteration=lambda *_: None, say=lambda _: None)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert 4 < last["cluster/clusters"] <= 8  # two signs in each of four prompt groups
    assert last["credit/zero_advantage_share"] < 1


def test_verl(own, table):
    rows, features, reward, _, expected = table
    settings = read_settings({"estimator": own, "update": {"invalid_action_penalty": 0.0}}, "bipace")
    assert settings.captures
    quiet = dict(overlong=False, aborted=False, unparsed=0, rejected=0, unfinished=0)
    records = [
        {
            "observation": "o", "command": "x", "action": "a", "parsed": True, "reward": reward[i],
            "episode": dataclasses.asdict(
                EpisodeSummary(steps=STEPS, reward=0.0, won=False, terminated=True, truncated=False, **quiet)
            ),
        }
        for i in range(len(rows))
    ]  # fmt: skip
    order = np.random.default_rng(1).permutation(len(rows)).tolist()
    steps = engine_steps(
        [f"u{rows[i][0]}_{rows[i][0]}_{rows[i][1]}_{rows[i][2]}" for i in order],
        [records[i] for i in order],
        [False] * len(rows),
    )
    credit = Estimator(settings.recipe())(steps, features=features[order])
    np.testing.assert_allclose(credit.values, expected[order], atol=1e-12)


def test_verl_agent(own, table):
    rows, features, reward, to_go, expected = table
    token_rewards = torch.zeros(len(rows), 2, dtype=torch.float64)
    token_rewards[:, 1] = torch.tensor(reward)
    values, _ = compute_advantage(
        token_level_rewards=token_rewards, step_rewards=torch.tensor(to_go),
        response_mask=torch.ones(len(rows), 2),
        anchor_obs=["o"] * len(rows), index=[g for g, _, _ in rows],
        traj_index=[f"{g}-{m}" for g, m, _ in rows],
        responses=["<action>a</action>"] * len(rows), hidden_states=torch.from_numpy(features), estimator=own,
    )  # fmt: skip
    np.testing.assert_allclose(values[:, 0], expected, atol=1e-5)


def test_analyze(own, tiny_actor_folder, tmp_path):
    lines = [
        {"task_id": f"t{g}", "id": f"{g}-{m}", "reward": float(m % 2), "messages": [
            {"role": "user", "content": f"room {g}{m % 3}"}, {"role": "assistant", "content": f"go {m}"},
            {"role": "user", "content": "door"}, {"role": "assistant", "content": "open"},
        ]}
        for g in range(2) for m in range(4)
    ]  # fmt: skip
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    analysis = analyze(file, Options(recipes=(own,), model=str(tiny_actor_folder), layer=1))
    batch = analysis.table.batch
    assert batch.features is not None
    expected = bipace.advantages(batch, bipace.recipe(own)).values
    np.testing.assert_allclose(analysis.credits["mine"].values, expected)
    assert len(set(analysis.credits["mine"].terms[0].cluster.tolist())) == 4
    assert analysis.to_dict()["recipes"]["mine"]["summary"] == f"your own, {own}"
