"""A generated catalogue in the official file format, for everyone without the official files.

Product i of a seed is the same whatever the number of products and whichever process asks: all its random
choices come from one generator seeded with (VERSION, seed, i). Scores on generated data are not WebShop
scores, and every name that leads to them says "gen".
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bipace.envs.webshop.vocabulary import ProductType, vocabulary

__all__ = ["MAX_PRODUCTS", "VERSION", "generate_files", "generated_records"]

VERSION = 1
MAX_PRODUCTS = 100_000
_DESCRIBED = 6_000  # products with instructions, two each: as many goals as the official files hold
_ALPHABET = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_STEP = (
    48_271_069_013  # coprime to 34**7: consecutive products get ids that look unrelated, and no two the same
)

_OPENINGS = (
    "i am looking for {thing}",
    "i need {thing}",
    "find me {thing}",
    "i want to buy {thing}",
    "i would like {thing}",
    "show me {thing}",
)


def generate_files(folder: Path, products: int = 1000, seed: int = 0) -> None:
    """Write the three files of a generated catalogue into a folder, which appears whole or not at all.

    Args:
        folder: where to write; a folder already there is kept as it is.
        products: 1 to 100,000.
        seed: a different seed is a different shop.

    Raises:
        ValueError: products outside the range.
    """
    if not 1 <= products <= MAX_PRODUCTS:
        raise ValueError(f"products: {products}, expected 1 to {MAX_PRODUCTS:,}")
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(draft, products, seed)
        try:
            draft.replace(folder)
        except OSError:
            if not folder.is_dir():  # another process may have finished first; its files are the same
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write(folder: Path, products: int, seed: int) -> None:
    suffix = "_1000.json" if products <= 1000 else ".json"
    paths = [
        folder / f"items_shuffle{suffix}",
        folder / f"items_ins_v2{suffix}",
        folder / "items_human_ins.json",
    ]
    with (
        paths[0].open("w", encoding="utf-8") as items,
        paths[1].open("w", encoding="utf-8") as attributes,
        paths[2].open("w", encoding="utf-8") as human,
    ):
        items.write("[\n")
        attributes.write("{\n")
        human.write("{\n")
        for index, (item, attribute, instructions) in enumerate(generated_records(products, seed)):
            comma = ",\n" if index else ""
            key = json.dumps(item["asin"])
            items.write(comma + json.dumps(item, ensure_ascii=False))
            attributes.write(f"{comma}{key}: {json.dumps(attribute, ensure_ascii=False)}")
            if instructions:
                human.write(f"{comma}{key}: {json.dumps(instructions, ensure_ascii=False)}")
        items.write("\n]\n")
        attributes.write("\n}\n")
        human.write("\n}\n")


def generated_records(
    products: int, seed: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]]:
    """The records of each product for the three files: the item, its attributes, its human instructions."""
    for index in range(products):
        rng = random.Random(f"bipace-webshop|{VERSION}|{seed}|{index}")
        kind = rng.choice(vocabulary().types)
        attributes = _attributes(rng, kind)
        options = _options(rng, kind)
        asin = _asin(index, seed)
        noun = rng.choice(kind.nouns)
        item = {
            "asin": asin,
            "name": _title(rng, kind, noun, attributes, options),
            "category": kind.category,
            "query": kind.query,
            "product_category": kind.path,
            "full_description": _description(rng, noun, attributes),
            "small_description": _bullets(rng, noun, attributes),
            "pricing": _pricing(rng, kind),
            "customization_options": {
                name: [{"value": value} for value in values] for name, values in options.items()
            },
            "images": [""],
        }
        annotation: dict[str, Any] = {"attributes": attributes}
        if index < _DESCRIBED:
            wanted = rng.sample(attributes, rng.randint(1, min(3, len(attributes))))
            annotation |= {
                "instruction": f"Find me {', '.join(wanted)} {kind.query}",
                "instruction_attributes": wanted,
            }
        wishes = (
            [_instruction(rng, asin, noun, attributes, options) for _ in range(2)]
            if index < _DESCRIBED
            else []
        )
        yield item, annotation, wishes


def _asin(index: int, seed: int) -> str:
    number = ((index + 1) * _STEP + seed * 7_919) % len(_ALPHABET) ** 7
    digits = ""
    for _ in range(7):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return f"B0G{digits}"


def _attributes(rng: random.Random, kind: ProductType) -> list[str]:
    own = rng.sample(kind.attributes, rng.randint(1, len(kind.attributes)))
    shared = rng.sample(vocabulary().category_attributes[kind.category], rng.randint(2, 4))
    chosen = own + shared
    rng.shuffle(chosen)
    return chosen


def _options(rng: random.Random, kind: ProductType) -> dict[str, list[str]]:
    names = kind.options if rng.random() < 0.75 else kind.options[: rng.randint(0, 1)]
    chosen = {}
    for name in names:
        values = vocabulary().option_values[name]
        kept = set(rng.sample(range(len(values)), rng.randint(2, min(7, len(values)))))
        chosen[name] = [value for place, value in enumerate(values) if place in kept]
    return chosen


def _title(
    rng: random.Random, kind: ProductType, noun: str, attributes: list[str], options: dict[str, list[str]]
) -> str:
    """A title as sellers write them.

    Brand first, claims and attributes in any order, inconsistent case and commas.
    """
    words = vocabulary()
    brand = rng.choice(words.brands)
    claims = [
        attribute.title() if rng.random() < 0.7 else attribute for attribute in rng.sample(attributes, 2)
    ]
    head = [brand, *([rng.choice(words.fillers)] if rng.random() < 0.4 else []), claims[0], noun]
    tail = [claims[1], *([rng.choice(words.audiences)] if rng.random() < 0.6 else [])]
    if rng.random() < 0.35:
        tail.append(f"{kind.query} with {rng.choice(attributes)}")
    if options and rng.random() < 0.3:
        tail.append(f"({rng.choice(rng.choice(list(options.values())))})")
    rng.shuffle(tail)
    title = " ".join(head) + rng.choice((", ", " - ", " | ", ",")) + rng.choice((", ", " ", " & ")).join(tail)
    return title.upper() if rng.random() < 0.03 else title


def _description(rng: random.Random, noun: str, attributes: list[str]) -> str:
    if rng.random() < 0.3:
        return ""
    known = rng.sample(attributes, min(2, len(attributes)))
    return rng.choice(
        (
            f"This {noun.lower()} is {known[0]} and {known[1]}. If anything is wrong, write to us and we "
            "will help.",
            f"Product details: {noun}. Feature: {known[0]}; {known[1]}. Please allow a small error in "
            "measuring.",
            f"We made our {noun.lower()} for people who ask for more: {known[0]}, {known[1]} & made to last.",
        )
    )


def _bullets(rng: random.Random, noun: str, attributes: list[str]) -> list[str]:
    lines = [
        rng.choice(
            (
                f"{attribute.upper()}: our {noun.lower()} is made with care.",
                f"【{attribute.title()}】You will feel the difference from the first day.",
                f"{attribute.capitalize()} - tested again and again before it leaves our house.",
            )
        )
        for attribute in attributes
    ]
    lines.append(
        rng.choice(("Customer service within 24 hours.", "Package includes: 1 x item.", "A perfect gift."))
    )
    return lines


def _pricing(rng: random.Random, kind: ProductType) -> str:
    low = round(rng.uniform(*kind.prices), 2)
    if rng.random() < 0.04:
        return ""
    if rng.random() < 0.25:
        return f"${low:.2f} - ${low * rng.uniform(1.1, 1.6):,.2f}"
    return f"${low:,.2f}"


def _instruction(
    rng: random.Random, asin: str, noun: str, attributes: list[str], options: dict[str, list[str]]
) -> dict[str, Any]:
    wanted = rng.sample(attributes, rng.randint(1, min(3, len(attributes))))
    chosen = {name: rng.choice(values) for name, values in options.items() if rng.random() < 0.8}
    spoken = noun.lower()
    thing = (
        f"{', '.join(wanted)} {spoken}" if rng.random() < 0.5 else f"{spoken} that is {' and '.join(wanted)}"
    )
    details = [f"in {value}" if name == "color" else f"{name} {value}" for name, value in chosen.items()]
    if details:
        thing += rng.choice((", ", ", and ", " ")) + ", ".join(details)
    return {
        "asin": asin,
        "instruction": rng.choice(_OPENINGS).format(thing=thing) + rng.choice((".", "")),
        "attributes": attributes,
        "instruction_attributes": wanted,
        "instruction_options": list(chosen.values()),
    }
