"""The policy update: the only place where one advantage per step becomes one per token.

Micro-batches are cut by padded tokens and only bound the memory: losses are sums over tokens divided by the token count
of the whole mini-batch, so any cut gives the same gradient up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bipace.core.features import Features
from bipace.core.steps import Floats
from bipace.policies.device_features import as_features
from bipace.policies.hf import Actor
from bipace.policies.packing import micro_batches
from bipace.policies.scoring import Scores, score
from bipace.rollout.records import TokenSequence
from bipace.train.config import UpdateConfig
from bipace.train.losses import k3, policy_loss

__all__ = ["Scored", "engine_gap", "sampled_scores", "score_sequences", "token_values", "update_policy"]


LARGEST_GAP = 0.2  # nats a token, many times what bfloat16 leaves between two programs


@dataclass(frozen=True)
class Scored:
    """Old log-probabilities and features of all steps.

    Attributes:
        logprobs: for each sequence, [n_i] log-probabilities of its response tokens in order.
        features: [N, D] float32, one row per step in step order, or None. Those of an actor on a GPU stay there.
    """

    logprobs: list[torch.Tensor]
    features: Features | None


def sampled_scores(sequences: Sequence[TokenSequence]) -> Scored:
    """What the rollout already knows: each response token's log-probability when drawn, and the states kept with it.

    The policy has not moved since, so these are the old log-probabilities, equal to `score_sequences` up to rounding
    (1e-5 in float32; in lower precision score anew).

    Raises:
        ValueError: a sequence that was not sampled.
    """
    logprobs = [s.logprobs for s in sequences if s.logprobs is not None]
    if len(logprobs) < len(sequences):
        raise ValueError("sequences: some carry no log-probabilities, so they were not sampled; use score_sequences")
    states = [s.states for s in sequences if s.states is not None]
    return Scored([torch.from_numpy(x) for x in logprobs], np.concatenate(states) if states else None)


def score_sequences(
    actor: Actor, sequences: Sequence[TokenSequence], *, layer: int | None, micro_tokens: int, temperature: float = 1.0
) -> Scored:
    """Log-probabilities of every response token, and the hidden state at each step's last prompt token, in one forward.

    Args:
        actor: the policy.
        sequences: what was sampled.
        layer: index into hidden_states, or None for no features.
        micro_tokens: padded tokens per forward.
        temperature: the rollouts' own, so that probabilities are those the tokens were sampled with.
    """
    logprobs: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
    features: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
    with torch.no_grad():
        for chosen in micro_batches([s.tokens for s in sequences], [s.spans for s in sequences], micro_tokens):
            scores = _score(actor, [sequences[i] for i in chosen], layer, temperature)
            tokens = [_response_length(sequences[i]) for i in chosen]
            spans = [len(sequences[i].spans) for i in chosen]
            for k, part in zip(chosen, scores.logprobs.split(tokens), strict=True):
                logprobs[k] = part
            if scores.features is not None:
                for k, part in zip(chosen, scores.features.split(spans), strict=True):
                    features[k] = part
    if layer is None:
        return Scored(logprobs, None)
    nothing = np.zeros((0, actor.hidden_size), np.float32)
    return Scored(logprobs, as_features(torch.cat(features)) if sequences else nothing)


def engine_gap(sequences: Sequence[TokenSequence], scored: Scored) -> dict[str, float]:
    """How far the engine that sampled is from the actor: |log-probability when drawn - scored anew|, over all tokens.

    Args:
        sequences: what was sampled.
        scored: their old log-probabilities (`score_sequences`).

    Returns:
        Mean and largest gap in nats; nothing where no token was sampled.

    Raises:
        RuntimeError: a mean gap that rounding does not explain: the engine speaks with other weights than the actor.
    """
    gaps = [
        torch.from_numpy(s.logprobs).sub(found.cpu()).abs()
        for s, found in zip(sequences, scored.logprobs, strict=True)
        if s.logprobs is not None
    ]
    if not gaps:
        return {}
    everything = torch.cat(gaps)
    if everything.mean() > LARGEST_GAP:
        raise RuntimeError(
            f"rollout/logprob_gap: {float(everything.mean()):.3f} nats between the engine that sampled and the actor, "
            f"more than the {LARGEST_GAP} that rounding explains: it speaks with other weights; use rollout.engine=hf"
        )
    return {"rollout/logprob_gap": float(everything.mean()), "rollout/logprob_gap_max": float(everything.max())}


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
    entropy_coef * entropy. Sequences whose advantages are all exactly zero add nothing but their token count, so they
    are not computed when there is no KL or entropy term. A mini-batch whose loss or gradient is not finite is skipped
    and enters no metric but the count.

    Args:
        actor: the policy, updated in place.
        optimizer: over its parameters.
        sequences: what was sampled.
        old: log-probabilities before the update, per sequence.
        advantages: per sequence, one per response token (`token_values`).
        config: clips, coefficients, passes.
        groups: per sequence, its prompt group. Mini-batches are cut evenly from a row of shuffled groups, so a group is
            split no more than it must: its advantages balance each other, and its prompt is computed once.
        shuffle: decides the order of the groups.
        reference: log-probabilities of the reference policy, needed when kl_loss_coef > 0.
        temperature: the rollouts' own.
        autocast: bfloat16 autocast of the forward.

    Returns:
        Metrics, token means over the pass: loss, clip share, KL, entropy, gradient norm, and skipped mini-batches.
    """
    totals = _Totals()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for _ in range(config.epochs):
        for batch in _minibatches(groups, config.parts(len(sequences)), shuffle):
            tokens = sum(len(old[i]) for i in batch)
            if tokens == 0:
                continue
            optimizer.zero_grad(set_to_none=True)
            before = totals.sums()
            everyone = config.kl_loss_coef > 0 or config.entropy_coef > 0
            active = [i for i in batch if everyone or bool((advantages[i] != 0).any())]
            tokens_of, spans_of = [sequences[i].tokens for i in active], [sequences[i].spans for i in active]
            for positions in micro_batches(tokens_of, spans_of, config.micro_tokens):
                chosen = [active[p] for p in positions]
                loss = _loss(
                    actor, sequences, old, advantages, reference, chosen, config, temperature, autocast, totals
                )
                (loss / tokens).backward()
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.grad_clip)) if active else 0.0
            if not (np.isfinite(norm) and np.isfinite(totals.loss)):
                totals.loss, totals.clipped, totals.kl, totals.entropy = before
                totals.skipped += 1
                optimizer.zero_grad(set_to_none=True)
                continue
            totals.tokens += tokens
            totals.norms.append(norm)
            optimizer.step()
    return totals.metrics()


