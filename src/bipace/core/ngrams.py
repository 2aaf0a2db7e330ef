"""Lexical vectors of texts: the paper's control for hidden states (n-gram hash clusters).

Two texts that share most of their character n-grams lie near each other, whatever they mean. Clustered by the
same greedy pass as hidden states, they answer the question whether the actor's states add anything to the
words.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["ngram_vectors"]


def ngram_vectors(texts: Sequence[str], n: int = 3, width: int = 1024) -> NDArray[np.float32]:
    """[T, width] counts of hashed character n-grams, lower-cased, runs of blanks as one.

    The hash is CRC-32 of the UTF-8 bytes, so that every process and machine gives the same vectors. A text
    shorter than n is one n-gram; an empty text gives the zero vector. The form is our reading: the sources
    name the control ("n-gram hash clusters with Q-style") and not its details.

    Raises:
        ValueError: n or width below 1.
    """
    if n < 1 or width < 1:
        raise ValueError(f"n, width: {n}, {width}, expected at least 1 character and 1 bucket")
    vectors = np.zeros((len(texts), width), np.float32)
    for row, text in enumerate(texts):
        plain = " ".join(text.lower().split())
        grams = [plain[i : i + n] for i in range(max(len(plain) - n + 1, min(len(plain), 1)))]
        buckets = [zlib.crc32(gram.encode("utf-8", "surrogatepass")) % width for gram in grams]
        np.add.at(vectors[row], buckets, 1.0)
    return vectors
