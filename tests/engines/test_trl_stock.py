"""`recipe="grpo"` is stock GRPO: the same losses, gradients and weights, whatever TRL is asked to do around
it.
"""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("trl") is None:
    pytest.skip("TRL lives in an environment of its own: make test-engines", allow_module_level=True)

import torch
from peft import LoraConfig
from trl_cpu.small import QUIET, SUITE_STEPS, GRPOTrainer, StepCreditTrainer, easy, make, weights

pytestmark = [pytest.mark.slow, *QUIET]

LORA = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
SHAPES = {
    "one batch a step": {},
    "rewards by step": {"steps": {"reward": "step_reward", "done": "done", "state": "state"}},
    "gradient accumulation": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    "two updates of two batches": {
        "per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": 2,
        "num_iterations": 2, "max_steps": 6,
    },
    "KL to the start": {"beta": 0.1},
    "LoRA with KL": {"peft_config": LORA, "beta": 0.1, "learning_rate": 1e-3},
    "LoRA, old log-probabilities": {
        "peft_config": LORA, "per_device_train_batch_size": 4, "steps_per_generation": 2,
        "gradient_accumulation_steps": 1, "learning_rate": 1e-3,
    },
    "undivided": {"recipe": "dr_grpo", "scale_rewards": "none", "loss_type": "dr_grpo"},
    "truncated completions masked": {"mask_truncated_completions": True, "max_completion_length": 50},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "luspo by token": {"loss_type": "luspo"},
    "high entropy tokens, entropy bonus": {"top_entropy_quantile": 0.5, "entropy_coef": 0.01},
}  # fmt: skip


def trained(kind, folder, **options):
    trainer = make(kind, folder, suite=easy(), tasks=2, **{"max_steps": 3, **options})
    before = weights(trainer)
    trainer.train(resume_from_checkpoint=options.get("resume"))
    steps = [h for h in trainer.state.log_history if "loss" in h]
    return trainer, before, [float(h["loss"]) for h in steps], [float(h["grad_norm"]) for h in steps]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_grpo_gives_stock_trls_losses_and_weights(tmp_path, shape):
    shape = {"recipe": "grpo", **shape}
    stock, before, losses, norms = trained(GRPOTrainer, tmp_path / "stock", **shape)
    ours, same, own_losses, own_norms = trained(StepCreditTrainer, tmp_path / "ours", **shape)
    assert torch.equal(before, same)
    assert own_losses == pytest.approx(losses, abs=1e-6)
    assert own_norms == pytest.approx(norms, rel=1e-4, abs=1e-7)
    moved = (weights(stock) - before).abs().max().item()
    assert moved > 1e-4
    assert (weights(ours) - weights(stock)).abs().max().item() < 1e-2 * moved
    for metric in ("reward", "reward_std", "entropy", "completions/mean_length", "frac_reward_zero_std"):
        told = [[h[metric] for h in t.state.log_history if metric in h] for t in (stock, ours)]
        assert told[0] == pytest.approx(told[1], abs=1e-5)


def test_a_run_that_goes_on_from_a_checkpoint_ends_where_the_whole_run_does(tmp_path):
    options = {
        "recipe": "bipace",
        "steps": SUITE_STEPS,
        "save_strategy": "steps",
        "save_steps": 2,
        "max_steps": 4,
    }
    whole, before, _, _ = trained(StepCreditTrainer, tmp_path / "run", **options)
    again = make(StepCreditTrainer, tmp_path / "run", suite=easy(), tasks=2, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert (weights(whole) - before).abs().max() > 1e-4
    assert torch.allclose(weights(again), weights(whole), atol=1e-7)
