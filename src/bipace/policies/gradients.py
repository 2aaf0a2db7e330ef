"""Every step's policy gradient as a short vector whose inner products are those of the gradients.

The gradient that advantages A make is sum_i A_i g_i with g_i = grad log pi(response_i). Where each g_i is
known, the gradient of any advantages, and its inner product with another, follows without another pass. A g_i
has as many entries as the model has parameters, so a random sketch is kept; its inner products are unbiased.
Two are offered: of all parameters (one backward pass a step), and of the output layer alone (forward passes
only, for models of any size).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bipace.policies.language_model import LanguageModel
from bipace.policies.packing import Spans, micro_batches
from bipace.policies.scoring import score
from bipace.policies.scoring_forward import states_at

__all__ = ["gradient_sketches", "layer_states", "output_gradient_sketches"]

_SIDE = 64  # of the output layer's sketch: its two factors are brought to so many numbers each


def layer_states(
    language_model: LanguageModel,
    tokens: Sequence[NDArray[np.int64]],
    spans: Sequence[Spans],
    layers: Sequence[int],
    *,
    micro_tokens: int = 4096,
) -> dict[str, NDArray[np.float32]]:
    """Hidden states at the last prompt token of every step: layer index as text -> [N, D].

    Args:
        language_model: the model.
        tokens: token ids, an array a sequence.
        spans: the responses of each.
        layers: indices into hidden_states[0..n_layers]; 0 is the embedding.
        micro_tokens: padded tokens per forward.

    Raises:
        ValueError: a layer the model does not have; what `score` refuses.
    """
    found: dict[str, NDArray[np.float32]] = {}
    for layer in layers:
        parts: list[NDArray[np.float32]] = [np.zeros((0, language_model.hidden_size), np.float32)] * len(
            tokens
        )
        with torch.no_grad():
            for chosen in micro_batches(tokens, spans, micro_tokens):
                scores = score(
                    language_model, [tokens[i] for i in chosen], [spans[i] for i in chosen], layer=layer
                )
                if scores.features is None:
                    raise ValueError(f"layer: {layer} gave no features")
                sizes = np.cumsum([len(spans[i]) for i in chosen])[:-1]
                for i, part in zip(chosen, np.split(scores.features.cpu().numpy(), sizes), strict=True):
                    parts[i] = part
        found[str(layer)] = np.concatenate(parts)
    return found


def gradient_sketches(
    language_model: LanguageModel,
    tokens: Sequence[NDArray[np.int64]],
    spans: Sequence[Spans],
    width: int = 4096,
    temperature: float = 1.0,
) -> NDArray[np.float32]:
    """[N, W] count sketches of grad log pi(response) over all parameters, signs and bins fixed for good.

    Every parameter is added, with a random sign, to one of W bins; inner products have a relative error of
    about 1 / sqrt(W).
    """
    parameters = [p for p in language_model.model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in parameters)
    generator = torch.Generator().manual_seed(0)
    bins = torch.randint(width, (total,), generator=generator).to(language_model.device)
    signs = torch.randint(2, (total,), generator=generator).to(language_model.device).float() * 2 - 1
    rows: list[NDArray[np.float32]] = []
    for ids, of_sequence in zip(tokens, spans, strict=True):
        logprobs = score(language_model, [ids], [of_sequence], layer=None, temperature=temperature).logprobs
        for part in logprobs.split([end - start for start, end in of_sequence]):
            gradients = torch.autograd.grad(part.sum(), parameters, retain_graph=True)
            flat = torch.cat([g.reshape(-1) for g in gradients])
            rows.append(
                torch.zeros(width, device=flat.device).index_add_(0, bins, flat * signs).cpu().numpy()
            )
    return np.stack(rows) if rows else np.zeros((0, width), np.float32)


def output_gradient_sketches(
    language_model: LanguageModel,
    tokens: Sequence[NDArray[np.int64]],
    spans: Sequence[Spans],
    *,
    temperature: float = 1.0,
    micro_tokens: int = 4096,
) -> NDArray[np.float32]:
    """[N, W] sketches of the output layer's part of grad log pi(response), from forward passes alone.

    At a response token y with final state h that part is (e_y - p) h' / temperature. Both factors are
    multiplied by fixed random signs and brought to 64 numbers (a count sketch over the vocabulary; over the
    states too, where they are longer), and the outer products of a response's tokens are summed: W <= 4096.
    """
    words = _signed_bins(
        int(language_model.model.get_output_embeddings().weight.shape[0]), language_model.device
    )
    units = (
        _signed_bins(language_model.hidden_size, language_model.device)
        if language_model.hidden_size > _SIDE
        else None
    )
    rows: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32)] * len(tokens)
    with torch.no_grad():
        for chosen in micro_batches(tokens, spans, micro_tokens):
            ends = [(r, a, b) for r, i in enumerate(chosen) for a, b in spans[i]]
            row = torch.tensor([r for r, a, b in ends for _ in range(a, b)], device=language_model.device)
            position = torch.tensor(
                [t for _, a, b in ends for t in range(a, b)], device=language_model.device
            )
            said = torch.tensor([int(tokens[chosen[r]][t]) for r, a, b in ends for t in range(a, b)])
            final, _ = states_at(
                language_model,
                [tokens[i] for i in chosen],
                [spans[i] for i in chosen],
                row,
                position - 1,
                None,
            )
            surprise = -torch.softmax(language_model.logits(final) / temperature, dim=-1)
            surprise[torch.arange(len(said)), said.to(surprise.device)] += 1
            state = final.float() if units is None else final.float() @ units
            outer = torch.einsum("tv,td->tvd", surprise @ words / temperature, state).flatten(1)
            step = torch.repeat_interleave(
                torch.arange(len(ends)), torch.tensor([b - a for _, a, b in ends])
            ).to(outer.device)
            summed = torch.zeros(len(ends), outer.shape[1], device=outer.device).index_add_(0, step, outer)
            sizes = np.cumsum([len(spans[i]) for i in chosen])[:-1]
            for i, part in zip(chosen, np.split(summed.cpu().numpy(), sizes), strict=True):
                rows[i] = part
    return (
        np.concatenate(rows)
        if rows
        else np.zeros((0, _SIDE * min(language_model.hidden_size, _SIDE)), np.float32)
    )


def _signed_bins(n: int, device: torch.device) -> torch.Tensor:
    """[n, 64] one random sign a row, in a random column: a count sketch as a matrix, fixed for all time."""
    generator = torch.Generator().manual_seed(n)
    out = torch.zeros(n, _SIDE)
    out[torch.arange(n), torch.randint(_SIDE, (n,), generator=generator)] = (
        torch.randint(2, (n,), generator=generator).float() * 2 - 1
    )
    return out.to(device)
