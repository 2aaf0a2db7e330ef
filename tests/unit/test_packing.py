"""Packing: every sequence can be read back from it, a shared prompt is there once, and no forward is too
large.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies.packing import micro_batches, pack
from bipace.policies.scoring import buckets


@st.composite
def families(draw):
    """Sequences in any order, some of which begin with the same prompt, or with a part of another's."""
    alphabet = st.integers(0, 2)
    prompts = draw(st.lists(st.lists(alphabet, min_size=1, max_size=7), min_size=1, max_size=4))
    sequences, spans = [], []
    for prompt in draw(st.lists(st.sampled_from(prompts), min_size=1, max_size=9)):
        after = draw(st.lists(alphabet, min_size=1, max_size=9))
        end = len(prompt) + draw(st.integers(1, len(after)))
        sequences.append(np.array(prompt + after))
        spans.append(((len(prompt), end),))
    return sequences, spans


def head_counts(sequences, spans):
    heads = [tuple(tokens[: of[0][0] - 1]) for tokens, of in zip(sequences, spans, strict=True)]
    return {head: heads.count(head) for head in heads}, heads


@given(families())
def test_every_sequence_is_read_back_and_shared_prompts_are_kept_once(given):
    sequences, spans = given
    packed = pack(sequences, spans, torch.device("cpu"))
    counts, heads = head_counts(sequences, spans)
    shared = sum(len(head) for head, count in counts.items() if count > 1)
    tails = sum(len(s) - (len(h) if counts[h] > 1 else 0) for s, h in zip(sequences, heads, strict=True))
    assert len(packed.ids) == len(packed.positions) == len(packed.places) == shared + tails
    seen = packed.sees(torch.arange(packed.tails.shape[1]).expand(packed.tails.shape))
    for row, (tokens, head) in enumerate(zip(sequences, heads, strict=True)):
        start = len(head) if counts[head] > 1 else 0
        for position in range(start, len(tokens)):
            token = packed.first[row] + position
            assert packed.ids[token] == tokens[position]
            assert packed.positions[token] == position
            looks = packed.shared[row][seen[row, position - start]]
            assert packed.ids[looks].tolist() == tokens[: position + 1].tolist()
            assert packed.positions[looks].tolist() == list(range(position + 1))
    cells = torch.cat([packed.prompts.flatten(), packed.tails.flatten()])
    assert cells[packed.places].tolist() == list(range(len(packed.ids)))


@given(families(), st.integers(1, 80))
def test_forwards_hold_every_sequence_once_and_stay_within_the_budget(given, budget):
    sequences, spans = given
    batches = micro_batches(sequences, spans, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sequences)))
    for batch in batches:
        packed = pack([sequences[i] for i in batch], [spans[i] for i in batch], torch.device("cpu"))
        assert len(batch) == 1 or packed.prompts.numel() + packed.tails.numel() <= budget


def test_a_family_stays_together_and_the_longest_come_first():
    prompt = np.arange(10)
    sequences = [
        np.arange(100, 105),
        np.append(prompt, [20]),
        np.append(prompt, [21, 22]),
        np.append(prompt, [30, 31, 32]),
    ]
    spans = [((4, 5),), ((10, 11),), ((10, 12),), ((10, 13),)]
    # The prompt's nine shared tokens and three tails of four fill a forward of 21.
    assert micro_batches(sequences, spans, 21) == [[3, 2, 1], [0]]
    assert micro_batches(sequences, spans, 1000) == [[3, 2, 1, 0]]
    assert micro_batches(sequences, spans, 1) == [[3], [2], [1], [0]]
    assert micro_batches([], [], 5) == []
    with pytest.raises(ValueError, match="max_tokens is 0; it must be at least 1"):
        micro_batches(sequences, spans, 0)


def test_buckets_hold_similar_lengths_within_the_budget():
    assert buckets([3, 10, 4, 9, 30], 20) == [[4], [1, 3], [2, 0]]
    assert buckets([], 5) == []
