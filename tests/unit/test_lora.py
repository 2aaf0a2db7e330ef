"""Adapters, checkpointing and bfloat16 on a tiny random model: what must not change does not, what must,
does.
"""

import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies.hf import Actor
from bipace.policies.lora import plain_weights
from bipace.rollout.records import TokenSequence
from bipace.train.actors import load_actor, reference_actor
from bipace.train.config import ConfigError, UpdateConfig, load_config
from bipace.train.scored import score_sequences
from bipace.train.update import token_values, update_policy


@pytest.fixture(params=["tiny_actor_folder", "tiny_llama_folder"])
def folder(request):
    return request.getfixturevalue(request.param)


def configured(folder, *overrides):
    return load_config(overrides=[f"actor.folder={folder}", *overrides])


def with_lora(folder, *overrides):
    pytest.importorskip("peft", reason="needs bipace[lora]")
    return load_actor(configured(folder, "actor.lora_rank=4", "actor.lora_alpha=8", *overrides))


def rollouts(n=6):
    rng = np.random.default_rng(0)
    sequences = []
    for _ in range(n):
        length = int(rng.integers(8, 40))
        sequences.append(
            TokenSequence(rng.integers(0, 250, length), ((length - 4, length - 2), (length - 1, length)))
        )
    return sequences, rng.normal(size=2 * n)


def logprobs(actor, sequences):
    return torch.cat(score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs)


def update(actor, *, checkpointing=False, reference=None):
    sequences, values = rollouts()
    old = score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs
    optimizer = torch.optim.AdamW(actor.model.parameters(), lr=1e-2, fused=True)
    config = UpdateConfig(minibatches=2, kl_loss_coef=0.0 if reference is None else 0.1)
    with actor.checkpointing(checkpointing):
        metrics = update_policy(
            actor, optimizer, sequences, old, token_values(sequences, values), config,
            groups=[str(i) for i in range(len(sequences))], shuffle=np.random.default_rng(0),
            reference=reference,
        )  # fmt: skip
    return metrics, optimizer


def test_a_fresh_adapter_changes_nothing_and_an_update_moves_it_alone(folder):
    actor, plain = with_lora(folder), Actor.load(folder)
    sequences, _ = rollouts()
    before = logprobs(actor, sequences)
    torch.testing.assert_close(before, logprobs(plain, sequences), rtol=0, atol=1e-6)
    _, optimizer = update(actor)
    assert (logprobs(actor, sequences) - before).abs().max() > 1e-3
    frozen = {n: p for n, p in actor.model.named_parameters() if "lora_" not in n}
    own = dict(plain.model.named_parameters())
    assert all(torch.equal(p, own[n.replace(".base_layer", "")]) for n, p in frozen.items())
    trained = [p for p in actor.model.parameters() if p.requires_grad]
    assert len(optimizer.state) == len(trained) == 3 * 7 * 2


def test_the_reference_is_the_actor_with_its_adapter_off(folder):
    config = configured(folder, "actor.lora_rank=4", "update.kl_loss_coef=0.1")
    assert reference_actor(config) is None
    actor, (sequences, _) = with_lora(folder), rollouts()
    start = logprobs(actor, sequences)
    with actor.without_adapter():
        reference = score_sequences(actor, sequences, layer=None, micro_tokens=512).logprobs
    metrics, _ = update(actor, reference=reference)
    assert metrics["update/kl_reference"] > 0
    moved = logprobs(actor, sequences)
    with actor.without_adapter():
        torch.testing.assert_close(logprobs(actor, sequences), start, rtol=0, atol=1e-6)
    assert torch.equal(logprobs(actor, sequences), moved)


def test_greedy_decoding_with_an_adapter_equals_generate(folder):
    actor = with_lora(folder)
    update(actor)
    prompts = [[5, 9, 40, 3], [7], list(range(30))]
    responses = actor.session(prompts, capacity=60).generate(
        range(3), max_new_tokens=8, temperature=0.0, generator=torch.Generator()
    )
    for prompt, response in zip(prompts, responses, strict=True):
        ids = torch.tensor([prompt])
        whole = actor.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8,
            eos_token_id=list(actor.end_token_ids),
        )  # fmt: skip
        assert response.tokens.tolist() == whole[0, len(prompt) :].tolist()


