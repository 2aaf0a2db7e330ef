"""WebShop against the public code: rewards and pages that it computed for products of the generated
catalogue.

tests/golden/webshop_public.json was written by princeton-nlp/WebShop at commit 64fa2a5 (its `get_reward` with
spaCy's en_core_web_sm 3.8.0, its page templates with its text conversion). The nouns that spaCy found are in
the file too, so that the comparison needs no spaCy.
"""

import json
from pathlib import Path

import pytest

from bipace.envs.webshop import generated_suite
from bipace.envs.webshop.catalogue import price_of
from bipace.envs.webshop.nouns import NounFinder
from bipace.envs.webshop.pages import View, clickables, page_text
from bipace.envs.webshop.reward import score_purchase

GOLDEN_FILE = Path(__file__).resolve().parents[1] / "golden" / "webshop_public.json"
GOLDEN = json.loads(GOLDEN_FILE.read_text(encoding="utf-8"))
SPACY = NounFinder("spacy", lambda title: tuple(GOLDEN["nouns"][title]))


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    folder = tmp_path_factory.mktemp("webshop")
    return {kind: generated_suite(goals=kind, cache_folder=folder) for kind in ("human", "synthetic")}


def test_rewards_equal_the_public_codes(shops):
    products = {product.asin: product for product in shops["human"].shop.products}
    for case in GOLDEN["rewards"]:
        product, goal = products[case["asin"]], shops[case["goals"]].goals[case["goal"]]
        assert (
            score_purchase(product, goal, price_of(product, 0), case["chosen"], SPACY).total == case["reward"]
        )


def test_the_rewards_compared_are_of_many_kinds():
    rewards = [case["reward"] for case in GOLDEN["rewards"]]
    assert len(rewards) == 72
    assert len(set(rewards)) >= 15
    assert {0.0, 1.0} < set(rewards)


def test_pages_and_clickables_equal_the_public_codes(shops):
    shop = shops["human"]
    products = {product.asin: product for product in shop.shop.products}
    kinds = set()
    for case in GOLDEN["pages"]:
        product = products[case["asin"]] if case["view"]["kind"] in ("item", "sub") else None
        view = View(hits=shop.shop.search(case["query"]), product=product, **case["view"])
        assert page_text(view, shop.goals[case["goal"]].instruction, show_attributes=True) == case["text"]
        assert list(clickables(view, show_attributes=True)) == case["clickables"]
        kinds.add(view.sub or view.kind)
    assert kinds == {"search", "results", "item", "Description", "Features", "Reviews", "Attributes"}
