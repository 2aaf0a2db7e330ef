# pyright: reportMissingImports=false
# verl lives in an environment of its own (it wants another transformers), where `make test-engines` runs
# this.
"""verl's FSDP engine, which also hands back the hidden state at each row's last prompt token.

The capture is asked for batch by batch: only a batch that carries LAYER_KEY pays for it. The reference pass
of a LoRA actor runs through the same engine with the adapter off; the trainer never sets the key there.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name, get_vendor
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from bipace.integrations.common.capture import capture, last_prompt_states

__all__ = ["FEATURE_KEY", "LAYER_KEY", "CapturingFSDPEngine"]

LAYER_KEY = "bipace_layer"
FEATURE_KEY = "bipace_features"


# A vendor's own entry is looked up before verl's entry for the device, which stays as it is.
@EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=get_device_name(), vendor=get_vendor())
class CapturingFSDPEngine(FSDPEngineWithLMHead):
    """FSDPEngineWithLMHead plus one [D] vector per row where the batch asks for it."""

    _kept: list[torch.Tensor] | None = None

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
        """One micro-batch; with LAYER_KEY in it and no gradient wanted, the hidden states are kept."""
        layer = tu.get_non_tensor_data(data=micro_batch, key=LAYER_KEY, default=None)
        if layer is None or not forward_only:
            return super().forward_step(micro_batch, loss_function, forward_only)
        with capture(self.module, layer) as kept:
            self._kept = kept
            try:
                return super().forward_step(micro_batch, loss_function, forward_only)
            finally:
                self._kept = None

    def prepare_model_outputs(
        self, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any
    ) -> Any:
        """The stock outputs, and FEATURE_KEY: a jagged [N, D], one row per row of the micro-batch."""
        outputs = super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        if self._kept is None:
            return outputs
        (states,) = self._kept
        prompt_lengths = micro_batch["prompts"].offsets().diff()
        if tu.get_non_tensor_data(data=micro_batch, key="use_remove_padding", default=True):
            packed = self._gather_and_unpad_packed(states.squeeze(0), output_args["pad_size"])
            rows = last_prompt_states(packed, prompt_lengths, micro_batch["input_ids"].offsets())
        else:
            rows = last_prompt_states(states, prompt_lengths, None)
        # verl merges micro-batches of jagged tensors only.
        outputs[FEATURE_KEY] = torch.nested.as_nested_tensor(list(rows.unbind(0)), layout=torch.jagged)
        return outputs
