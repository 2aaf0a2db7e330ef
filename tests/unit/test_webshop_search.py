"""WebShop's search: known queries, one order in every process, a cache that follows the data."""

import math

import pytest

from bipace.envs.webshop.search import open_index, terms

SHELF = (
    "red running shoes",
    "blue running shoes with memory foam",
    "coffee table of solid wood",
    "table lamp",
    "running running running jacket",
)


def test_terms_are_lower_case_stemmed_and_without_stop_words():
    assert terms("The Men's RUNNING shoes, 5.5 inch (and socks)") == [
        "men",
        "run",
        "shoe",
        "5.5",
        "inch",
        "sock",
    ]
    assert terms("") == terms("the of ...") == []


def test_known_queries_find_the_right_documents():
    index = open_index(SHELF, "d" * 64, None)
    assert index.top("blue shoes")[0] == 1
    assert index.top("wooden coffee tables")[0] == 2
    assert set(index.top("table")) == {2, 3}
    assert index.top("table")[0] == 3  # the shorter document of two with the word
    assert index.top("RUNS")[0] == 4  # the most frequent, under the same stem
    assert index.top("spaceship") == index.top("") == index.top("the") == ()


def test_scores_are_lucenes_bm25():
    index = open_index(SHELF, "d" * 64, None)
    lengths = [len(terms(text)) for text in SHELF]
    mean = sum(lengths) / len(SHELF)

    def score(query, place):
        total = 0.0
        for term in terms(query):
            having = sum(term in terms(text) for text in SHELF)
            frequency = terms(SHELF[place]).count(term)
            weight = math.log(1 + (len(SHELF) - having + 0.5) / (having + 0.5))
            total += weight * frequency / (frequency + 0.9 * (1 - 0.4 + 0.4 * lengths[place] / mean))
        return total

    for query in ("running shoes", "table wood", "running running jacket foam"):
        expected = sorted(
            (place for place in range(5) if score(query, place)), key=lambda p: (-score(query, p), p)
        )
        assert list(index.top(query)) == expected


def test_equal_documents_keep_their_order_and_the_cut_is_exact():
    index = open_index(["same words here"] * 120, "d" * 64, None)
    assert index.top("same words") == tuple(range(50))
    assert index.top("same", 7) == tuple(range(7))


def test_index_is_stored_found_again_and_rebuilt_when_broken(tmp_path):
    first = open_index(SHELF, "a" * 64, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1

    def never():
        raise AssertionError("the stored index must be used")
        yield

    stored = open_index(never(), "a" * 64, tmp_path)
    assert stored.top("running shoes") == first.top("running shoes")
    with pytest.raises(AssertionError):
        open_index(never(), "b" * 64, tmp_path)  # other data, other index
    (folder,) = tmp_path.iterdir()
    for name in ("params.index.json", "indices.csc.index.npy", "size.json"):
        (folder / name).write_bytes(b"")
        assert open_index(SHELF, "a" * 64, tmp_path).top("running shoes") == first.top("running shoes")
    assert len(list(tmp_path.iterdir())) == 1  # no drafts are left behind


def test_an_unwritable_cache_costs_time_only(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        (tmp_path / "file" / "x").mkdir(parents=True)
    assert open_index(SHELF, "a" * 64, tmp_path / "file" / "x").top("lamp") == (3,)


def test_nothing_to_index_finds_nothing(tmp_path):
    for documents in ((), ("the", "of")):
        digest = str(len(documents)) * 64
        assert open_index(documents, digest, tmp_path).top("lamp") == ()
        assert open_index(documents, digest, tmp_path).top("lamp") == ()


def test_a_very_long_query_is_cut():
    index = open_index(SHELF, "d" * 64, None)
    assert index.top("shoes " * 64 + "lamp " * 10_000) == index.top("shoes " * 64)
