"""What is said to the shopper and to the user."""

from __future__ import annotations

from bipace.envs.webshop.pages import SEPARATOR

__all__ = ["HOW_TO_GET_GOALS", "INSTRUCTIONS", "instruction"]

HOW_TO_GET_GOALS = (
    "the official goals, set BIPACE_WEBSHOP_DATA to the folder that holds items_shuffle_1000.json, "
    "items_ins_v2_1000.json and items_human_ins.json (from princeton-nlp/WebShop), or take generated ones "
    "with env.split=gen-train"
)

INSTRUCTIONS = (
    "You are shopping online. Buy a product that fits the instruction: its kind, its attributes, its options "
    "and its price. Actions: search[words] to search, click[name] to click a button, a product id or an "
    "option shown on the page. Choose the options asked for before you click[buy now], which ends the "
    "episode and gives your score. Give one action per turn."
)


def instruction(first: str) -> str:
    """What the shopper is told, from the text of the first page.

    The whole of it where that has another form.
    """
    strings = first.split(SEPARATOR)
    return strings[2] if len(strings) > 2 and strings[1] == "Instruction:" else first
