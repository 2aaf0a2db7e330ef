"""WebShop's reward, clause by clause, with numbers worked out by hand from the published formula."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bipace.envs.webshop.catalogue import Product
from bipace.envs.webshop.goals import Goal, price_bound
from bipace.envs.webshop.nouns import NounFinder, noun_finder
from bipace.envs.webshop.reward import (
    COLORS,
    matched_attributes,
    matched_options,
    normalise_color,
    score_purchase,
    similar,
    type_match,
)

WORDS = noun_finder("words")
SHOES = Product(
    asin="B000000001",
    category="fashion",
    query="running shoes",
    product_category="Clothing \u203a Shoes \u203a Running",
    title="Kestrel Trail Running Shoes",
    description="A shoe with a Rubber Sole.",
    bullets=("Arch Support for long days", "Light"),
    attributes=("memory foam", "lace up"),
    options=(("color", ("navy blue", "black")), ("size", ("8", "9"))),
    prices=(55.0,),
    price_tag="$55.0",
)
WISH = Goal(
    asin="B000000001",
    category="fashion",
    query="running shoes",
    product_category="Clothing \u203a Shoes \u203a Running",
    title="Kestrel Trail Running Shoes",
    instruction="i need running shoes",
    attributes=("memory foam", "rubber sole"),
    options=("navy blue", "9"),
    price_upper=60.0,
)
RIGHT = {"color": "navy blue", "size": "9"}


def nouns(**table):
    """A finder that knows only these titles, so that overlaps are exact."""
    return NounFinder("table", lambda title: tuple(table[title].split()))


def test_everything_right_scores_exactly_one():
    score = score_purchase(SHOES, WISH, 55.0, RIGHT, WORDS)
    assert (score.total, score.success) == (1.0, True)
    assert (score.attributes, score.options, score.price_ok, score.type.factor) == ((2, 2), (2, 2), True, 1.0)


@pytest.mark.parametrize(
    ("price", "chosen", "wish", "expected"),
    [
        (60.0, RIGHT, WISH, 1.0),  # the bound itself is within the bound
        (60.01, RIGHT, WISH, 4 / 5),
        (55.0, {"color": "navy blue"}, WISH, 4 / 5),
        (55.0, {}, WISH, 3 / 5),
        (99.0, {}, WISH, 2 / 5),
        (99.0, {}, replace(WISH, attributes=("solid wood",), options=()), 0.0),
        (55.0, {}, replace(WISH, attributes=("solid wood", "memory foam", "lace up"), options=()), 3 / 4),
        (55.0, RIGHT, replace(WISH, options=()), 1.0),  # options nobody asked for neither help nor harm
    ],
)
def test_score_is_the_share_of_wishes_met_counting_the_price_as_one(price, chosen, wish, expected):
    assert score_purchase(SHOES, wish, price, chosen, WORDS).total == pytest.approx(expected, abs=1e-12)


def test_type_factor_multiplies_the_share():
    other = replace(SHOES, query="sandals", product_category="Garden \u203a Rugs", title="other")
    finder = nouns(**{"other": "kestrel", WISH.title: "kestrel trail running shoes boot track lace sole"})
    # t = 1/8 lies between 0.1 and 0.2: half. Four of five wishes are met.
    score = score_purchase(other, WISH, 99.0, RIGHT, finder)
    assert score.type.title_overlap == 1 / 8
    assert score.total == pytest.approx(0.5 * 4 / 5, abs=1e-12)


@pytest.mark.parametrize(
    ("query", "path", "bought", "factor"),
    [
        ("running shoes", "x", "a", 1.0),  # same query; t = 1/4
        ("other", "Shoes \u203a Clothing \u203a Boots", "a", 1.0),  # two shared levels in any order
        ("other", "Clothing \u203a x", "a", 1.0),  # one level, but t = 1/4 > 0.2
        ("other", "Clothing \u203a Clothing", "e", 0.0),  # a level named twice is one level; t = 0
        ("running shoes", "Clothing \u203a Shoes \u203a Running", "e", 0.0),  # t = 0 overrides the same query
    ],
)
def test_type_clause_with_four_goal_nouns(query, path, bought, factor):
    product = replace(SHOES, query=query, product_category=path, title="bought")
    goal = replace(WISH, title="wanted")
    assert type_match(product, goal, nouns(bought=bought, wanted="a b c d")).factor == factor


@pytest.mark.parametrize(
    ("goal_nouns", "query", "overlap", "factor"),
    [
        ("a b c d e", "other", 1 / 5, 0.5),  # t = 0.2 is not above 0.2
        ("a b c d e f g h i j", "other", 1 / 10, 0.5),  # t = 0.1 is not below 0.1
        ("a b c d e f g h i j k", "other", 1 / 11, 0.1),
        ("a b c d e f g h i j k", "running shoes", 1 / 11, 0.1),  # t < 0.1 overrides the same query
        ("", "other", 0.2, 0.5),  # no nouns: t = 0.2
        ("", "running shoes", 0.2, 1.0),
        ("a a b c", "other", 1 / 4, 1.0),  # a noun repeated in the goal counts in the divisor
    ],
)
def test_type_clause_thresholds(goal_nouns, query, overlap, factor):
    product = replace(SHOES, query=query, product_category="x", title="bought")
    match = type_match(product, replace(WISH, title="wanted"), nouns(bought="a z", wanted=goal_nouns))
    assert (match.title_overlap, match.factor) == (pytest.approx(overlap), factor)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (("memory foam",), 1),
        (("memory foams",), 1),  # 22 of 23 characters: ratio 95.7
        (("foam",), 1),  # a subset of the words: 100
        (("rubber sole",), 1),  # only in the description
        (("arch support",), 1),  # only in the features
        (("trail",), 1),  # only in the title
        (("sole rubber",), 0),  # inside the texts the phrase must stand as it is
        (("solid wood",), 0),
        (("memory foam", "solid wood", "lace up"), 2),
        (("memory foam", "memory foam"), 2),  # each wish counts, even twice the same
    ],
)
def test_attribute_clause(wanted, count):
    assert matched_attributes(SHOES, wanted) == count


@pytest.mark.parametrize(
    ("chosen", "wanted", "count"),
    [
        (["navy blue", "9"], ["navy blue", "9"], 2),
        (
            ["dark blue"],
            ["light blue"],
            1,
        ),  # both hold "blue", which comes before "dark" and "light" in the list
        (["black"], ["white"], 0),
        (["pack of 12"], ["12 pack"], 1),  # "12 of pack" against "12 pack": the shorter set is contained
        (["powder snow"], ["cool powder snow"], 1),
        (["9"], ["9 wide"], 1),
        (["8"], ["9"], 0),
        ([], ["9"], 0),
        (["9"], [], 0),
        (["red", "x"], ["red", "red"], 2),  # one choice may serve two wishes, as in the public code
        (["black"], [("color", "black")], 1),  # a pair that holds a colour word is that word
        (["color"], [("color", "black")], 0),
        (["color"], [("color", "forest green")], 1),  # any other pair is compared whole: "color forest green"
        (["forest green"], [("color", "forest green")], 1),
        (["white"], [("color", "black")], 0),
    ],
)
def test_option_clause(chosen, wanted, count):
    assert matched_options(chosen, wanted) == count


@pytest.mark.parametrize(
    ("value", "color"),
    [
        ("", ""),
        ("black forest", "black"),
        ("violet lavender", "lavender"),
        ("steelivy fuchsia", "fuchsia"),
        ("123alabaster", "alabaster"),
        ("webshop", "webshop"),
        ("dark navy blue", "blue"),
        ("standard", "tan"),  # inside a word too, as in the public code
    ],
)
def test_colors_are_reduced_to_the_first_listed_word(value, color):
    assert normalise_color(value) == color


def test_color_words_are_in_the_public_order():
    assert len(COLORS) == 102
    assert list(COLORS) == sorted(set(COLORS))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Gluten-Free!", "gluten free", True),
        ("a" * 6, "a" * 6 + "bb", True),  # 2*6/14 = 85.71, rounded to 86
        ("abcdefghijklmnopq", "abcdefghijklmnopqrstuvw", False),  # 2*17/40 = 85 exactly
        ("abcdefghijkl", "abcdefghijkxyzl", True),  # 24/27 = 88.9
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "a" * 35, False),  # 70/83 = 84.3
        ("café", "caf", True),  # characters 128-255 are dropped
        ("", "", False),
        ("!!!", "???", False),
    ],
)
def test_similarity_threshold(one, other, expected):
    assert similar(one, other) is expected


@given(st.text("abc 'é-ïX9", max_size=24), st.text("abc 'é-ïX9", max_size=24))
def test_similarity_equals_thefuzz(one, other):
    thefuzz = pytest.importorskip("thefuzz.fuzz", reason="the comparison needs thefuzz, a development extra")
    assert similar(one, other) == (thefuzz.token_set_ratio(one, other) > 85)


@pytest.mark.parametrize(
    ("price", "possible"),
    [
        (5.0, {20.0, 30.0, 40.0}),
        (10.0, {30.0, 40.0, 50.0}),  # 10 is not above 10
        (955.0, {970.0, 980.0, 990.0}),
        (975.0, {990.0}),  # two multiples are left
        (980.0, {None}),
        (5000.0, {None}),
    ],
)
def test_price_bound_is_the_larger_of_two_of_the_next_four_multiples_of_ten(price, possible):
    assert {price_bound(price, random.Random(seed)) for seed in range(100)} == possible


def test_fallback_nouns_leave_out_function_words_units_adjectives_and_numbers():
    assert WORDS.find("2 Pack Wireless Mouse for Laptop, Men's 16 oz") == ("mouse", "laptop", "men's")
    assert WORDS.name == "words"


@pytest.mark.parametrize(
    ("wanted", "bought", "overlap"),
    [
        (
            "adidas Unisex-Adult D.o.n. Issue 2 Basketball Shoe",
            "adidas Unisex-Adult D.o.n. Issue 2 Indoor Court Shoe",
            7 / 8,
        ),
        (
            "Rusticware 921ORB Kitchen and Bath Cabinet Knob",
            "Minkissy 2pcs Stainless Steel Eyebrow Tweezers Blackhead Acne Remover",
            0.0,
        ),
    ],
)
def test_fallback_overlap_on_titles_of_the_public_tests(wanted, bought, overlap):
    match = type_match(replace(SHOES, title=bought), replace(WISH, title=wanted), WORDS)
    assert match.title_overlap == pytest.approx(overlap)


def test_spacy_gives_nouns_and_names_by_its_tags(tmp_path):
    spacy = pytest.importorskip("spacy", reason="spaCy is an optional extra")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("attribute_ruler")
    for word, tag in (("shoes", "NOUN"), ("Kestrel", "PROPN"), ("red", "ADJ")):
        ruler.add([[{"TEXT": word}]], {"POS": tag})
    pipeline.to_disk(tmp_path / "model")
    finder = noun_finder("spacy", str(tmp_path / "model"))
    assert finder.find("Kestrel red shoes shoes") == ("kestrel", "shoes", "shoes")
    assert finder.name.startswith("spacy en_")


def test_an_absent_model_is_an_error_when_asked_for_and_the_fallback_otherwise():
    with pytest.raises(ModuleNotFoundError, match="'no_such_model' is not installed"):
        noun_finder("spacy", "no_such_model")
    assert noun_finder("auto", "no_such_model").name == "words"
    with pytest.raises(ValueError, match="nouns: 'guess'"):
        noun_finder("guess")
