"""The policy: a language model that is loaded, trained, adapted, saved, and plays episodes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as transformers_logging

from bipace.policies import lora
from bipace.policies.language_model import LanguageModel
from bipace.policies.session import DecodeSession

__all__ = ["Actor"]

# Our own progress bars would be torn by bars for loading a file of half a megabyte.
transformers_logging.disable_progress_bar()

WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


class Actor(LanguageModel):
    """A local Hugging Face folder as a policy (a Decoder of bipace.rollout.collect).

    Args:
        model: a transformers causal language model with full attention in every layer.
        tokenizer: its fast tokenizer, with a chat template.
        adapter: peft's model around it, where low-rank matrices are trained instead of the weights.
    """

    def __init__(self, model: Any, tokenizer: Any, adapter: Any = None) -> None:
        super().__init__(model, tokenizer)
        self.adapter = adapter

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Actor:
        """Load a local folder; nothing is downloaded and no code in the folder is run.

        A folder that holds a LoRA adapter is loaded together with the model it names.

        Raises:
            FileNotFoundError: the folder, config.json, the safetensors weights or the tokenizer is missing.
            ModuleNotFoundError: an adapter, and peft is not installed.
            ValueError: the tokenizer has no chat template, or the model's attention is not supported.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"model folder {folder} does not exist; give a local Hugging Face folder")
        if (folder / lora.CONFIG).is_file():
            actor = cls.load(lora.adapter_base(folder), device="cpu", dtype=dtype)
            adapter = lora.load_adapter(actor.model, folder)
            return cls(actor.model.to(device), actor.tokenizer, adapter)
        _require_files(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not tokenizer.chat_template:
            raise ValueError(
                f"the tokenizer in {folder} has no chat template; chat_template.jinja, or chat_template in "
                "tokenizer_config.json, is expected"
            )
        # The resolved path is what an adapter remembers of its model.
        return cls(_load_whole(folder.resolve(), dtype).to(device), tokenizer)

    def add_lora(self, *, rank: int, alpha: float, targets: tuple[str, ...], seed: int) -> None:
        """Freeze the weights and train low-rank matrices beside them (bipace.policies.lora.add_adapter)."""
        if self.adapter is not None:
            raise ValueError(
                "the model has an adapter already; make it a whole model first: bipace models merge"
            )
        self.adapter = lora.add_adapter(self.model, rank=rank, alpha=alpha, targets=targets, seed=seed)
        self.model.eval()

    def merge(self) -> None:
        """Add the adapter into the weights; without one nothing changes."""
        if self.adapter is not None:
            self.model, self.adapter = lora.merge_adapter(self.adapter), None

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        """The frozen model alone: what the policy was before training. Without an adapter nothing changes."""
        if self.adapter is None:
            yield
            return
        with self.adapter.disable_adapter():
            yield

    @contextmanager
    def checkpointing(self, enabled: bool) -> Iterator[None]:
        """Forwards inside keep each block's input alone and compute the rest again on the way back.

        Memory for time.

        Only the blocks themselves are put into training mode, so no dropout wakes up and the numbers stay the
        same.
        """
        blocks: list[Any] = [
            m for m in self.model.modules() if enabled and isinstance(m, GradientCheckpointingLayer)
        ]
        for block in blocks:
            block.gradient_checkpointing, block.training = True, True
            block._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        try:
            yield
        finally:
            for block in blocks:
                block.gradient_checkpointing, block.training = False, False

    def save(self, folder: str | Path) -> None:
        """Write config, safetensors weights, tokenizer and chat template; a reader never sees half a folder.

        With an adapter, the adapter and the tokenizer alone.
        """
        folder = Path(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        new, old = work / "new", work / "old"
        try:
            if self.adapter is None:
                self.model.save_pretrained(new)
            else:
                self.adapter.save_pretrained(new, save_embedding_layers=False)
            self.tokenizer.save_pretrained(new)
            # A folder cannot be renamed over one that has files.
            if folder.exists():
                folder.replace(old)
            new.replace(folder)
        finally:
            if old.exists() and not folder.exists():
                old.replace(folder)
            shutil.rmtree(work, ignore_errors=True)

    def session(
        self, prompts: Sequence[Sequence[int]], copies: int = 1, *, capacity: int, layer: int | None = None
    ) -> DecodeSession:
        """Open a decoding session: each different prompt is computed once and fanned out to `copies` rows."""
        return DecodeSession(self, prompts, copies=copies, capacity=capacity, layer=layer)

    def sync(self) -> None:
        """Nothing to hand over: sessions read the weights that are trained."""


def _load_whole(folder: Path, dtype: torch.dtype) -> Any:
    """The model, with every weight from its files.

    Transformers would draw a missing one, and say so in a table.
    """
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=dtype, use_safetensors=True, output_loading_info=True
        )
    finally:
        transformers_logging.set_verbosity(verbosity)
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise ValueError(
            f"{folder}: {len(missing)} weights are missing from its safetensors, the first is {missing[0]}; "
            "take a whole copy"
        )
    return model


def _require_files(folder: Path) -> None:
    """Raises FileNotFoundError where the configuration, the weights or the tokenizer is missing."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"model folder {folder} has no config.json; it is not a Hugging Face model folder"
        )
    if not any(path for pattern in WEIGHTS for path in folder.glob(pattern)):
        raise FileNotFoundError(f"model folder {folder} has no weights; model.safetensors is expected")
    for name in TOKENIZER:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"model folder {folder} has no tokenizer: {name} is missing")
