"""A small chat tokenizer, trained on the texts of one environment.

Qwen2's byte-level BPE with the ChatML template.

Byte level means that any text has tokens; the merges make an item's words one token each, which is what lets
a model of a tenth of a million parameters copy them. It is the very class that loaders choose for a Qwen2
model: they look at the model's type and rebuild the splitting rules from that class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AddedToken, Qwen2Tokenizer

__all__ = ["CHATML", "END", "PAD", "train_tokenizer"]

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% "
    "endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocabulary: int, codes: Sequence[str] = ()) -> Qwen2Tokenizer:
    """Train on the texts; deterministic for the same texts in the same order.

    Args:
        texts: what the model will read and write.
        vocabulary: number of learned tokens, at least 259 (256 bytes and 3 special tokens).
        codes: strings that become one token each beside those, such as separators and product ids: a small
            model can point at a code where spelling it would be too much.
    """
    empty = Qwen2Tokenizer().backend_tokenizer
    learner = Tokenizer(models.BPE())
    learner.normalizer, learner.pre_tokenizer = empty.normalizer, empty.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    learned = json.loads(learner.to_str())["model"]
    # pairs are taken; the annotation knows only text
    merges: Any = [tuple(pair) for pair in learned["merges"]]
    tokenizer = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=merges,
        unk_token=PAD,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
    )
    tokenizer.add_tokens([AddedToken(code, normalized=False) for code in codes])
    tokenizer.chat_template = CHATML
    return tokenizer
