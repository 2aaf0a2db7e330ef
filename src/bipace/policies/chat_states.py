"""What a model makes of a conversation it did not write: hidden states before every assistant message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.language_model import LanguageModel

__all__ = ["read_chat"]


def read_chat(
    language_model: LanguageModel, messages: Sequence[Mapping[str, str]], layers: Sequence[int]
) -> NDArray[np.float32]:
    """Hidden states at the last prompt token before each assistant message, in one pass where possible.

    The conversation is rendered by the model's own chat template and tokenizer. It is cut at the left where
    it is longer than the model's window.

    Args:
        language_model: the model that reads.
        messages: role and content of each message, in order.
        layers: L indices into hidden_states[0..n_layers].

    Returns:
        [assistant messages, L, D]; none: [0, L, D].
    """
    limit = int(getattr(language_model.model.config, "max_position_embeddings", 4096))
    prompts = [
        list(
            language_model.tokenizer.apply_chat_template(
                messages[:i], add_generation_prompt=True, return_dict=False
            )
        )
        for i, message in enumerate(messages)
        if message["role"] == "assistant"
    ]
    if not prompts:
        return np.zeros((0, len(layers), language_model.hidden_size), np.float32)
    longest = prompts[-1]
    if len(longest) <= limit and all(longest[: len(prompt)] == prompt for prompt in prompts):
        return _forward(language_model, longest, [len(prompt) - 1 for prompt in prompts], layers)
    # A template that rewrites earlier turns, or a text longer than the window: one pass a message.
    return np.concatenate([_forward(language_model, prompt[-limit:], [-1], layers) for prompt in prompts])


def _forward(
    language_model: LanguageModel, tokens: list[int], positions: list[int], layers: Sequence[int]
) -> NDArray[np.float32]:
    ids = torch.tensor([tokens], device=language_model.device)
    with torch.no_grad():
        states = language_model.body(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
    return torch.stack([states[layer][0, positions] for layer in layers], dim=1).float().cpu().numpy()
