"""The hidden state at the last prompt token, taken from a forward that runs anyway.

Left padding, an off-by-one or a stray final norm give plausible vectors of the wrong state, with no error: so
the arithmetic is here, apart from any engine, and is tested against a plain forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["capture", "decoder_body", "last_prompt_states", "layer_index"]


def layer_index(layer: int | float, n_layers: int, key: str = "features.layer") -> int:
    """Index into hidden_states[0..n_layers], as in `bipace train`.

    An int counts from the front, or from the back where negative (-1 is n_layers); a float strictly between 0
    and 1 is a fraction f of the depth, round(f * n_layers). `key` is what the user calls the setting.

    Raises:
        ValueError: a layer outside the model; the message says which there are.

    Examples:
        >>> from bipace.integrations.common.capture import layer_index
        >>> layer_index(-12, 28), layer_index(0.61, 28)
        (17, 17)
    """
    if isinstance(layer, float) and 0 < layer < 1:
        return round(layer * n_layers)
    if isinstance(layer, int) and not isinstance(layer, bool) and -n_layers - 1 <= layer <= n_layers:
        return layer % (n_layers + 1)
    raise ValueError(
        f"{key}: {layer!r} is outside the model, which has {n_layers} layers; expected a whole number "
        f"from {-n_layers - 1} to {n_layers} or a fraction between 0 and 1"
    )


def decoder_body(model: torch.nn.Module) -> torch.nn.Module:
    """The module that holds the decoder's `layers` and final `norm`, under FSDP, LoRA or neither.

    Raises:
        ValueError: no such module: the architecture keeps its blocks elsewhere.
    """
    for module in model.modules():
        layers = getattr(module, "layers", None)
        if isinstance(layers, torch.nn.ModuleList) and isinstance(
            getattr(module, "norm", None), torch.nn.Module
        ):
            return module
    raise ValueError(
        f"{type(model).__name__}: found no decoder with `layers` and `norm`; bipace captures hidden states "
        "of models laid out like Llama and Qwen"
    )


@contextmanager
def capture(
    model: torch.nn.Module,
    layer: int | float,
    pick: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach,
) -> Iterator[list[torch.Tensor]]:
    """Keep what `pick` takes of hidden_states[layer] at every forward inside the block.

    By default all, detached.

    Index k below the depth is what block k reads; the last index is the state after the final norm, as in
    Hugging Face's output. Nothing else is kept, so the cost is one tensor of the micro-batch.
    """
    body: Any = decoder_body(model)
    index = layer_index(layer, len(body.layers))
    kept: list[torch.Tensor] = []

    def keep_input(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept.append(pick(args[0] if args else kwargs["hidden_states"]))

    def keep_output(_: torch.nn.Module, __: tuple[Any, ...], output: torch.Tensor) -> None:
        kept.append(pick(output))

    if index == len(body.layers):
        hook = body.norm.register_forward_hook(keep_output)
    else:
        hook = body.layers[index].register_forward_pre_hook(keep_input, with_kwargs=True)
    try:
        yield kept
    finally:
        hook.remove()


def last_prompt_states(
    states: torch.Tensor, prompt_lengths: torch.Tensor, offsets: torch.Tensor | None
) -> torch.Tensor:
    """[N, D] float32 rows of the hidden states at each sequence's last prompt token.

    Args:
        states: packed [tokens, D], or right-padded [N, L, D].
        prompt_lengths: [N], each at least 1.
        offsets: [N + 1] start of each packed sequence; None for padded states.
    """
    at = prompt_lengths - 1
    if offsets is None:
        return states[torch.arange(len(at), device=states.device), at].float()
    return states[offsets[:-1] + at].float()
