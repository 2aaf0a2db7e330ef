"""The shop's pages as HTML. Every text that is not written here goes through `escape`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from bipace.envs.webshop.catalogue import Product
from bipace.envs.webshop.pages import (
    ATTRIBUTES,
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    SUB_PAGES,
    View,
    clickables,
    shown_products,
    sub_page_strings,
)
from bipace.envs.webshop.reward import Score
from bipace.envs.webshop.shop import WebShop

__all__ = ["STYLE", "render_page"]

STYLE = """
:root { color-scheme: light dark; --line: #8886; --accent: #07794b; }
* { box-sizing: border-box; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
header { border-bottom: 1px solid var(--line); margin-bottom: 1rem; }
header p { margin: .3rem 0; }
.wish { font-size: 1.15rem; }
.small { font-size: .85rem; opacity: .75; }
form { display: inline; }
button, input { font: inherit; padding: .35rem .8rem; border: 1px solid var(--line); border-radius: .4rem; }
input { width: min(34rem, 70%); }
button { background: none; color: inherit; cursor: pointer; margin: .15rem .2rem .15rem 0; }
button:hover, button:focus-visible { border-color: var(--accent); }
button.main, button[aria-pressed="true"] {
  background: var(--accent); color: #fff; border-color: var(--accent); }
ul.products { list-style: none; padding: 0; }
ul.products li { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .6rem .8rem; }
li b { display: block; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
fieldset { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; }
table { border-collapse: collapse; }
td, th { border-bottom: 1px solid var(--line); padding: .3rem 1rem .3rem 0; text-align: left; }
.score { font-size: 2rem; }
.note { border-left: 3px solid #c60; padding-left: .6rem; }
footer { border-top: 1px solid var(--line); margin-top: 1.5rem; padding-top: .6rem; }
"""


def render_page(
    environment: WebShop, task: str, next_task: str, steps: int, max_steps: int, data_label: str, note: str
) -> str:
    """The whole page of one shopper.

    Args:
        environment: an episode that has begun.
        task: its task id.
        next_task: the task that the button after buying begins.
        steps: actions taken so far.
        max_steps: the horizon of agents; a person may go on.
        data_label: what the data are.
        note: a line about the last action, or "".
    """
    view = environment.view
    instruction = environment.goal.instruction if environment.goal else ""
    body = (
        _done(environment.score, next_task)
        if view.kind == "done"
        else _body(view, environment.shop.show_attributes)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>WebShop</title><link rel="stylesheet" href="/style.css"></head>
<body>
<header>
<p class="wish"><b>Instruction:</b> <span id="instruction">{escape(instruction)}</span></p>
<p class="small">task {escape(task)}, step {steps} (agents have {max_steps})</p>
{f'<p class="note" role="status">{escape(note)}</p>' if note else ""}
</header>
<main>{body}</main>
<footer class="small">
<form method="post" action="/act"><label>Task <input name="task" value="{escape(task)}"></label>
<button>Begin</button></form>
<p>Data: {escape(data_label)}</p>
</footer>
</body></html>"""


def _body(view: View, show_attributes: bool) -> str:
    if view.kind == "search":
        return (
            '<form method="post" action="/act"><input id="search_input" name="query" aria-label="Search '
            'words" '
            'placeholder="Search..." required autofocus><button class="main">Search</button></form>'
        )
    clickable = clickables(view, show_attributes)
    buttons = "".join(_button(name) for name in (BACK, PREVIOUS, NEXT) if name.lower() in clickable)
    if view.kind == "results":
        return (
            f"{buttons}<p>Page {view.number} (Total results: "
            f"{len(view.hits)})</p>{_products(shown_products(view))}"
        )
    if view.product is None:
        return buttons
    if view.kind == "sub":
        return f"{buttons}<h1>{escape(view.sub)}</h1>{_lines(sub_page_strings(view.product, view.sub))}"
    return buttons + _item(view.product, dict(view.chosen), show_attributes)


def _button(name: str, value: str | None = None, kind: str = "", pressed: bool | None = None) -> str:
    state = "" if pressed is None else f' aria-pressed="{str(pressed).lower()}"'
    style = f' class="{kind}"' if kind else ""
    return (
        '<form method="post" action="/act"><button name="click" '
        f'value="{escape(value or name.lower())}"{style}{state}>'
        f"{escape(name)}</button></form>"
    )


def _products(products: Iterable[Product]) -> str:
    rows = (
        f"<li>{_button(product.asin)}<b>{escape(product.title)}</b>{escape(product.price_tag)}</li>"
        for product in products
    )
    return f'<ul class="products">{"".join(rows)}</ul>'


def _item(product: Product, chosen: dict[str, str], show_attributes: bool) -> str:
    options = "".join(
        f"<fieldset><legend>{escape(name)}</legend>"
        + "".join(_button(value, value, pressed=chosen.get(name) == value) for value in values)
        + "</fieldset>"
        for name, values in product.options
    )
    pages = "".join(_button(name) for name in (*SUB_PAGES, *((ATTRIBUTES,) if show_attributes else ())))
    return (
        f"<h1>{escape(product.title)}</h1><p>Price: {escape(product.price_tag)}<br>Rating: N.A.</p>{options}"
        f"<p>{pages}</p><p>{_button(BUY, kind='main')}</p>"
    )


def _lines(lines: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines if line.strip())
    return f"<ul>{rows}</ul>" if rows else "<p>Nothing here.</p>"


def _done(score: Score | None, next_task: str) -> str:
    if score is None:
        return ""
    rows = (
        ("kind of product", f"factor {score.type.factor:g}"),
        ("attributes", f"{score.attributes[0]} of {score.attributes[1]}"),
        ("options", f"{score.options[0]} of {score.options[1]}"),
        ("price", "within the bound" if score.price_ok else "too high"),
    )
    table = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
    return (
        "<h1>Thank you for shopping with us!</h1><p>Your score (min 0.0, max 1.0)</p>"
        f'<p class="score" id="score">{score.total:.3f}</p><table>{table}</table>'
        '<form method="post" action="/act"><button class="main" name="task" '
        f'value="{escape(next_task)}">Next task'
        "</button></form>"
    )
