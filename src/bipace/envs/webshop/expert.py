"""The scripted shopper, for demonstrations: search with the instruction's words, pick, choose, buy.

It sees what the shop knows (the scores that purchases would have), and acts as a careful person would: the
query is made of the instruction's own words, the product is the first one listed that does the job, and the
options are chosen in page order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bipace.envs.webshop.catalogue import Product
from bipace.envs.webshop.goals import Goal
from bipace.envs.webshop.pages import PER_PAGE
from bipace.envs.webshop.reward import matched_options
from bipace.envs.webshop.shop import Shop

__all__ = ["best_options", "first_page", "plan", "query_words"]

_PRICE = re.compile(r",? (?:and )?price (?:lower|less) than [\d.]+ dollars\s*$")
_POLITE_TEXT = """
i am im is are looking for need want would like to buy get find me show please a an the some of that and in
with
"""
_POLITE = frozenset(_POLITE_TEXT.split())


def query_words(instruction: str) -> str:
    """The words of an instruction worth searching for, in its order.

    No price, no polite phrases, no punctuation.
    """
    words = re.findall(r"[\w'\u2019.&-]*\w", _PRICE.sub("", instruction.lower()))
    return " ".join(word for word in words if word not in _POLITE)


def plan(shop: Shop, goal: Goal) -> tuple[str, ...]:
    """Actions that buy the best product a shopper can find for this goal.

    A score of 1 wherever search finds one.

    The instruction's words are tried first, the title of the product that the goal was written for second.
    """
    best: tuple[float, tuple[str, ...]] = (-1.0, ())
    for query in (query_words(goal.instruction), _searchable(goal.title)):
        if not query:
            continue
        for place, product in enumerate(shop.search(query)):
            chosen = best_options(product, goal)
            score = shop.score(product, goal, chosen).total
            if score > best[0]:
                best = (score, _actions(query, place, product, chosen))
            if score == 1.0:
                return best[1]
    return best[1]


def first_page(shop: Shop, goal: Goal) -> tuple[str, ...]:
    """Actions that buy the best product on the first page the instruction's words find, first of equals.

    `plan` turns pages for products of which a shopper has seen nothing that would make them do so: who
    imitates it learns to turn pages at random. Nothing to search for, or nothing found, gives no actions.
    """
    query = query_words(goal.instruction)
    hits = shop.search(query)[:PER_PAGE] if query else ()
    if not hits:
        return ()
    choices = [best_options(product, goal) for product in hits]
    scores = [shop.score(product, goal, chosen).total for product, chosen in zip(hits, choices, strict=True)]
    place = scores.index(max(scores))
    return _actions(query, place, hits[place], choices[place])


def _searchable(title: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"[\[\]]", " ", title)).strip().lower()


def _actions(query: str, place: int, product: Product, chosen: Mapping[str, str]) -> tuple[str, ...]:
    return (
        f"search[{query}]",
        *["click[next >]"] * (place // PER_PAGE),
        f"click[{product.asin}]",
        *(f"click[{value}]" for value in chosen.values()),
        "click[buy now]",
    )


def best_options(product: Product, goal: Goal) -> dict[str, str]:
    """Option name -> value, in page order.

    For each wish an equal value where there is one, else a similar one.
    """
    chosen: dict[str, str] = {}
    for wish in goal.options:
        text = wish if isinstance(wish, str) else wish[1]
        offers = [(name, value) for name, values in product.options if name not in chosen for value in values]
        equal = [offer for offer in offers if offer[1] == text]
        fitting = equal or [offer for offer in offers if matched_options([offer[1]], [wish])]
        if fitting:
            chosen[fitting[0][0]] = fitting[0][1]
    return {name: chosen[name] for name, _ in product.options if name in chosen}
