"""The shop as an environment: one session of one shopper with one goal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bipace.envs.base import Turn
from bipace.envs.webshop.catalogue import Product, price_of
from bipace.envs.webshop.goals import Goal
from bipace.envs.webshop.nouns import NounFinder
from bipace.envs.webshop.pages import (
    ATTRIBUTES,
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    SEARCH_ACTION,
    SUB_PAGES,
    View,
    clickables,
    page_text,
)
from bipace.envs.webshop.reward import Score, score_purchase
from bipace.envs.webshop.search import SearchIndex

__all__ = ["HITS", "Shop", "WebShop"]

HITS = 50  # products a search returns at most
MAX_ACTION = 2_000  # characters of an action that are read
_ACTION = re.compile(r"(search|click)\[(.+)\]", re.IGNORECASE)
_SUB_PAGES = {name.lower(): name for name in (*SUB_PAGES, ATTRIBUTES)}


@dataclass(frozen=True)
class Shop:
    """What all sessions share, none of it ever changed.

    Attributes:
        products: in catalogue order: the index's numbers point here.
        index: the search index over them.
        nouns: the noun finder of the reward's type clause.
        seed: fixes the price of products that have a range.
        show_attributes: adds the sub-page that lists a product's attributes (the public shop hides it by
            default).
        hits: products a search returns at most; 50 in the public shop.
    """

    products: Sequence[Product]
    index: SearchIndex
    nouns: NounFinder
    seed: int
    show_attributes: bool = False
    hits: int = HITS

    def search(self, query: str) -> tuple[Product, ...]:
        """The products a query finds, best first, at most `hits`."""
        return tuple(self.products[number] for number in self.index.top(query, self.hits))

    def score(self, product: Product, goal: Goal, chosen: Mapping[str, str]) -> Score:
        """Score of buying this product with these options for this goal."""
        return score_purchase(product, goal, price_of(product, self.seed), chosen, self.nouns)


class WebShop:
    """Plays episodes: an `Environment` of `bipace.envs.base`.

    Actions are `search[words]`, on every page before buying as in the public shop, and `click[name]` with a
    name from the page; case and white space around do not matter. Anything else changes nothing: it gives the
    same page with reward 0 and valid=False, and is counted in `no_ops`. Clicking `buy now` ends the episode;
    its reward is the score.

    Attributes:
        goal: the goal of the episode.
        view: where the shopper is.
        score: the purchase and its clauses, None before buying.
        no_ops: actions of this episode that did nothing.
    """

    def __init__(self, shop: Shop, goal_of: Callable[[str], Goal]) -> None:
        self.shop = shop
        self.goal: Goal | None = None
        self.view = View()
        self.score: Score | None = None
        self.no_ops = 0
        self._goal_of = goal_of

    def reset(self, task: str) -> Turn:
        """Begin the task with this id. Raises UnknownTask."""
        self.goal = self._goal_of(task)
        self.view, self.score, self.no_ops = View(), None, 0
        return self._turn()

    def step(self, action: str) -> Turn:
        """Apply one action. Any text is accepted.

        Raises:
            RuntimeError: before the first reset.
        """
        if self.goal is None:
            raise RuntimeError("WebShop: reset(task) must come before step(action)")
        command = self._understood(action)
        if command is None:
            self.no_ops += 1
            return self._turn(valid=False)
        self.view = self._after(*command)
        verb, argument = command
        return self._turn(self.view.reward, executed=f"{verb}[{argument}]")

    def copy(self) -> WebShop:
        """An independent environment in the same state."""
        other = WebShop(self.shop, self._goal_of)
        other.goal, other.view, other.score, other.no_ops = self.goal, self.view, self.score, self.no_ops
        return other

    def _turn(self, reward: float = 0.0, valid: bool = True, executed: str | None = None) -> Turn:
        done = self.view.kind == "done"
        names = clickables(self.view, self.shop.show_attributes)
        search = (SEARCH_ACTION,) if self.view.kind == "search" else ()
        return Turn(
            observation=page_text(
                self.view, self.goal.instruction if self.goal else "", self.shop.show_attributes
            ),
            reward=reward,
            terminated=done,
            won=done and self.view.reward == 1.0,
            valid=valid,
            admissible=(*search, *(f"click[{name}]" for name in names)),
            executed=executed,
            unlisted=not done,
        )

    def _understood(self, action: str) -> tuple[str, str] | None:
        """Verb and argument of an action that does something here, lower case, white space made single."""
        match = _ACTION.match(action[:MAX_ACTION].strip())
        if match is None or self.view.kind == "done":
            return None
        verb, argument = match[1].lower(), match[2].lower()
        if verb == "search":
            return verb, " ".join(argument.split())
        return (verb, argument) if argument in clickables(self.view, self.shop.show_attributes) else None

    def _after(self, verb: str, argument: str) -> View:
        """The view after an action that was understood."""
        if verb == "search":
            return View("results", hits=self.shop.search(argument))
        return self._results_click(argument) if self.view.kind == "results" else self._item_click(argument)

    def _results_click(self, name: str) -> View:
        view = self.view
        if name == BACK.lower():
            return View()
        if name in (NEXT.lower(), PREVIOUS.lower()):
            return replace(view, number=view.number + (1 if name == NEXT.lower() else -1))
        product = next(product for product in view.hits if product.asin.lower() == name)
        return replace(view, kind="item", product=product)

    def _item_click(self, name: str) -> View:
        view = self.view
        if name == BACK.lower():
            return View()
        if name == PREVIOUS.lower():
            if view.kind == "sub":
                return replace(view, kind="item", sub="")
            # leaving a product forgets its options
            return View("results", hits=view.hits, number=view.number)
        if name == BUY.lower():
            return self._bought()
        if name in _SUB_PAGES:
            return replace(view, kind="sub", sub=_SUB_PAGES[name])
        return replace(view, chosen=_choose(view, name))

    def _bought(self) -> View:
        product, goal = self.view.product, self.goal
        if product is None or goal is None:
            raise RuntimeError("WebShop: nothing to buy on this page")
        self.score = self.shop.score(product, goal, dict(self.view.chosen))
        return replace(self.view, kind="done", reward=self.score.total)


def _choose(view: View, value: str) -> tuple[tuple[str, str], ...]:
    """The chosen options with this value added.

    Of two options that offer it the later one takes it, as in public.
    """
    options = view.product.options if view.product else ()
    name = [name for name, values in options if value in values][-1]
    return tuple({**dict(view.chosen), name: value}.items())
