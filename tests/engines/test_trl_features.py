"""The hidden states of turns are those of a plain forward, from TRL's forward or from one more, in any
padding.
"""

from __future__ import annotations

import importlib.util
import logging

import pytest

if importlib.util.find_spec("trl") is None:
    pytest.skip("TRL lives in an environment of its own: make test-engines", allow_module_level=True)

import torch
from peft import LoraConfig, get_peft_model
from trl_cpu import oracle
from trl_cpu.small import QUIET, SUITE_STEPS, StepCreditTrainer, easy, generate, make, model

pytestmark = [pytest.mark.slow, *QUIET]

OLD = {"per_device_train_batch_size": 8, "steps_per_generation": 2}
"""TRL computes old log-probabilities where a batch of completions is used in more than one optimizer step."""


class Watched(StepCreditTrainer):
    """Keeps the states it found and counts whole forwards of the policy."""

    def _states(self, batch, output):
        self.found = super()._states(batch, output)
        self.turns = [[turn.start for turn in rollout.turns] for rollout in batch.rollouts]
        return self.found


def lora(dropout):
    torch.manual_seed(5)
    config = LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, lora_dropout=dropout
    )
    return get_peft_model(model(), config)


def errors(trainer, output, layer):
    """Largest difference of a turn's state from a plain forward's, and the size of the states."""
    found, worst, size = iter(trainer.found), 0.0, 0.0
    for row, starts in enumerate(trainer.turns):
        before = oracle.prompt(output, row)
        states = oracle.plain_states(trainer.model, before + oracle.completion(output, row)[0], layer)
        for start in starts:
            wanted = states[len(before) + start - 1]
            worst = max(worst, (wanted - next(found)).abs().max().item())
            size = max(size, wanted.abs().max().item())
    assert next(found, None) is None
    return worst, size


CASES = {
    "own forward": ({}, {}, 1, False),
    "own forward, last layer": ({"layer": -1}, {}, 2, False),
    "own forward, embeddings": ({"layer": 0}, {}, 0, False),
    "TRL's forward": ({}, OLD, 1, True),
    "TRL's forward, last layer": ({"layer": 2}, OLD, 2, True),
    "TRL's forward, padded": ({}, {**OLD, "pad_to_multiple_of": 64}, 1, True),
    "own forward, padded": ({}, {"pad_to_multiple_of": 64, "per_device_train_batch_size": 4}, 1, False),
    "a KL term alone": ({}, {"beta": 0.1}, 1, False),
    "a KL term and TRL's forward": ({}, {**OLD, "beta": 0.1}, 1, True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_states_equal_a_plain_forward(tmp_path, case, caplog):
    features, options, layer, reused = case
    trainer = make(
        Watched, tmp_path, suite=easy(), recipe="bipace", features=features, steps=SUITE_STEPS, **options
    )
    with caplog.at_level(logging.WARNING):
        output = generate(trainer)
    assert ("old_per_token_logps" in output) is reused
    assert ("one more is made" in caplog.text) is not reused
    worst, size = errors(trainer, output, layer)
    assert worst < 1e-5 * max(size, 1.0)
    assert size > 0.1
    assert sum(map(len, trainer.turns)) > 20


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(
    "options", [{"beta": 0.1}, {**OLD, "beta": 0.1}], ids=["reference alone", "old and reference"]
)
def test_a_lora_actors_states_are_the_policys_and_not_the_references(tmp_path, dropout, options):
    trainer = make(
        Watched, tmp_path, suite=easy(), actor=lora(dropout), recipe="bipace", steps=SUITE_STEPS, **options
    )
    output = generate(trainer)
    assert "ref_per_token_logps" in output
    assert errors(trainer, output, 1)[0] < 1e-5
    with trainer.model.disable_adapter():
        assert errors(trainer, output, 1)[0] > 1e-2


def test_truncated_completions_that_trl_masks_keep_their_own_states(tmp_path):
    options = {**OLD, "mask_truncated_completions": True, "max_completion_length": 50}
    trainer = make(Watched, tmp_path, suite=easy(), recipe="bipace", steps=SUITE_STEPS, **options)
    lengths = {}
    read = trainer._generate

    def kept(prompts):
        lengths["tokens"] = (found := read(prompts))[1]
        return found

    trainer._generate = kept
    output = generate(trainer)
    assert (output["completion_mask"].sum(1) == 0).any()
    found = iter(trainer.found)
    for row, starts in enumerate(trainer.turns):
        before = oracle.prompt(output, row)
        states = oracle.plain_states(trainer.model, before + lengths["tokens"][row], 1)
        for start in starts:
            assert torch.allclose(next(found), states[len(before) + start - 1], atol=1e-5)


def test_a_forward_that_stopped_early_leaves_the_model_as_it_was(tmp_path):
    trainer = make(Watched, tmp_path, suite=easy(), recipe="bipace", features={"layer": 1}, steps=SUITE_STEPS)
    ids = torch.tensor([[5, 6, 7, 8]])
    before = trainer.model(input_ids=ids).logits
    generate(trainer)
    after = trainer.model(input_ids=ids).logits
    assert torch.equal(before, after)
    assert trainer.model.training
    assert not any(m._forward_pre_hooks for m in trainer.model.modules())
