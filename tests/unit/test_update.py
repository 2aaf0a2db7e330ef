"""The update: losses against plain numbers, a step's advantage on its own tokens alone, any cut the same
gradient.
"""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies.hf import Actor
from bipace.rollout.records import TokenSequence
from bipace.train.config import UpdateConfig
from bipace.train.losses import k3, policy_loss
from bipace.train.scored import score_sequences
from bipace.train.update import _cut, _minibatches, token_values, update_policy

ALONE = list("abcdefgh")  # eight sequences of eight prompt groups


def plain_loss(logp, old, advantage, clip, dual):
    ratio = math.exp(logp - old)
    loss = max(-advantage * ratio, -advantage * min(max(ratio, 1 - clip), 1 + clip))
    return min(loss, -dual * advantage) if advantage < 0 else loss


@pytest.mark.parametrize("advantage", [-2.0, -0.5, 0.0, 0.5, 2.0])
@pytest.mark.parametrize("shift", [-3.0, -0.3, -0.1, 0.0, 0.1, 0.3, 3.0])
def test_policy_loss_is_clipped_twice(advantage, shift):
    logp, old = torch.tensor([-1.0 + shift], requires_grad=True), torch.tensor([-1.0])
    loss, clipped = policy_loss(logp, old, torch.tensor([advantage]), 0.2, 3.0)
    assert loss.item() == pytest.approx(plain_loss(-1.0 + shift, -1.0, advantage, 0.2, 3.0), rel=1e-6)
    loss.sum().backward()
    assert (logp.grad.item() == 0) == (clipped.item() == 1 or advantage == 0)


def test_k3_is_never_negative_and_zero_at_equality():
    logp = torch.linspace(-5, 0, 11)
    assert k3(logp, logp).abs().max() == 0
    assert (k3(logp, torch.zeros(11)) >= 0).all()
    assert k3(torch.tensor([-100.0]), torch.tensor([0.0])).item() == 10.0


def test_a_steps_value_lands_on_exactly_its_own_tokens():
    a = TokenSequence(np.arange(12), ((3, 5), (8, 11)))
    b = TokenSequence(np.arange(6), ((2, 6),))
    values = token_values([a, b], np.array([1.0, -2.0, 0.5]))
    assert [v.tolist() for v in values] == [[1, 1, -2, -2, -2], [0.5] * 4]
    with pytest.raises(ValueError, match="2 entries, expected 3"):
        token_values([a, b], np.zeros(2))


@pytest.fixture
def actor(tiny_actor_folder):
    return Actor.load(tiny_actor_folder)


def rollouts(seed=0, n=8):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        length = int(rng.integers(8, 40))
        cut = int(rng.integers(2, length - 3))
        found.append(TokenSequence(rng.integers(0, 250, length), ((cut, cut + 2), (length - 1, length))))
    return found, rng.normal(size=2 * n)


def one_update(folder, shards=1, **changes):
    actor = Actor.load(folder)
    sequences, advantages = rollouts()
    config = UpdateConfig(lr=1e-2, minibatches=1, **changes)
    old = score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs
    optimizer = torch.optim.SGD(actor.model.parameters(), lr=1e-2)
    metrics = update_policy(
        actor, optimizer, sequences, old, token_values(sequences, advantages), config,
        groups=ALONE, shuffle=np.random.default_rng(0), reference=old, shards=shards,
    )  # fmt: skip
    return torch.cat([p.detach().flatten() for p in actor.model.parameters()]), metrics


def test_minibatches_keep_prompt_groups_together():
    groups = list("abcdabcdabcd")
    for seed in range(20):
        parts = list(_minibatches(groups, 2, np.random.default_rng(seed)))
        assert [len({groups[i] for i in part}) for part in parts] == [2, 2]
        assert sorted(i for part in parts for i in part) == list(range(12))
    # Fewer groups than parts: a group is cut, and no optimizer step is lost.
    assert list(map(len, _minibatches(["a"] * 5, 3, np.random.default_rng(0)))) == [2, 2, 1]
    assert list(map(len, _minibatches(["a", "b"], 4, np.random.default_rng(0)))) == [1, 1]
    assert list(_minibatches([], 4, np.random.default_rng(0))) == [[]]


