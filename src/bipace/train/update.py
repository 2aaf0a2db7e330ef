"""The policy update: the only place where one advantage per step becomes one per token.

A mini-batch is computed in parts (`bipace.train.gradient`), one in this process or several side by side;
their gradients are added in order, then clipped, then one optimizer step is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from bipace.core.steps import Floats
from bipace.policies.hf import Actor
from bipace.rollout.records import TokenSequence
from bipace.train.config import UpdateConfig
from bipace.train.gradient import Gradient, Objective, Part, Sums

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
    """Linear decay to a tenth over lr_decay iterations.

    It depends on the iteration alone, so it resumes itself.
    """
    left = max(0.0, 1.0 - iteration / config.lr_decay) if config.lr_decay else 1.0
    for group in optimizer.param_groups:
        group["lr"] = config.lr * (0.1 + 0.9 * left)


# long: half of it says what the arguments are
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
    shards: int = 1,
    gradients: Callable[[Sequence[Part]], list[Gradient]] | None = None,
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
        shards: parts that a mini-batch is cut into, balanced by tokens; their gradients are added in order.
        gradients: computes the parts' gradients, e.g. side by side; default: one after the other, here.

    Returns:
        Metrics, token means over the pass: loss, clip share, KL, entropy, gradient norm, and skipped
        mini-batches.
    """
    rollouts = _Rollouts(sequences, old, advantages, reference, config)
    objective = Objective(actor, config, temperature, autocast)
    compute = gradients or (lambda parts: [objective.gradient(part) for part in parts])
    parameters = list(actor.model.parameters())
    totals = _Totals()
    for _ in range(config.epochs):
        for batch in _minibatches(groups, config.parts(len(sequences)), shuffle):
            tokens = sum(len(old[i]) for i in batch)
            if tokens == 0:
                continue
            found = compute(rollouts.parts(batch, shards))
            _put(parameters, found)
            sums = replace(totals.sums)
            for part in found:
                for of_forward in part.sums:
                    sums.add(of_forward)
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.grad_clip)) if found else 0.0
            if np.isfinite(norm) and np.isfinite(sums.loss):
                totals.sums, totals.tokens = sums, totals.tokens + tokens
                totals.norms.append(norm)
                optimizer.step()
            else:
                totals.skipped += 1
                optimizer.zero_grad(set_to_none=True)
    return totals.metrics()


@dataclass
class _Totals:
    """What the mini-batches that were not skipped came to."""

    sums: Sums = field(default_factory=Sums)
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
class _Rollouts:
    """One iteration's rollouts; the fields are `update_policy`'s arguments."""

    sequences: Sequence[TokenSequence]
    old: Sequence[torch.Tensor]
    advantages: Sequence[torch.Tensor]
    reference: Sequence[torch.Tensor] | None
    config: UpdateConfig

    def parts(self, batch: Sequence[int], shards: int) -> list[Part]:
        """What has to be computed of a mini-batch, in at most `shards` parts."""
        everyone = self.config.kl_loss_coef > 0 or self.config.entropy_coef > 0
        active = [i for i in batch if everyone or bool((self.advantages[i] != 0).any())]
        tokens = sum(len(self.old[i]) for i in batch)
        return [
            Part(
                [TokenSequence(self.sequences[i].tokens, self.sequences[i].spans) for i in chosen],
                [self.old[i] for i in chosen],
                [self.advantages[i] for i in chosen],
                None if self.reference is None else [self.reference[i] for i in chosen],
                tokens,
            )
            for chosen in _cut(active, [len(self.sequences[i].tokens) for i in active], shards)
        ]


def _cut(members: Sequence[int], sizes: Sequence[int], parts: int) -> list[list[int]]:
    """The row cut where its sizes come nearest to equal shares.

    Members of a group, being neighbours, stay together.

    Shares that come out empty are left out.
    """
    ends = np.cumsum(sizes)
    middles = ends - np.asarray(sizes) / 2
    share = np.minimum(middles * parts // max(int(ends[-1]) if len(ends) else 1, 1), parts - 1)
    found = [[m for m, s in zip(members, share, strict=True) if s == part] for part in range(parts)]
    return [chosen for chosen in found if chosen]


def _put(parameters: Sequence[torch.nn.Parameter], found: Sequence[Gradient]) -> None:
    """Give the parameters the sum of the gradients, added in the order given."""
    for index, parameter in enumerate(parameters):
        values = [value for gradient in found if (value := gradient.values[index]) is not None]
        total = values[0] if values else None
        for value in values[1:]:
            total = value if total is None else total.add_(value)
        parameter.grad = total


def _minibatches(groups: Sequence[str], parts: int, shuffle: np.random.Generator) -> Iterator[list[int]]:
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    together = list(members.values())
    order = [i for g in shuffle.permutation(len(together)) for i in together[g]]
    for part in np.array_split(order, min(parts, max(len(order), 1))):
        yield [int(i) for i in part]
