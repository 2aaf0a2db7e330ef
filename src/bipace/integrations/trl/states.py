"""Hidden states at the token before each turn: from a forward that TRL makes anyway, or from one more.

The state of a turn is what the model had read when it began to write: hidden_states[layer] at the token
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch

from bipace.integrations.common.capture import capture, decoder_body, layer_index

__all__ = ["active_dropout", "gather_rows", "own_forward", "picking"]

Places = Sequence[Sequence[int]]
"""Row -> positions of a sequence whose states are wanted, in order."""


class _Enough(Exception):
    """The wanted layer has been seen; the blocks above it need not run."""


@contextmanager
def picking(model: torch.nn.Module, layer: int | float, places: Places) -> Iterator[list[torch.Tensor]]:
    """Yields a list that receives the wanted states, [n, D] float32 a forward, of rows that come in order.

    Args:
        model: the policy; its forwards inside the block see the rows of `places` once, in any number of
            micro-batches.
        layer: see `bipace.integrations.common.capture.layer_index`.
        places: positions in the sequences as the forwards see them, padding included.
    """
    seen = 0

    def pick(states: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        here = places[seen : seen + len(states)]
        seen += len(states)
        rows = [i for i, row in enumerate(here) for _ in row]
        at = [position for row in here for position in row]
        index = torch.tensor([rows, at], dtype=torch.long, device=states.device)
        return states[index[0], index[1]].float()

    with capture(model, layer, pick) as kept:
        yield kept


@torch.no_grad()
def own_forward(
    model: torch.nn.Module,
    sequences: Sequence[Sequence[int]],
    places: Places,
    layer: int | float,
    batch_size: int,
    pad: int,
    autocast: Callable[[], AbstractContextManager[Any]],
    cut: bool,
) -> torch.Tensor:
    """[n, D] states by a forward of its own: padded on the right, without dropout, no gradient.

    Args:
        model: the policy.
        sequences: token ids, prompt and completion.
        places: positions in them.
        layer: which hidden state.
        batch_size: sequences a forward.
        pad: id of the padding token.
        autocast: makes the context of a forward.
        cut: stop below the first block that is not needed. Not under wrappers that gather a block's weights
            and must see it through (FSDP, DeepSpeed).
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    found: list[torch.Tensor] = []
    try:
        with picking(model, layer, places) as kept, _stopping(model, layer, cut):
            for first in range(0, len(sequences), batch_size):
                part = sequences[first : first + batch_size]
                width = max(len(tokens) for tokens in part)
                ids = torch.tensor(
                    [[*tokens, *[pad] * (width - len(tokens))] for tokens in part], device=device
                )
                mask = torch.tensor([[1] * len(t) + [0] * (width - len(t)) for t in part], device=device)
                with suppress(_Enough), autocast():
                    model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=1)
            found = list(kept)
    finally:
        model.train(was_training)
    return torch.cat(found)


@contextmanager
def _stopping(model: torch.nn.Module, layer: int | float, cut: bool) -> Iterator[None]:
    body: Any = decoder_body(model)
    index = layer_index(layer, len(body.layers))
    if not cut or index == len(body.layers):
        yield
        return

    def enough(*_: Any) -> None:
        raise _Enough

    hook = body.layers[index].register_forward_pre_hook(enough)  # after the one that keeps, which came first
    try:
        yield
    finally:
        hook.remove()


def active_dropout(model: torch.nn.Module) -> bool:
    """True where a forward in training mode is not the policy's own distribution but a thinned one."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "attention_dropout", 0.0):
        return True
    return any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in model.modules())


def gather_rows(accelerator: Any, states: torch.Tensor) -> torch.Tensor:
    """[n, D] of each process -> [N, D] of all, process after process."""
    if accelerator.num_processes == 1:
        return states
    counts = accelerator.gather(torch.tensor([len(states)], device=states.device)).tolist()
    padded = states.new_zeros((max(counts), states.shape[1]))
    padded[: len(states)] = states
    parts = accelerator.gather(padded).split(max(counts))
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