@dataclass
class _Totals:
    loss: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    tokens: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.norms: list[float] = []

    def sums(self) -> tuple[float, float, float, float]:
        return self.loss, self.clipped, self.kl, self.entropy

    def metrics(self) -> dict[str, float]:
        n = max(self.tokens, 1)
        return {
            "update/loss": self.loss / n,
            "update/clip_share": self.clipped / n,
            "update/kl_reference": self.kl / n,
            "update/entropy": self.entropy / n,
            "update/grad_norm": float(np.mean(self.norms)) if self.norms else 0.0,
            "update/skipped": float(self.skipped),
            "update/response_tokens": float(self.tokens),
        }


def _loss(
    actor: Actor,
    sequences: Sequence[TokenSequence],
    old: Sequence[torch.Tensor],
    advantages: Sequence[torch.Tensor],
    reference: Sequence[torch.Tensor] | None,
    chosen: Sequence[int],
    config: UpdateConfig,
    temperature: float,
    autocast: bool,
    totals: _Totals,
) -> torch.Tensor:
    """Sum of the token losses of some sequences."""

    def flat(values: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([values[i] for i in chosen]).to(actor.device)

    with torch.autocast(actor.device.type, torch.bfloat16, enabled=autocast):
        scores = _score(actor, [sequences[i] for i in chosen], None, temperature, config.entropy_coef > 0)
    loss, clipped = policy_loss(scores.logprobs.float(), flat(old), flat(advantages), config.clip, config.dual_clip)
    total = loss.sum()
    if config.kl_loss_coef > 0 and reference is not None:
        kl = k3(scores.logprobs.float(), flat(reference)).sum()
        total = total + config.kl_loss_coef * kl
        totals.kl += float(kl.detach())
    if scores.entropy is not None:
        entropy = scores.entropy.float().sum()
        total = total - config.entropy_coef * entropy
        totals.entropy += float(entropy.detach())
    totals.loss += float(total.detach())
    totals.clipped += float(clipped.sum())
    return total


def _score(
    actor: Actor, sequences: Sequence[TokenSequence], layer: int | None, temperature: float, entropy: bool = False
) -> Scores:
    return score(
        actor,
        [s.tokens for s in sequences],
        [s.spans for s in sequences],
        layer=layer,
        temperature=temperature,
        with_entropy=entropy,
    )


def _response_length(sequence: TokenSequence) -> int:
    return sum(end - start for start, end in sequence.spans)


def _minibatches(groups: Sequence[str], parts: int, shuffle: np.random.Generator) -> Iterator[list[int]]:
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    together = list(members.values())
    order = [i for g in shuffle.permutation(len(together)) for i in together[g]]
    for part in np.array_split(order, min(parts, max(len(order), 1))):
        yield [int(i) for i in part]
