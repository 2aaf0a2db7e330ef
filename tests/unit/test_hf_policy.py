import numpy as np
import pytest
import torch

from bipace.policies import cached_forward, prefill_attention, scoring_forward, token_batch
from bipace.policies.hf import Actor
from bipace.policies.naive import NaiveSession
from bipace.policies.scoring import score
from bipace.policies.scoring_forward import plain_states, states_at
from bipace.policies.token_batch import SLOTS

PROMPT_LENGTHS = (5, 40, 1, 17)


@pytest.fixture(autouse=True, params=["split", "joined", "transformers"])
def way(request, monkeypatch):
    """Prompt and row attended to apart (a CPU), joined (elsewhere), or transformers' own forward."""
    monkeypatch.setattr(prefill_attention, "can_split", lambda _: request.param != "joined")
    if request.param == "transformers":
        monkeypatch.setattr(cached_forward, "has_plain_blocks", lambda _: False)


@pytest.fixture(scope="module", params=["tiny_actor_folder", "tiny_llama_folder"])
def actor(request):
    return Actor.load(request.getfixturevalue(request.param))


def prompts(lengths=PROMPT_LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, n).tolist() for n in lengths]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def greedy(actor, prefix, n):
    ids = torch.tensor([prefix])
    out = actor.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n,
        eos_token_id=list(actor.end_token_ids),
    )  # fmt: skip
    return out[0, len(prefix) :].tolist()


def rollout(actor, turns=3, temperature=1.0, copies=2, n=7):
    session = actor.session(prompts(), copies, capacity=160)
    sequences = [list(p) for p in prompts() for _ in range(copies)]
    spans, logprobs = [[] for _ in sequences], [[] for _ in sequences]
    rng = np.random.default_rng(1)
    for turn in range(turns):
        rows = [i for i in range(len(sequences)) if turn == 0 or (i + turn) % 3]
        for row, r in zip(
            rows, session.generate(rows, max_new_tokens=n, temperature=temperature,
            generator=generator(turn)),
            strict=True,
        ):  # fmt: skip
            spans[row].append((len(sequences[row]), len(sequences[row]) + len(r.tokens)))
            sequences[row] += r.tokens.tolist()
            logprobs[row] += r.logprobs.tolist()
        replies = [rng.integers(0, 256, 1 + row % 5).tolist() for row in rows]
        session.extend(rows, replies)
        for row, reply in zip(rows, replies, strict=True):
            sequences[row] += reply
        assert session.lengths.tolist() == [len(s) for s in sequences]
    return [np.array(s) for s in sequences], spans, np.concatenate(logprobs)


def test_greedy_turns_equal_generate_on_the_whole_prefix(actor):
    sequences, spans, _ = rollout(actor, temperature=0.0, copies=1)
    for sequence, of_row in zip(sequences, spans, strict=True):
        for start, end in of_row:
            assert sequence[start:end].tolist() == greedy(actor, sequence[:start].tolist(), 7)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_session_draws_what_the_naive_reference_draws(actor, temperature):
    """The same tokens, log-probabilities and states, turn by turn, with rows that rest and rows that end
    early.
    """
    settings = {"copies": 2, "layer": 2}
    fast = actor.session(prompts(), capacity=160, **settings)
    naive = NaiveSession(actor, prompts(), **settings)
    streams = generator(3), generator(3)
    for turn in range(4):
        rows = [row for row in reversed(range(8)) if turn == 0 or (row + turn) % 3]
        request = {"max_new_tokens": 9, "temperature": temperature}
        found = fast.generate(rows, **request, generator=streams[0])
        expected = naive.generate(rows, **request, generator=streams[1])
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.tokens.tolist() == theirs.tokens.tolist()
            assert ours.finished == theirs.finished
            np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
            np.testing.assert_allclose(ours.state, theirs.state, atol=1e-4, rtol=1e-4)
        replies = [list(range(1, 2 + 5 * (row % 3))) for row in rows]
        fast.extend(rows, replies)
        naive.extend(rows, replies)
        assert fast.lengths.tolist() == naive.lengths.tolist()


def test_forwards_cut_small_change_nothing(actor, monkeypatch):
    """Prompts read in pieces, and replies of a turn in several forwards."""
    monkeypatch.setattr(cached_forward, "PREFILL_CHUNK", 7)
    monkeypatch.setattr(token_batch, "PREFILL_TOKENS", 10)
    forwards, real = [], cached_forward.CachedForward._run

    def run(self, batch, *arguments):
        forwards.append(len(batch.ids))
        return real(self, batch, *arguments)

    monkeypatch.setattr(cached_forward.CachedForward, "_run", run)
    sequences, spans, _ = rollout(actor, temperature=0.0, copies=1)
    assert max(forwards) <= 10
    for sequence, of_row in zip(sequences, spans, strict=True):
        for start, end in of_row:
            assert sequence[start:end].tolist() == greedy(actor, sequence[:start].tolist(), 7)


