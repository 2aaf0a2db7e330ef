"""Drawing the next token."""

from __future__ import annotations

import torch

__all__ = ["sample"]


def sample(
    logits: torch.Tensor, temperature: float, generator: torch.Generator
) -> tuple[list[int], list[float]]:
    """One token per row of logits [n, vocabulary] and the logarithm of the probability it had.

    Temperature 0 takes the likeliest token (the first of equals), with its log-probability at temperature 1.
    Otherwise one uniform number a row goes through the inverse of the distribution function.
    """
    if temperature == 0:
        logprobs = torch.log_softmax(logits, dim=-1)
        tokens = logits.argmax(dim=-1, keepdim=True)
    else:
        logprobs = torch.log_softmax(logits / temperature, dim=-1)
        # torch.multinomial draws a number per vocabulary entry: ten times the time.
        mass = logprobs.exp().cumsum(dim=-1)
        draw = torch.rand((len(logits), 1), generator=generator, device=logits.device) * mass[:, -1:]
        tokens = torch.searchsorted(mass, draw, right=True).clamp_(max=logits.shape[-1] - 1)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()
