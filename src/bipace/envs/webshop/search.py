"""Full-text search over the catalogue: BM25 as Lucene computes it, from the library bm25s.

Chosen by measurement against tantivy (benchmarks/webshop.py): bm25s scores exactly, without threads or
segments, so that equal products rank in one fixed order in every process; its parameters and its stemmer can
be the ones of the public WebShop (k1 = 0.9, b = 0.4, English stop words, Porter stemming), which tantivy
fixes at others.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

try:
    import bm25s
    import Stemmer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"WebShop needs the package {error.name!r}: install the extra with pip install 'bipace[webshop]'",
        name=error.name,
    ) from error

__all__ = ["SearchIndex", "open_index", "terms"]

K1, B = 0.9, 0.4
MAX_TERMS = 64  # of one query; longer ones are cut, so that no query can take long
_FORMAT = 1  # of the cached index: another number never reads this one's files
_TERM = re.compile(r"[a-z0-9]+(?:[.'\u2019][a-z0-9]+)*")
_POSSESSIVE = re.compile(r"['\u2019]s?$")
_STOP_WORD_TEXT = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with
"""
_STOP_WORDS = frozenset(_STOP_WORD_TEXT.split())
_STEMMER = Stemmer.Stemmer("porter")


def terms(text: str) -> list[str]:
    """The terms of a text, in order: lower case, without possessives and stop words, Porter-stemmed."""
    return [_stem(word) for word in _TERM.findall(text.lower()) if word not in _STOP_WORDS]


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return _STEMMER.stemWord(_POSSESSIVE.sub("", word))


class SearchIndex:
    """A built index.

    Safe to share between environments and threads: nothing in it changes but a bounded cache.
    """

    def __init__(self, engine: bm25s.BM25, size: int) -> None:
        self._engine = engine
        self._size = size
        self.top = lru_cache(maxsize=4096)(self._top)

    def _top(self, query: str, k: int = 50) -> tuple[int, ...]:
        """Numbers of the best documents, best first; equal scores in document order.

        None with a score of zero.
        """
        known = [
            number
            for term in terms(query)[:MAX_TERMS]
            if (number := self._engine.vocab_dict.get(term)) is not None
        ]
        if not known or not self._size:
            return ()
        scores = self._engine.get_scores_from_ids(known)
        matched = np.flatnonzero(scores > 0)
        if len(matched) > k:
            # Every document at least as good as the k-th: ties at the edge are then decided by number, not by
            # chance.
            edge = np.partition(scores[matched], len(matched) - k)[len(matched) - k]
            matched = matched[scores[matched] >= edge]
        order = np.lexsort((matched, -scores[matched]))[:k]
        return tuple(int(number) for number in matched[order])

    @property
    def nbytes(self) -> int:
        """Bytes of the index's arrays."""
        return sum(array.nbytes for array in self._engine.scores.values() if isinstance(array, np.ndarray))


def open_index(documents: Iterable[str], digest: str, cache: Path | None) -> SearchIndex:
    """The index of these documents, from the cache when it is there, otherwise built and stored.

    Args:
        documents: the texts; read only when the index must be built.
        digest: identifies the documents; other data has another digest and so another index.
        cache: folder of stored indexes, or None to keep nothing. A stored index appears whole or not at all;
            one that cannot be read is built again.
    """
    folder = None if cache is None else cache / f"bm25-{_FORMAT}-{digest[:32]}"
    if folder is not None and folder.is_dir():
        try:
            return _load(folder)
        except (OSError, ValueError, KeyError, EOFError):
            shutil.rmtree(folder, ignore_errors=True)
    index, size = _build(documents)
    if folder is not None:
        _store(index, size, folder)
    return SearchIndex(index, size)


def _build(documents: Iterable[str]) -> tuple[bm25s.BM25, int]:
    vocabulary: dict[str, int] = {}
    rows: list[NDArray[np.int32]] = []
    for document in documents:
        rows.append(
            np.array([vocabulary.setdefault(term, len(vocabulary)) for term in terms(document)], np.int32)
        )
    engine = bm25s.BM25(method="lucene", k1=K1, b=B)
    engine.vocab_dict = vocabulary
    if vocabulary:
        engine.index((rows, vocabulary), create_empty_token=False, show_progress=False)
    return engine, len(rows) if vocabulary else 0


def _store(engine: bm25s.BM25, size: int, folder: Path) -> None:
    # The cache only saves time: a full disk, or another process that was faster, is no reason to stop.
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".bm25-", dir=folder.parent))
        try:
            if size:
                engine.save(draft, show_progress=False)
            (draft / "size.json").write_text(json.dumps(size), encoding="utf-8")
            draft.replace(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _load(folder: Path) -> SearchIndex:
    size = json.loads((folder / "size.json").read_text(encoding="utf-8"))
    if not size:
        return SearchIndex(_build(())[0], 0)
    return SearchIndex(bm25s.BM25.load(folder, load_corpus=False, show_progress=False), size)
