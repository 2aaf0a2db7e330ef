"""A causal language model with its tokenizer: what decoding and scoring read of it.

A leaf: nothing here knows of sessions, caches or losses, and all of them may import it.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["LanguageModel"]


class LanguageModel:
    """A transformers causal language model and its tokenizer, in evaluation mode.

    Args:
        model: a transformers causal language model with full attention in every layer.
        tokenizer: its fast tokenizer, with a chat template.

    Raises:
        ValueError: a layer of another kind of attention.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ValueError(
                f"the model has layers of type {sorted(kinds)}; only full_attention can be decoded here"
            )
        self.model, self.tokenizer = model.eval(), tokenizer

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return self.model.dtype

    @property
    def body(self) -> Any:
        """The model without its output layer: embedding, blocks, final norm."""
        return self.model.base_model

    @property
    def n_layers(self) -> int:
        """Number of transformer blocks; hidden states are indexed 0..n_layers."""
        return int(self.model.config.num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        """Size D of a hidden state."""
        return int(self.model.config.hidden_size)

    @property
    def end_token_ids(self) -> tuple[int, ...]:
        """Ids that end a response: the generation config's, the tokenizer's, ChatML's <|im_end|> if any."""
        configured = self.model.generation_config.eos_token_id
        ids = set(configured if isinstance(configured, list) else [configured])
        ids |= {self.tokenizer.eos_token_id, self.tokenizer.get_vocab().get("<|im_end|>")}
        return tuple(sorted(int(i) for i in ids if i is not None))

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Float32 logits [n, vocabulary] of states [n, D] after the final norm."""
        return self.model.get_output_embeddings()(states).float()

    def layer_index(self, layer: int | float) -> int:
        """Index into hidden_states[0..n_layers].

        An int counts from the front, or from the back where negative (-1 is n_layers); a float strictly
        between 0 and 1 is a fraction f of the depth, round(f * n_layers). Raises ValueError on anything else.
        """
        n = self.n_layers
        if isinstance(layer, float) and 0 < layer < 1:
            return round(layer * n)
        if isinstance(layer, int) and not isinstance(layer, bool) and -n - 1 <= layer <= n:
            return layer % (n + 1)
        raise ValueError(
            f"layer is {layer!r}; it must be a whole number from {-n - 1} to {n} or a fraction between 0 "
            "and 1"
        )