@pytest.mark.parametrize("extra", [{}, {"kl_loss_coef": 0.1, "entropy_coef": 0.01}])
def test_eight_micro_batches_of_one_are_one_of_eight(tiny_actor_folder, extra):
    whole, a = one_update(tiny_actor_folder, micro_tokens=10_000, **extra)
    cut, b = one_update(tiny_actor_folder, micro_tokens=1, **extra)
    start = torch.cat([p.detach().flatten() for p in Actor.load(tiny_actor_folder).model.parameters()])
    assert (whole - start).abs().max() > 1e-5
    torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-6)
    assert a["update/loss"] == pytest.approx(b["update/loss"], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("shards", [2, 3, 50])
def test_the_gradient_of_shards_is_the_gradient_of_one(shards, tiny_actor_folder):
    whole, a = one_update(tiny_actor_folder, kl_loss_coef=0.1, entropy_coef=0.01)
    parts, b = one_update(tiny_actor_folder, shards=shards, kl_loss_coef=0.1, entropy_coef=0.01)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)
    assert a == pytest.approx(b, rel=1e-4, abs=1e-6)


def test_a_row_is_cut_where_its_sizes_are_even_and_neighbours_stay_together():
    assert _cut([4, 5, 6, 7], [10, 10, 10, 10], 2) == [[4, 5], [6, 7]]
    assert _cut([0, 1, 2], [30, 10, 20], 2) == [[0], [1, 2]]
    assert _cut([3], [7], 2) in ([[3]],)
    assert _cut([], [], 2) == []
    assert _cut([0, 1, 2], [1, 1, 1], 1) == [[0, 1, 2]]


def test_the_first_gradient_is_the_policy_gradient(actor):
    sequences, advantages = rollouts()
    old = score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs
    optimizer = torch.optim.SGD(actor.model.parameters(), lr=0.0)
    config = UpdateConfig(grad_clip=1e9, minibatches=1)
    values = token_values(sequences, advantages)
    update_policy(
        actor, optimizer, sequences, old, values, config, groups=ALONE, shuffle=np.random.default_rng(0)
    )
    ours = torch.cat([p.grad.flatten() for p in actor.model.parameters()])
    optimizer.zero_grad()
    total, tokens = 0.0, 0
    for sequence, value in zip(sequences, values, strict=True):
        ids = torch.from_numpy(sequence.tokens)[None]
        logp = actor.model(ids).logits.log_softmax(-1)[0]
        k = 0
        for start, end in sequence.spans:
            for position in range(start, end):
                total = total - value[k] * logp[position - 1, ids[0, position]]
                k, tokens = k + 1, tokens + 1
    (total / tokens).backward()
    plain = torch.cat([p.grad.flatten() for p in actor.model.parameters()])
    torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-5)


def test_sequences_without_signal_change_nothing_but_the_mean(tiny_actor_folder):
    actor = Actor.load(tiny_actor_folder)
    before = torch.cat([p.detach().flatten() for p in actor.model.parameters()])
    sequences, advantages = rollouts()
    old = score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs
    optimizer = torch.optim.SGD(actor.model.parameters(), lr=1.0)
    metrics = update_policy(
        actor, optimizer, sequences, old, token_values(sequences, 0 * advantages), UpdateConfig(),
        groups=ALONE, shuffle=np.random.default_rng(0),
    )  # fmt: skip
    assert torch.equal(before, torch.cat([p.detach().flatten() for p in actor.model.parameters()]))
    assert metrics["update/response_tokens"] == 24


def test_a_non_finite_gradient_is_skipped_and_counted(tiny_actor_folder):
    actor = Actor.load(tiny_actor_folder)
    before = torch.cat([p.detach().flatten() for p in actor.model.parameters()])
    sequences, advantages = rollouts()
    old = score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs
    values = token_values(sequences, advantages)
    values[3][0] = math.inf
    optimizer = torch.optim.AdamW(actor.model.parameters(), lr=1.0)
    metrics = update_policy(
        actor,
        optimizer,
        sequences,
        old,
        values,
        UpdateConfig(minibatches=1),
        groups=ALONE,
        shuffle=np.random.default_rng(0),
    )
    assert metrics["update/skipped"] == 1
    assert torch.equal(before, torch.cat([p.detach().flatten() for p in actor.model.parameters()]))


def test_features_come_with_the_log_probabilities(actor):
    sequences, _ = rollouts()
    scored = score_sequences(actor, sequences, layer=2, micro_tokens=64)
    row = 0
    for sequence in sequences:
        states = actor.model(
            torch.from_numpy(sequence.tokens)[None], output_hidden_states=True
        ).hidden_states[2][0]
        for start, _ in sequence.spans:
            np.testing.assert_allclose(
                scored.features[row], states[start - 1].detach().numpy(), rtol=1e-4, atol=1e-5
            )
            row += 1
    assert row == len(scored.features)
