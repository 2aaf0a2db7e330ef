"""The policy objective: pure functions of per-token tensors.

All tensors are flat [n], one entry per response token; the caller decides which tokens count and what a mean
is over.
"""

from __future__ import annotations

import torch

__all__ = ["k3", "policy_loss"]


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    clip: float,
    dual_clip: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's clipped surrogate with dual clip, per token.

    With ratio r = exp(logp - old): L = -min(r A, clip(r, 1 - c, 1 + c) A), and for A < 0, L = min(L, -d A): a
    token whose probability grew a lot cannot push without bound. Sources: PPO, arXiv 1707.06347; dual clip,
    arXiv 1912.09729.

    Args:
        logprobs: under the current policy, with gradient.
        old_logprobs: under the policy that is being improved.
        advantages: one per token.
        clip: c.
        dual_clip: d > 1.

    Returns:
        Loss per token, and 1.0 where a clip is active (no gradient flows), else 0.0.
    """
    # A difference of 20 is a ratio of 5e8: beyond any clip, and still finite in float32.
    ratio = (logprobs - old_logprobs).clamp(-20.0, 20.0).exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip, 1.0 + clip)
    loss = torch.maximum(plain, clipped)
    bounded = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    return bounded, ((clipped > plain) | (bounded < loss)).float()


def k3(logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    """KL(policy || reference) per token by k3: exp(x) - x - 1 with x = ref - logp, clamped to +-10.

    Never negative, low variance (`low_var_kl`). Source: Schulman, "Approximating KL divergence" (2020).
    """
    x = (reference_logprobs - logprobs).clamp(-20.0, 20.0)
    return (x.exp() - x - 1.0).clamp(-10.0, 10.0)
