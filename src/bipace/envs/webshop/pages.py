"""The shop's pages: what a shopper sees and can click, as plain data and as the field's text.

The text is the public WebShop's `text` mode: the visible strings of a page in page order, joined by " [SEP]
". Differences from the public pages, each of which only leaves out what misleads:

- "Next >" is there only where a next page is (the public shop also offers an empty sixth page).
- The page after buying shows the score alone. The public page's text also holds the goal, hidden from people
  by CSS.
- `click[search]` is not listed: in the public shop it does nothing.

As in the public shop's text, a chosen option leaves no mark on the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bipace.envs.webshop.catalogue import Product

__all__ = [
    "PER_PAGE",
    "SEARCH_ACTION",
    "SEPARATOR",
    "SUB_PAGES",
    "View",
    "clickables",
    "page_text",
    "shown_products",
]

PER_PAGE = 10
SEARCH_ACTION = "search[<your query>]"
SEPARATOR = " [SEP] "
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
ATTRIBUTES = "Attributes"


@dataclass(frozen=True, slots=True)
class View:
    """Where a shopper is. Immutable: an action makes a new one.

    Attributes:
        kind: the kind of page.
        hits: products found by the last search, best first.
        number: page of results, from 1.
        product: the product looked at, on "item", "sub" and "done".
        chosen: (option name, value) pairs clicked so far, in the order of the first click on each name.
        sub: name of the sub-page, on "sub".
        reward: the score, on "done".
    """

    kind: Literal["search", "results", "item", "sub", "done"] = "search"
    hits: tuple[Product, ...] = ()
    number: int = 1
    product: Product | None = None
    chosen: tuple[tuple[str, str], ...] = ()
    sub: str = ""
    reward: float = 0.0


def shown_products(view: View) -> tuple[Product, ...]:
    """The products on the current page of results."""
    return view.hits[(view.number - 1) * PER_PAGE : view.number * PER_PAGE]


def page_text(view: View, instruction: str, show_attributes: bool) -> str:
    """The page as text. White space around each string is dropped, and empty strings are left out."""
    strings = (string.strip() for string in _strings(view, instruction, show_attributes))
    return SEPARATOR.join(string for string in strings if string)


def clickables(view: View, show_attributes: bool) -> tuple[str, ...]:
    """What can be clicked, lower case, each once.

    Buttons in page order, then products, then option values.
    """
    if view.kind == "results":
        names = [*_buttons(view, show_attributes), *(product.asin for product in shown_products(view))]
        return tuple(dict.fromkeys(name.lower() for name in names))
    names = [name.lower() for name in _buttons(view, show_attributes)]
    if view.kind == "item" and view.product is not None:
        names += [value for _, values in view.product.options for value in values]
    return tuple(dict.fromkeys(names))


def _buttons(view: View, show_attributes: bool) -> tuple[str, ...]:
    if view.kind == "results":
        before = (PREVIOUS,) if view.number > 1 else ()
        after = (NEXT,) if view.number * PER_PAGE < len(view.hits) else ()
        return (BACK, *before, *after)
    if view.kind == "item":
        return (BACK, PREVIOUS, *SUB_PAGES, *((ATTRIBUTES,) if show_attributes else ()), BUY)
    return (BACK, PREVIOUS) if view.kind == "sub" else ()


def _strings(view: View, instruction: str, show_attributes: bool) -> Iterator[str]:
    if view.kind == "done":
        yield from ("Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", str(view.reward))
        return
    if view.kind == "search":
        yield from ("WebShop", "Instruction:", instruction, "Search")
        return
    yield from ("Instruction:", instruction, BACK)
    if view.kind == "results":
        yield f"Page {view.number} (Total results: {len(view.hits)})"
        yield from _buttons(view, show_attributes)[1:]
        for product in shown_products(view):
            yield from (product.asin, product.title, product.price_tag)
        return
    yield PREVIOUS
    if view.product is not None:
        yield from (
            sub_page_strings(view.product, view.sub) if view.sub else _item(view.product, show_attributes)
        )


def _item(product: Product, show_attributes: bool) -> Iterator[str]:
    for name, values in product.options:
        yield name
        yield from values
    yield from (product.title, f"Price: {product.price_tag}", "Rating: N.A.", *SUB_PAGES)
    if show_attributes:
        yield ATTRIBUTES
    yield BUY


def sub_page_strings(product: Product, name: str) -> tuple[str, ...]:
    """The body of a sub-page.

    The official files hold no reviews, so that page is empty, as in the public shop.
    """
    if name == "Description":
        return (product.description,)
    if name == "Features":
        return product.bullets
    if name == ATTRIBUTES:
        return (*product.attributes, product.category, product.query, product.product_category)
    return ()
