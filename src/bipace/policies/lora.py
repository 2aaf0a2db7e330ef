"""Low-rank adapters through peft: a few trainable matrices beside frozen weights.

The adapter is put into the model in place, so decoding and scoring see the same model as ever. A saved
adapter is a folder with peft's two files and the tokenizer; it names the folder of the model that it belongs
to.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

__all__ = ["CONFIG", "adapter_base", "add_adapter", "load_adapter", "merge_adapter", "plain_weights"]

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def _peft() -> Any:
    try:
        return importlib.import_module("peft")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("LoRA needs peft: pip install 'bipace[lora]'") from error


@contextmanager
def _older_names() -> Iterator[None]:
    """Let peft ask for attributes by names that transformers is about to drop.

    That is between the two of them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)
        yield


def add_adapter(model: Any, *, rank: int, alpha: float, targets: tuple[str, ...], seed: int) -> Any:
    """Put a new adapter into the model, in place; everything else of it is frozen.

    W becomes W + (alpha / rank) B A with A [rank, in] drawn at random and B [out, rank] zero, so the model
    computes at first exactly what it did before. The adapter is float32 whatever the model is. Source: LoRA,
    arXiv 2106.09685.

    Args:
        model: a causal language model.
        rank: of A and B.
        alpha: see above.
        targets: names of the linear layers; ("all-linear",) is every one but the output layer.
        seed: of A.

    Returns:
        peft's model around it.

    Raises:
        ModuleNotFoundError: peft is not installed.
        ValueError: the model has no layer of such a name.
    """
    peft = _peft()
    chosen = targets[0] if targets == ("all-linear",) else list(targets)
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=chosen, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(), _older_names():
        torch.manual_seed(seed)
        try:
            return peft.get_peft_model(model, config)
        except ValueError as error:
            names = sorted(
                {n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
            )
            raise ValueError(
                f"actor.lora_targets: {list(targets)}: the model has no such layer; its linear layers are "
                f"{', '.join(names)}"
            ) from error


def adapter_base(folder: Path) -> Path:
    """The folder of the model that an adapter belongs to. Raises FileNotFoundError where it is not there."""
    base = Path(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"])
    if not base.is_dir():
        raise FileNotFoundError(
            f"the adapter in {folder} belongs to the model folder {base}, which does not exist; write its "
            f"new place into base_model_name_or_path of {folder / CONFIG}"
        )
    return base


def load_adapter(model: Any, folder: Path) -> Any:
    """Put a saved adapter into its model, in place, ready to be trained on.

    Returns peft's model around it.
    """
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"adapter folder {folder} has no weights; {WEIGHTS} is expected")
    with _older_names():
        return _peft().PeftModel.from_pretrained(model, folder, is_trainable=True, torch_device="cpu")


def merge_adapter(adapter: Any) -> Any:
    """The model with its adapter added into the weights: W + (alpha / rank) B A.

    The adapter is gone after it.
    """
    return adapter.merge_and_unload()


def plain_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values of the weights as a model without adapters has them; the model itself stays as it is.

    Where there is an adapter the value is W + (alpha / rank) B A, in W's precision. A tied weight comes under
    each of its names.
    """
    for name, weight in model.named_parameters(remove_duplicate=False):
        owner, base, leaf = name.rpartition(".base_layer.")
        if ".lora_" in name:
            continue
        value = weight.detach()
        if base and leaf == "weight":
            layer = model.get_submodule(owner)
            value = value + sum(layer.get_delta_weight(adapter).detach() for adapter in layer.active_adapters)
            value = value.to(weight.dtype)
        yield f"{owner}.{leaf}" if base else name, value
