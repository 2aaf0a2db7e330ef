"""Warm start by imitation: a small actor learns a planner's episodes until it solves a chosen share of tasks.

A reinforcement learner that never succeeds learns nothing, and one that always succeeds has nothing to learn:
training stops at the first evaluation that reaches the target success rate.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen2Config, Qwen2ForCausalLM

from bipace.envs.base import Suite, offers_of
from bipace.policies.hf import Actor
from bipace.policies.scoring import buckets, score
from bipace.rollout.episode import Play
from bipace.rollout.prompts import Chat, Parsed
from bipace.rollout.records import TokenSequence, Trajectory
from bipace.train.tokenizer import CHATML, END, PAD, train_tokenizer

__all__ = [
    "SIZES",
    "ActorSize",
    "Demonstration",
    "batches",
    "code_tokens",
    "demonstrate",
    "encode",
    "imitate",
    "new_actor",
]


_log = logging.getLogger(__name__)
_CODE = re.compile(r"\b(?=[A-Z]*[0-9])(?=[0-9]*[A-Z])[A-Z0-9]{8,}\b")
WARM_UP = 75  # updates until the learning rate is reached


@dataclass(frozen=True)
class ActorSize:
    """Shape of an embedded Qwen2 actor, and the standard deviation of its first weights.

    0.02 is what large models begin with. At width 64 a thousand product ids are then hardly told apart, and
    copying one from a page is not learned; 1 / sqrt(width) is about 0.1.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    spread: float = 0.02


SIZES = {
    "small": ActorSize(hidden=64, layers=2, heads=4, kv_heads=2, ffn=128, vocabulary=1280),
    "small-2k": ActorSize(hidden=64, layers=2, heads=4, kv_heads=4, ffn=128, vocabulary=2048, spread=0.1),
    "medium": ActorSize(hidden=128, layers=4, heads=4, kv_heads=2, ffn=416, vocabulary=1280),
}


@dataclass(frozen=True)
class Demonstration:
    """One solved episode: the first observation, then (action, the environment's answer) pairs."""

    first: str
    turns: tuple[tuple[str, str], ...]

    def messages(self) -> list[dict[str, str]]:
        """The episode as a chat."""
        chat = [{"role": "user", "content": self.first}]
        for action, answer in self.turns:
            chat += [{"role": "assistant", "content": action}, {"role": "user", "content": answer}]
        return chat


def demonstrate(suite: Suite, tasks: Sequence[str], max_steps: int) -> Iterator[Demonstration]:
    """Play the suite's expert on each task.

    Tasks it has no plan for, or a plan longer than max_steps, are left out.

    A suite whose expert knows what an agent cannot see may offer a `demonstration`, which finds it by acting;
    that is played instead. A task whose environment fails on the way is left out with a warning.
    """
    plan_of = offers_of(suite).demonstration or suite.expert
    for task in tasks:
        plan = plan_of(task)
        if not 0 < len(plan) <= max_steps:
            continue
        play = Play(Trajectory(task, 0))
        play.reset(suite)
        first, turns = play.turn.observation, list[tuple[str, str]]()
        for action in plan:
            if not play.record.error:
                play.act(Parsed(action, True), action)
                turns.append((action, play.turn.observation))
        if play.record.error:
            _log.warning("task %r is left out of the demonstrations: %s", task, play.record.error)
        else:
            yield Demonstration(first, tuple(turns))


def encode(
    chat: Chat, tokenizer: Any, demonstration: Demonstration, end_token: int, turns: int | None = None
) -> TokenSequence:
    """Tokens of a demonstration (its first turns) as a rollout would hold them.

    Each action ends with the end token.
    """
    tokens = chat.prompt(demonstration.first)
    spans: list[tuple[int, int]] = []
    for action, answer in demonstration.turns[:turns]:
        start = len(tokens)
        tokens += [*tokenizer.encode(action, add_special_tokens=False), end_token]
        spans.append((start, len(tokens)))
        tokens += chat.reply(answer, finished=True)
    return TokenSequence(np.array(tokens[: spans[-1][1]]), tuple(spans))


def new_actor(
    size: ActorSize,
    demonstrations: Sequence[Demonstration],
    seed: int,
    context: int = 4096,
    marks: Sequence[str] = (),
) -> Actor:
    """A randomly initialised Qwen2 actor with a tokenizer trained on the demonstrations.

    Codes in them (eight or more capitals and digits, both of them: a shop's product ids) become one token
    each, and so do the suite's `marks`. What stands between two marks then has the same tokens wherever it
    stands: an option is copied from the page into `click[...]` token by token.
    """
    template = jinja2.Template(CHATML)
    texts = [template.render(messages=d.messages(), add_generation_prompt=True) for d in demonstrations]
    codes = sorted({code for text in texts for code in _CODE.findall(text)})
    bare = (_CODE.sub("", text) for text in texts)
    if marks:
        between = re.compile("|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)))
        bare = (piece for text in bare for piece in between.split(text))
    tokenizer = train_tokenizer(bare, size.vocabulary, [*marks, *codes])
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=size.hidden,
            intermediate_size=size.ffn,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.kv_heads,
            initializer_range=size.spread,
            max_position_embeddings=context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.get_vocab()[END],
            pad_token_id=tokenizer.get_vocab()[PAD],
        )
    )
    return Actor(model, tokenizer)


