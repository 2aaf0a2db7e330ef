"""The policy update: the only place where one advantage per step becomes one per token.

Micro-batches are cut by padded tokens and only bound the memory: losses are sums over tokens divided by the
token count of the whole mini-batch, so any cut gives the same gradient up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from bipace.core.steps import Floats
from bipace.policies.hf import Actor
from bipace.policies.packing import micro_batches
from bipace.rollout.records import TokenSequence
from bipace.train.config import UpdateConfig
from bipace.train.losses import k3, policy_loss
from bipace.train.scored import score_part

__all__ = ["make_optimizer", "set_learning_rate", "token_values", "update_policy"]


def token_values(sequences: Sequence[TokenSequence], step_values: Floats) -> list[torch.Tensor]:
    """Each step's value on exactly its own response tokens: per sequence, [n_i] float32.

    Args:
        sequences: S sequences whose spans, in order, are the N steps.
        step_values: [N].

    Raises:
        ValueError: N is not the number of spans.
    """
    steps = sum(len(s.spans) for s in sequences)
    if len(step_values) != steps:
        raise ValueError(f"step_values: {len(step_values)} entries, expected {steps}, one per response span")
    out: list[torch.Tensor] = []
    position = 0
    for sequence in sequences:
        lengths = [end - start for start, end in sequence.spans]
        values = step_values[position : position + len(lengths)]
        with np.errstate(over="ignore"):  # infinity is what the update skips and counts
            out.append(torch.from_numpy(np.repeat(values, lengths).astype(np.float32)))
        position += len(lengths)
    return out


def make_optimizer(actor: Actor, config: UpdateConfig) -> torch.optim.Optimizer:
    """AdamW over the actor's parameters."""
    return torch.optim.AdamW(
        actor.model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, config: UpdateConfig, iteration: int) -> None:
    """Linear decay to a tenth over lr_decay iterations; it depends on the iteration alone, so it resumes itself."""
    left = max(0.0, 1.0 - iteration / config.lr_decay) if config.lr_decay else 1.0
    for group in optimizer.param_groups:
        group["lr"] = config.lr * (0.1 + 0.9 * left)


def update_policy(
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    sequences: Sequence[TokenSequence],
    old: Sequence[torch.Tensor],
    advantages: Sequence[torch.Tensor],
    config: UpdateConfig,
    *,
    groups: Sequence[str],
    shuffle: np.random.Generator,
    reference: Sequence[torch.Tensor] | None = None,
    temperature: float = 1.0,
    autocast: bool = False,
) -> dict[str, float]:
    """PPO over one iteration's rollouts.

    The loss of a mini-batch is the mean over its response tokens of policy loss + kl_loss_coef * k3 -
    entropy_coef * entropy. Sequences whose advantages are all exactly zero add nothing but their token count,
    so they are not computed when there is no KL or entropy term. A mini-batch whose loss or gradient is not
    finite is skipped and enters no metric but the count.

    Args:
        actor: the policy, updated in place.
        optimizer: over its parameters.
        sequences: what was sampled.
        old: log-probabilities before the update, per sequence.
        advantages: per sequence, one per response token (`token_values`).
        config: clips, coefficients, passes.
        groups: per sequence, its prompt group. Mini-batches are cut evenly from a row of shuffled groups, so
            a group is split no more than it must: its advantages balance each other, and its prompt is
            computed once.
        shuffle: decides the order of the groups.
        reference: log-probabilities of the reference policy, needed when kl_loss_coef > 0.
        temperature: the rollouts' own.
        autocast: bfloat16 autocast of the forward.

    Returns:
        Metrics, token means over the pass: loss, clip share, KL, entropy, gradient norm, and skipped
        mini-batches.
    """
    task = _Objective(actor, sequences, old, advantages, reference, config, temperature, autocast)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    totals = _Totals()
    for _ in range(config.epochs):
        for batch in _minibatches(groups, config.parts(len(sequences)), shuffle):
            tokens = sum(len(old[i]) for i in batch)
            if tokens == 0:
                continue
            optimizer.zero_grad(set_to_none=True)
            sums = replace(totals.sums)
            computed = task.accumulate_gradient(batch, tokens, sums)
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.grad_clip)) if computed else 0.0
            if np.isfinite(norm) and np.isfinite(sums.loss):
                totals.sums, totals.tokens = sums, totals.tokens + tokens
                totals.norms.append(norm)
                optimizer.step()
            else:
                totals.skipped += 1
                optimizer.zero_grad(set_to_none=True)
    return totals.metrics()


