"""Imitation's material: demonstrations as token sequences, and a tokenizer in which codes are single
tokens.
"""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from bipace.policies.hf import Actor
from bipace.rollout.prompts import Chat
from bipace.train.imitation import SIZES, Demonstration, batches, code_tokens, encode, new_actor

SHOWN = Demonstration(
    "buy tea",
    (
        ("search[tea]", "1 hit: B0G2ST3M0X TEABAGS"),
        ("click[B0G2ST3M0X]", "tea, 12345678"),
        ("click[buy now]", "1.0"),
    ),
)


@pytest.fixture(scope="module")
def actor():
    return new_actor(replace(SIZES["small"], vocabulary=300), [SHOWN], seed=0)


def spoken(actor, sequence):
    return [actor.tokenizer.decode(sequence.tokens[start:end]) for start, end in sequence.spans]


def test_a_code_is_one_token_and_other_words_are_not(actor, tmp_path):
    actor.save(tmp_path / "actor")
    loaded = Actor.load(tmp_path / "actor").tokenizer
    for tokenizer in (actor.tokenizer, loaded):
        inside = tokenizer.encode("click[B0G2ST3M0X]", add_special_tokens=False)
        assert [tokenizer.decode([i]) for i in inside].count("B0G2ST3M0X") == 1
        assert tokenizer.decode(inside) == "click[B0G2ST3M0X]"
        for word in ("TEABAGS", "12345678", "B0G2ST3M0Y"):
            assert len(tokenizer.encode(word, add_special_tokens=False)) > 1
        assert "B0G2ST3M0X" not in tokenizer.all_special_tokens  # text, which nothing breaks up or hides


def test_a_demonstration_is_taken_whole_or_up_to_a_turn(actor):
    chat, end = Chat(actor.tokenizer), actor.end_token_ids[0]
    whole = encode(chat, actor.tokenizer, SHOWN, end)
    assert spoken(actor, whole) == [
        "search[tea]<|im_end|>",
        "click[B0G2ST3M0X]<|im_end|>",
        "click[buy now]<|im_end|>",
    ]
    first = encode(chat, actor.tokenizer, SHOWN, end, turns=1)
    assert spoken(actor, first) == ["search[tea]<|im_end|>"]
    assert first.tokens.tolist() == whole.tokens[: len(first.tokens)].tolist()


def test_what_stands_between_marks_has_the_same_tokens_everywhere(tmp_path):
    shown = Demonstration(
        "pick", (("search[tea]", "size [SEP] pale blue [SEP] jade"), ("click[pale blue]", "1.0"))
    )
    marks = (" [SEP] ", "[", "]")
    new_actor(replace(SIZES["small"], vocabulary=300), [shown], seed=0, marks=marks).save(tmp_path / "a")
    loaded = Actor.load(tmp_path / "a").tokenizer
    page, click = (
        loaded.encode(text, add_special_tokens=False) for text in (shown.turns[0][1], shown.turns[1][0])
    )
    mark, opening, closing = (loaded.convert_tokens_to_ids(mark) for mark in marks)
    first, last = (at for at, token in enumerate(page) if token == mark)
    assert click[click.index(opening) + 1 : click.index(closing)] == page[first + 1 : last]
    assert [loaded.decode(tokens) for tokens in (page, click)] == [shown.turns[0][1], shown.turns[1][0]]


def test_codes_are_exchanged_for_others_and_nothing_else_is(actor):
    other = replace(SHOWN, turns=(("click[B0G2ST3M0X]", "not B0G7ZZZZZ1"), ("click[B0G2ST3M0X]", "")))
    made = new_actor(replace(SIZES["small"], vocabulary=300), [SHOWN, other], seed=0)
    chat, end, codes = Chat(made.tokenizer), made.end_token_ids[0], code_tokens(made.tokenizer)
    assert made.tokenizer.convert_ids_to_tokens(codes.tolist()) == ["B0G2ST3M0X", "B0G7ZZZZZ1"]
    sequence = encode(chat, made.tokenizer, other, end)
    endless = batches([sequence], 1, 0, codes)
    shown = [next(endless)[0] for _ in range(20)]
    assert {made.tokenizer.decode(s.tokens[slice(*s.spans[0])]) for s in shown} == {
        "click[B0G2ST3M0X]<|im_end|>", "click[B0G7ZZZZZ1]<|im_end|>",
    }  # fmt: skip
    places = [place for place, token in enumerate(sequence.tokens) if token in codes]
    for one in shown:
        assert one.spans == sequence.spans
        assert np.delete(one.tokens, places).tolist() == np.delete(sequence.tokens, places).tolist()
        clicked, *_ = read = one.tokens[places].tolist()
        assert read.count(clicked) == sequence.tokens[places].tolist().count(sequence.tokens[places[0]])
    first = next(batches([encode(chat, made.tokenizer, SHOWN, end)], 1, 0, codes, pool=1))[0]
    assert set(first.tokens[np.isin(first.tokens, codes)]) == {codes[0]}
    with pytest.raises(ValueError, match="larger sample"):
        next(batches([sequence], 1, 0, codes, pool=1))


def test_batches_are_passes_in_an_order_of_the_seed(actor):
    chat, end = Chat(actor.tokenizer), actor.end_token_ids[0]
    texts = [encode(chat, actor.tokenizer, replace(SHOWN, first=f"buy {n}"), end) for n in range(5)]

    def passes(seed):
        endless = batches(texts, 2, seed, code_tokens(actor.tokenizer))
        return [[actor.tokenizer.decode(s.tokens) for s in next(endless)] for _ in range(4)]

    assert passes(0) == passes(0) != passes(1)
    assert len({text for batch in passes(0)[:2] for text in batch}) == 4


def test_fewer_demonstrations_than_a_batch_are_a_batch_and_none_is_an_error(actor):
    chat, end = Chat(actor.tokenizer), actor.end_token_ids[0]
    few = [encode(chat, actor.tokenizer, replace(SHOWN, first=f"buy {n}"), end) for n in range(3)]
    endless = batches(few, 64, 0, code_tokens(actor.tokenizer))
    assert [len(next(endless)) for _ in range(3)] == [3, 3, 3]
    with pytest.raises(ValueError, match="there are none to learn from"):
        next(batches([], 64, 0, code_tokens(actor.tokenizer)))