def test_sampled_logprobs_equal_scores(actor):
    sequences, spans, logprobs = rollout(actor)
    with torch.no_grad():
        scores = score(actor, sequences, spans, layer=None)
    assert scores.features is None
    assert scores.entropy is None
    np.testing.assert_allclose(logprobs, scores.logprobs.numpy(), atol=1e-5)


def test_features_equal_hidden_states_of_a_plain_forward(actor):
    sequences, spans, _ = rollout(actor)
    for layer in range(actor.n_layers + 1):
        with torch.no_grad():
            features = score(actor, sequences, spans, layer=layer).features
            plain = [
                actor.model(torch.tensor(s)[None], output_hidden_states=True).hidden_states[layer][
                    0, start - 1
                ]
                for s, of_row in zip(sequences, spans, strict=True)
                for start, _ in of_row
            ]
        torch.testing.assert_close(features, torch.stack(plain), atol=1e-5, rtol=1e-5)


def test_feature_does_not_depend_on_padding_or_side(actor):
    short, long = (np.array(p) for p in prompts((6, 60)))
    with torch.no_grad():
        alone = score(actor, [short], [[(5, 6)]], layer=2).features
        batch = score(actor, [long, short], [[(1, 2)], [(5, 6)]], layer=2).features
        ids = torch.tensor(np.concatenate([np.zeros(9, dtype=np.int64), short]))[None]
        left = actor.model(
            ids, attention_mask=(torch.arange(15) >= 9)[None].long(),
            position_ids=(torch.arange(15) - 9).clamp(min=0)[None], output_hidden_states=True,
        ).hidden_states[2][0, 13]  # fmt: skip
    torch.testing.assert_close(alone[0], batch[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alone[0], left, atol=1e-5, rtol=1e-5)


def test_scores_with_gradients_equal_those_without(actor):
    sequences, spans, _ = rollout(actor, turns=2)
    graph = score(actor, sequences, spans, layer=1, with_entropy=True)
    with torch.no_grad():
        plain = score(actor, sequences, spans, layer=1, with_entropy=True)
    torch.testing.assert_close(graph.logprobs.detach(), plain.logprobs)
    torch.testing.assert_close(graph.entropy.detach(), plain.entropy)
    assert not graph.features.requires_grad
    graph.logprobs.sum().backward()
    assert all(p.grad is not None for p in actor.model.parameters())
    actor.model.zero_grad(set_to_none=True)


def test_end_token_ends_a_response_and_is_kept(actor):
    end = actor.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert actor.end_token_ids == (end,)
    session = actor.session(prompts(), 16, capacity=300)
    rows = list(range(64))
    responses = session.generate(rows, max_new_tokens=200, temperature=8.0, generator=generator())
    assert any(r.finished for r in responses)
    for r in responses:
        assert r.finished == (r.tokens[-1] == end)
        assert end not in r.tokens[:-1]
        assert r.finished or len(r.tokens) == 200


def test_prompt_with_end_and_pad_tokens_is_only_context(actor):
    end, pad = actor.tokenizer.eos_token_id, actor.tokenizer.pad_token_id
    prompt = [1, end, pad, 2, end]
    (r,) = actor.session([prompt], capacity=30).generate(
        [0], max_new_tokens=6, temperature=0.0, generator=generator()
    )
    assert r.tokens.tolist() == greedy(actor, prompt, 6)


def test_same_seed_gives_the_same_rollout(actor):
    for a, b in zip(rollout(actor)[0], rollout(actor)[0], strict=True):
        assert a.tolist() == b.tolist()


def test_capacity_is_checked_with_row_and_lengths(actor):
    session = actor.session([[1, 2, 3]], 2, capacity=10)
    with pytest.raises(ValueError, match="row 1 holds 3 tokens and cannot take 8 more: the capacity is 10"):
        session.extend([1], [[0] * 8])
    with pytest.raises(ValueError, match="row 0 holds 3"):
        session.generate([0], max_new_tokens=8, temperature=0, generator=generator())
    assert len(session.generate([0], max_new_tokens=7, temperature=0, generator=generator())[0].tokens) <= 7


def test_layer_index(actor):
    assert [actor.layer_index(x) for x in (0, 3, -1, -4, 0.5, 0.9)] == [0, 3, 3, 0, 2, 3]
    for wrong in (4, -5, 1.0, 1.5, True):
        with pytest.raises(ValueError, match=r"layer is .* from -4 to 3"):
            actor.layer_index(wrong)


def test_states_kept_while_sampling_equal_those_of_a_plain_forward(actor):
    """Every layer, the one after the last norm included, for rows of one turn and of a later one."""
    for layer in range(actor.n_layers + 1):
        session = actor.session(prompts(), 2, capacity=160, layer=layer)
        sequences = [list(p) for p in prompts() for _ in range(2)]
        for turn in range(2):
            for row, response in enumerate(
                session.generate(
                    range(len(sequences)), max_new_tokens=5, temperature=1.0, generator=generator(turn)
                )
            ):
                with torch.no_grad():
                    plain = actor.model(input_ids=torch.tensor([sequences[row]]), output_hidden_states=True)
                expected = plain.hidden_states[layer][0, -1].numpy()
                assert np.linalg.norm(response.state - expected) < 1e-5 * np.linalg.norm(expected)
                sequences[row] += response.tokens.tolist()
            replies = [list(range(1, 2 + 9 * (row % 3))) for row in range(len(sequences))]
            session.extend(range(len(sequences)), replies)
            sequences = [s + reply for s, reply in zip(sequences, replies, strict=True)]


def test_sampled_logprobs_are_those_of_the_tempered_distribution(actor):
    sequences, spans, logprobs = rollout(actor, temperature=0.6)
    with torch.no_grad():
        scores = score(actor, sequences, spans, layer=None, temperature=0.6)
    # Each side rounds by 1e-5 in this model with its large weights, and a temperature below 1 stretches that.
    np.testing.assert_allclose(logprobs, scores.logprobs.numpy(), atol=4e-5)


def test_caches_grow_and_prompts_of_one_token_need_none(actor):
    session = actor.session([[7], [7], [9]], 2, capacity=2 * SLOTS)
    sequences = [[7]] * 4 + [[9]] * 2
    for turn, rows in enumerate(([0, 3, 5], [0, 1, 2, 3, 4, 5], [4])):
        reply = list(range(1, SLOTS // 2)) if turn else []
        session.extend(rows, [reply] * len(rows))
        responses = session.generate(rows, max_new_tokens=3, temperature=0.0, generator=generator())
        for row, response in zip(rows, responses, strict=True):
            prefix = sequences[row] + reply
            assert response.tokens.tolist() == greedy(actor, prefix, 3)
            sequences[row] = prefix + response.tokens.tolist()
    assert max(map(len, sequences)) > SLOTS


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("layer", [None, 0, 1])
def test_states_at_positions_equal_a_plain_forward_and_its_gradient(
    actor, layer, shared, pieces, monkeypatch
):
    """Ragged sequences, with two prompts that five of them share or with none in common; tails whole or in
    pieces.
    """
    if pieces:
        monkeypatch.setattr(scoring_forward, "LONG_TAIL", 6)
        monkeypatch.setattr(scoring_forward, "PIECE", 5)
    rng = np.random.default_rng(0)
    heads = [rng.integers(0, 200, n) for n in (9, 4)]
    order = [0, 1, 0, 0, 1] if shared else []
    sequences = [
        np.concatenate([heads[h], rng.integers(0, 200, n)])
        for h, n in zip(order, (3, 8, 1, 20, 5)[: len(order)], strict=True)
    ]
    sequences += [rng.integers(0, 200, n) for n in (37, 12, 2)]
    spans = [((len(heads[h]), len(s)),) for h, s in zip(order, sequences, strict=False)] + [
        ((1, 2), (30, 37)),
        ((11, 12),),
        ((1, 2),),
    ]
    rows = torch.tensor([i for i, of in enumerate(spans) for start, end in of for _ in range(start, end)])
    positions = torch.tensor([p - 1 for of in spans for start, end in of for p in range(start, end)])
    actor.model.zero_grad()
    found, below = states_at(actor, sequences, spans, rows, positions, layer)
    found.square().sum().backward()
    gradients = {n: p.grad.clone() for n, p in actor.model.named_parameters() if p.grad is not None}
    actor.model.zero_grad()
    plain, plain_below = plain_states(actor.body, sequences, rows, positions, layer)
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)
    assert (below is None) == (plain_below is None) == (layer is None)
    if layer is not None:
        torch.testing.assert_close(below, plain_below, atol=1e-5, rtol=1e-5)
    plain.square().sum().backward()
    assert gradients
    for name, parameter in actor.model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-4, rtol=1e-4)
    actor.model.zero_grad()