def code_tokens(tokenizer: Any) -> NDArray[np.int64]:
    """The tokens that are codes, ascending."""
    added: dict[str, int] = tokenizer.get_added_vocab()
    return np.array(sorted(i for token, i in added.items() if _CODE.fullmatch(token)), dtype=np.int64)


def batches(
    sequences: Sequence[TokenSequence],
    size: int,
    seed: int,
    codes: NDArray[np.int64],
    pool: int | None = None,
) -> Iterator[list[TokenSequence]]:
    """Endless batches, shuffled anew each pass, in which codes are exchanged for others.

    A code says nothing about the product it names. A small model learns by heart which one followed which
    words all the same, and finds none on a page it has not seen. So each time a demonstration is shown, its
    codes are drawn anew (the same one for the same one): only the page tells which to click.

    Args:
        sequences: demonstrations.
        size: of a batch; what is left over at the end of a pass is dropped. Where there are fewer
            demonstrations than this, a batch is all of them.
        seed: of the order and of the codes.
        codes: tokens to exchange; none changes nothing.
        pool: exchange them for the first so many alone; None: for any. To tell a few apart and copy them is
            learned far sooner than to do it with a thousand, and it is the same skill.

    Raises:
        ValueError: no demonstrations; a sequence holds more codes than the pool.
    """
    if not sequences:
        raise ValueError("demonstrations: there are none to learn from")
    order, drawn = np.random.default_rng(seed), np.random.default_rng((seed, 1))
    size = min(size, len(sequences))
    while True:
        places = order.permutation(len(sequences))
        for start in range(0, len(places) - size + 1, size):
            yield [_exchanged(sequences[place], codes, pool, drawn) for place in places[start : start + size]]


def _exchanged(
    sequence: TokenSequence, codes: NDArray[np.int64], pool: int | None, random: np.random.Generator
) -> TokenSequence:
    present = np.intersect1d(sequence.tokens, codes)
    if not len(present):
        return sequence
    drawn = random.choice(codes[:pool], size=len(present), replace=False)
    table = np.arange(int(sequence.tokens.max()) + 1)
    table[present] = drawn
    return replace(sequence, tokens=table[sequence.tokens])


def imitate(
    actor: Actor,
    batches: Iterator[list[TokenSequence]],
    *,
    steps: int,
    lr: float,
    micro_tokens: int,
    evaluate: Callable[[int], bool],
    evaluate_every: int,
    context_weight: float = 0.0,
    progress: Callable[[int, float], None] = lambda _step, _loss: None,
) -> int:
    """Maximise the likelihood of the demonstrated responses until `evaluate` says it is enough.

    AdamW with a linear warm-up over the first 75 steps and a constant rate after it. The loss of a batch is
    the mean over its response tokens, plus `context_weight` times the mean over all other tokens. Pages
    repeat what they showed before: predicting them teaches copying, which few response tokens in long
    episodes teach slowly.

    Args:
        actor: updated in place.
        batches: endless batches of demonstrations.
        steps: at most this many.
        lr: peak learning rate.
        micro_tokens: padded tokens per forward.
        evaluate: called with the step count every `evaluate_every` steps; True stops.
        evaluate_every: see above.
        context_weight: weight of what the environment said; 0 leaves it out.
        progress: called with (step, loss).

    Returns:
        Steps taken.
    """
    optimizer = torch.optim.AdamW(actor.model.parameters(), lr=lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))
    for step in range(1, steps + 1):
        optimizer.zero_grad(set_to_none=True)
        loss = _descend(actor, next(batches), micro_tokens, context_weight)
        torch.nn.utils.clip_grad_norm_(actor.model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step, loss)
        if step % evaluate_every == 0 and evaluate(step):
            return step
    return steps


def _descend(actor: Actor, batch: Sequence[TokenSequence], micro_tokens: int, context_weight: float) -> float:
    """Add a batch's gradients to the weights', and return its loss over response tokens alone."""
    responses = sum(end - start for s in batch for start, end in s.spans)
    others = sum(len(s.tokens) - 1 for s in batch) - responses
    total = 0.0
    for chosen in buckets([len(s.tokens) for s in batch], micro_tokens):
        part = [batch[i] for i in chosen]
        spans = [((1, len(s.tokens)),) if context_weight else s.spans for s in part]
        logprobs = score(actor, [s.tokens for s in part], spans, layer=None).logprobs
        mask = (
            torch.from_numpy(_responses(part))
            if context_weight
            else torch.ones(len(logprobs), dtype=torch.bool)
        )
        loss = -logprobs[mask].sum() / responses
        total += float(loss.detach())
        if context_weight:
            loss = loss - context_weight * logprobs[~mask].sum() / max(others, 1)
        loss.backward()
    return total


def _responses(sequences: Sequence[TokenSequence]) -> NDArray[np.bool_]:
    """True at response tokens, over all tokens but each sequence's first, one sequence after the other."""
    masks = [np.zeros(len(s.tokens), dtype=np.bool_) for s in sequences]
    for mask, sequence in zip(masks, sequences, strict=True):
        for start, end in sequence.spans:
            mask[start:end] = True
    return np.concatenate([mask[1:] for mask in masks])
