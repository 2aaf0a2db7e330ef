"""The gradient of a part of a mini-batch: one forward and backward after the other, each bounded in memory.

Losses are sums over tokens divided by the token count of the whole mini-batch, so any cut into parts and
forwards gives the same gradient up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bipace.policies.hf import Actor
from bipace.policies.packing import micro_batches
from bipace.rollout.records import TokenSequence
from bipace.train.config import UpdateConfig
from bipace.train.losses import k3, policy_loss
from bipace.train.scored import score_part

__all__ = ["Gradient", "Objective", "Part", "Sums"]


@dataclass
class Sums:
    """Sums over response tokens."""

    loss: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0

    def add(self, other: Sums) -> None:
        """Add another's."""
        self.loss += other.loss
        self.clipped += other.clipped
        self.kl += other.kl
        self.entropy += other.entropy


@dataclass(frozen=True)
class Part:
    """What the gradient of a part of a mini-batch is made of.

    Attributes:
        sequences: what was sampled.
        old: per sequence, log-probabilities before the update.
        advantages: per sequence, one value per response token.
        reference: per sequence, log-probabilities of the reference policy; None without a KL term.
        tokens: response tokens of the whole mini-batch.
    """

    sequences: Sequence[TokenSequence]
    old: Sequence[torch.Tensor]
    advantages: Sequence[torch.Tensor]
    reference: Sequence[torch.Tensor] | None
    tokens: int


@dataclass(frozen=True)
class Gradient:
    """A part's gradient.

    Attributes:
        values: per parameter of the model, in its order; None where the part has none.
        sums: of each forward, in order.
    """

    values: list[torch.Tensor | None]
    sums: list[Sums]


@dataclass(frozen=True)
class Objective:
    """The loss of an update.

    Attributes:
        actor: the policy.
        config: clips, coefficients, size of a forward.
        temperature: the rollouts' own.
        autocast: bfloat16 autocast of the forward.
    """

    actor: Actor
    config: UpdateConfig
    temperature: float
    autocast: bool

    def gradient(self, part: Part) -> Gradient:
        """The part's gradient; the parameters are left without one."""
        parameters = list(self.actor.model.parameters())
        for parameter in parameters:
            parameter.grad = None
        tokens, spans = [s.tokens for s in part.sequences], [s.spans for s in part.sequences]
        sums: list[Sums] = []
        for chosen in micro_batches(tokens, spans, self.config.micro_tokens):
            loss, found = self._loss(part, chosen)
            (loss / part.tokens).backward()
            sums.append(found)
        values = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        return Gradient(values, sums)

    def _loss(self, part: Part, chosen: Sequence[int]) -> tuple[torch.Tensor, Sums]:
        """Sum of the token losses of some sequences, and its parts."""

        def flat(values: Sequence[torch.Tensor]) -> torch.Tensor:
            return torch.cat([values[i] for i in chosen]).to(self.actor.device)

        config, sums = self.config, Sums()
        with torch.autocast(self.actor.device.type, torch.bfloat16, enabled=self.autocast):
            sequences = [part.sequences[i] for i in chosen]
            scores = score_part(self.actor, sequences, None, self.temperature, config.entropy_coef > 0)
        logprobs = scores.logprobs.float()
        loss, clipped = policy_loss(
            logprobs, flat(part.old), flat(part.advantages), config.clip, config.dual_clip
        )
        total = loss.sum()
        if config.kl_loss_coef > 0 and part.reference is not None:
            kl = k3(logprobs, flat(part.reference)).sum()
            total = total + config.kl_loss_coef * kl
            sums.kl = float(kl.detach())
        if scores.entropy is not None:
            entropy = scores.entropy.float().sum()
            total = total - config.entropy_coef * entropy
            sums.entropy = float(entropy.detach())
        sums.loss = float(total.detach())
        sums.clipped = float(clipped.sum())
        return total, sums