@dataclass
class _Sums:
    """Sums over response tokens."""

    loss: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0


@dataclass
class _Totals:
    """What the mini-batches that were not skipped came to."""

    sums: _Sums = field(default_factory=_Sums)
    tokens: int = 0
    skipped: int = 0
    norms: list[float] = field(default_factory=list[float])

    def metrics(self) -> dict[str, float]:
        n = max(self.tokens, 1)
        return {
            "update/loss": self.sums.loss / n,
            "update/clip_share": self.sums.clipped / n,
            "update/kl_reference": self.sums.kl / n,
            "update/entropy": self.sums.entropy / n,
            "update/grad_norm": float(np.mean(self.norms)) if self.norms else 0.0,
            "update/skipped": float(self.skipped),
            "update/response_tokens": float(self.tokens),
        }


@dataclass(frozen=True)
class _Objective:
    """The loss of one iteration's rollouts; the fields are `update_policy`'s arguments."""

    actor: Actor
    sequences: Sequence[TokenSequence]
    old: Sequence[torch.Tensor]
    advantages: Sequence[torch.Tensor]
    reference: Sequence[torch.Tensor] | None
    config: UpdateConfig
    temperature: float
    autocast: bool

    def accumulate_gradient(self, batch: Sequence[int], tokens: int, sums: _Sums) -> int:
        """Add the gradient of a mini-batch's mean loss over its tokens, one micro-batch after the other.

        Returns how many of its sequences had to be computed.
        """
        everyone = self.config.kl_loss_coef > 0 or self.config.entropy_coef > 0
        active = [i for i in batch if everyone or bool((self.advantages[i] != 0).any())]
        tokens_of, spans_of = (
            [self.sequences[i].tokens for i in active],
            [self.sequences[i].spans for i in active],
        )
        for positions in micro_batches(tokens_of, spans_of, self.config.micro_tokens):
            (self._loss([active[p] for p in positions], sums) / tokens).backward()
        return len(active)

    def _loss(self, chosen: Sequence[int], sums: _Sums) -> torch.Tensor:
        """Sum of the token losses of some sequences; its parts are added to the sums."""

        def flat(values: Sequence[torch.Tensor]) -> torch.Tensor:
            return torch.cat([values[i] for i in chosen]).to(self.actor.device)

        config = self.config
        with torch.autocast(self.actor.device.type, torch.bfloat16, enabled=self.autocast):
            sequences = [self.sequences[i] for i in chosen]
            scores = score_part(self.actor, sequences, None, self.temperature, config.entropy_coef > 0)
        logprobs = scores.logprobs.float()
        loss, clipped = policy_loss(
            logprobs, flat(self.old), flat(self.advantages), config.clip, config.dual_clip
        )
        total = loss.sum()
        if config.kl_loss_coef > 0 and self.reference is not None:
            kl = k3(logprobs, flat(self.reference)).sum()
            total = total + config.kl_loss_coef * kl
            sums.kl += float(kl.detach())
        if scores.entropy is not None:
            entropy = scores.entropy.float().sum()
            total = total - config.entropy_coef * entropy
            sums.entropy += float(entropy.detach())
        sums.loss += float(total.detach())
        sums.clipped += float(clipped.sum())
        return total


def _minibatches(groups: Sequence[str], parts: int, shuffle: np.random.Generator) -> Iterator[list[int]]:
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    together = list(members.values())
    order = [i for g in shuffle.permutation(len(together)) for i in together[g]]
    for part in np.array_split(order, min(parts, max(len(order), 1))):
        yield [int(i) for i in part]