def test_a_saved_adapter_comes_back_to_the_bit_and_merges(folder, tmp_path):
    actor, (sequences, _) = with_lora(folder), rollouts()
    update(actor)
    actor.save(tmp_path / "actor")
    names = {path.name for path in (tmp_path / "actor").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert not any(name.startswith("model") or name.endswith((".bin", ".pt", ".pth")) for name in names)
    again = load_actor(configured(folder, "actor.lora_rank=4", "actor.lora_alpha=8"), tmp_path)
    assert torch.equal(logprobs(again, sequences), logprobs(actor, sequences))
    assert sum(p.requires_grad for p in again.model.parameters()) == 42
    again.merge()
    again.save(tmp_path / "whole")
    whole = Actor.load(tmp_path / "whole")
    assert whole.adapter is None
    torch.testing.assert_close(logprobs(whole, sequences), logprobs(actor, sequences), rtol=0, atol=1e-4)


def test_the_plain_weights_are_those_of_the_merged_model(folder):
    actor, (sequences, _) = with_lora(folder), rollouts()
    update(actor)
    before = logprobs(actor, sequences)
    plain = dict(plain_weights(actor.model))
    assert torch.equal(logprobs(actor, sequences), before)
    actor.merge()
    merged = dict(plain_weights(actor.model))
    assert list(plain) == list(merged)
    assert list(merged) == [n for n, _ in Actor.load(folder).model.named_parameters(remove_duplicate=False)]
    for name, weight in merged.items():
        torch.testing.assert_close(plain[name], weight, rtol=0, atol=1e-6)
        assert torch.equal(weight, actor.model.get_parameter(name))
    assert torch.equal(plain["lm_head.weight"], plain["model.embed_tokens.weight"])  # tied


def test_an_adapter_is_no_start_for_a_new_run_and_needs_its_model(tiny_actor_folder, tmp_path):
    with_lora(tiny_actor_folder).save(tmp_path / "actor")
    with pytest.raises(ConfigError, match=r"is a LoRA adapter.*bipace models merge"):
        load_actor(configured(tmp_path / "actor"))
    config = tmp_path / "actor" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": "gone"}))
    with pytest.raises(FileNotFoundError, match="belongs to the model folder gone, which does not exist"):
        Actor.load(tmp_path / "actor")


def test_the_same_seed_draws_the_same_adapter_and_leaves_other_streams_alone(tiny_actor_folder):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    a, b = with_lora(tiny_actor_folder), with_lora(tiny_actor_folder)
    assert torch.equal(torch.rand(3), expected)
    c = with_lora(tiny_actor_folder, "run.seed=1")
    x, y, z = (next(p for n, p in actor.model.named_parameters() if "lora_A" in n) for actor in (a, b, c))
    assert torch.equal(x, y)
    assert not torch.equal(x, z)


def test_unknown_targets_name_the_layers_there_are(tiny_actor_folder):
    with pytest.raises(ValueError, match=r"lora_targets: \['query'\].*q_proj"):
        with_lora(tiny_actor_folder, 'actor.lora_targets=["query"]')
    some = with_lora(tiny_actor_folder, 'actor.lora_targets=["q_proj", "v_proj"]')
    assert sum(p.requires_grad for p in some.model.parameters()) == 3 * 2 * 2


def test_without_peft_the_extra_is_named(tiny_actor_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)  # what an import finds where the package is absent
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bipace\[lora\]'"):
        load_actor(configured(tiny_actor_folder, "actor.lora_rank=4"))


def test_gradient_checkpointing_changes_no_number_and_keeps_less(folder):
    plain, thrifty = Actor.load(folder), Actor.load(folder)
    for actor, enabled in ((plain, False), (thrifty, True)):
        update(actor, checkpointing=enabled)
    for a, b in zip(plain.model.parameters(), thrifty.model.parameters(), strict=True):
        assert torch.equal(a, b)
    kept = {enabled: saved_bytes(plain, enabled) for enabled in (False, True)}
    assert kept[True] < 0.5 * kept[False]
    assert not any(module.training for module in thrifty.model.modules())


def saved_bytes(actor, enabled):
    """Bytes that one forward keeps for its backward."""
    total = 0

    def pack(tensor):
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    with actor.checkpointing(enabled), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        actor.model.base_model(input_ids=torch.arange(200)[None], use_cache=False)
    return total


def test_bfloat16_weights_train_with_lora_only(folder):
    with pytest.raises(ConfigError, match="bfloat16 without LoRA"):
        load_actor(configured(folder, "actor.dtype=bfloat16"))
    actor = with_lora(folder, "actor.dtype=bfloat16")
    kinds = {p.requires_grad: p.dtype for p in actor.model.parameters()}
    assert kinds == {False: torch.bfloat16, True: torch.float32}
    sequences, _ = rollouts()
    before = logprobs(actor, sequences)
    assert (before - logprobs(Actor.load(folder), sequences)).abs().mean() < 0.2
    metrics, _ = update(actor, checkpointing=True)
    assert np.isfinite(metrics["update/loss"])
    assert (logprobs(actor, sequences) - before).abs().max() > 1e-3
    session = actor.session([[5, 9, 40, 3]], 2, capacity=40)
    for found in session.generate([0, 1], max_new_tokens=6, temperature=1.0, generator=torch.Generator()):
        assert np.isfinite(found.logprobs).all()


def test_mini_batches_by_rows():
    assert UpdateConfig(minibatch_rows=256).parts(1000) == 4
    assert UpdateConfig(minibatch_rows=256).parts(1025) == 5
    assert UpdateConfig(minibatches=3).parts(1000) == 3
