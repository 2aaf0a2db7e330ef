"""One rank of verl's FSDP2 engine with the plug-in, without Ray: how far captured states are from a plain
forward.

Usage: engine_forward.py MODEL RANK RANKS STORE [lora]. The last line is JSON.
"""

import json
import sys

import torch
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry

from bipace.integrations.verl.engine import FEATURE_KEY, LAYER_KEY, CapturingFSDPEngine


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def batch(rows, rank, ranks, packed, layer):
    """Every rank's own part of the rows, in the layout verl's agent loop writes."""
    mine = rows[rank::ranks]
    prompts, responses = [p for p, _ in mine], [r for _, r in mine]
    sequences = [torch.cat(pair) for pair in mine]
    data = TensorDict(
        {
            "prompts": jagged(prompts),
            "responses": jagged(responses),
            "input_ids": jagged(sequences),
            "position_ids": jagged([torch.arange(len(s)) for s in sequences]),
            "response_mask": jagged([torch.ones_like(r) for r in responses]),
            "loss_mask": jagged([torch.ones_like(r) for r in responses]),
        },
        batch_size=len(mine),
    )
    settings = {
        "use_remove_padding": packed,
        "use_dynamic_bsz": False,
        "micro_batch_size_per_gpu": 2,
        "use_fused_kernels": False,
        "temperature": 1.0,
        "calculate_entropy": True,
        "compute_loss": False,
        **({LAYER_KEY: layer} if layer is not None else {}),
    }
    tu.assign_non_tensor(data, **settings)
    return data, mine


def main():
    model, rank, ranks, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    lora = "lora" in sys.argv[5:]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(0)
    lengths = [(9, 4), (30, 2), (1, 7), (17, 1), (5, 5), (24, 3), (12, 6), (2, 2)]

    def draw(n: int) -> torch.Tensor:
        return torch.randint(5, 1000, (n,), generator=generator)

    rows = [(draw(p), draw(r)) for p, r in lengths]
    found = {"ranks": ranks, "layers": plain.config.num_hidden_layers, "error": {}}
    for packed in (False, True):
        engine = EngineRegistry.new(
            model_type="language_model",
            backend="fsdp2",
            model_config=HFModelConfig(
                path=model,
                use_remove_padding=packed,
                override_config={"attn_implementation": "sdpa"},
                enable_gradient_checkpointing=False,
                lora_rank=4 if lora else 0,
                lora_alpha=8,
                target_modules="all-linear",
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                use_torch_compile=False,
                mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
            ),
            optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=1),
            checkpoint_config=CheckpointConfig(),
        )
        assert isinstance(engine, CapturingFSDPEngine)
        engine.initialize()
        for layer in range(plain.config.num_hidden_layers + 1):
            data, mine = batch(rows, rank, ranks, packed, layer)
            with engine.eval_mode(), torch.no_grad():
                states = engine.infer_batch(data, loss_function=None)["model_output"][FEATURE_KEY]
            with torch.no_grad():
                expected = torch.stack([
                    plain(input_ids=p[None], output_hidden_states=True).hidden_states[layer][0, -1] for p,
                    _ in mine
                ])  # fmt: skip
            error = (states.values().reshape(expected.shape) - expected).abs().max() / expected.abs().max()
            found["error"][f"{'packed' if packed else 'padded'}, layer {layer}"] = float(error)
        data, _ = batch(rows, rank, ranks, packed, None)
        with engine.eval_mode(), torch.no_grad():
            outputs = engine.infer_batch(data, loss_function=None)["model_output"]
        found["without_key"] = sorted(outputs)
    torch.distributed.barrier()
    print(json.dumps(found))
    torch.distributed.destroy_process_group()


main()
