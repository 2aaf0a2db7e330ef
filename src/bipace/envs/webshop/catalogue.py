"""The catalogue: products and goals' raw material, read from the three official files.

One loader serves the official small set, the official full set and the generated catalogue.
"""

from __future__ import annotations

import hashlib
import random
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from bipace.envs.webshop.jsonstream import stream_array, stream_object

__all__ = ["Catalogue", "Product", "WebShopDataError", "load_catalogue", "price_of", "search_text"]

SOURCE = "https://github.com/princeton-nlp/WebShop (setup.sh downloads them)"
UNPRICED = 100.0  # the public code's price for a product without one
FILES = {
    "small": ("items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json"),
    "full": ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"),
}
_INSTRUCTION = {"instruction": str, "instruction_attributes": list, "instruction_options": (list, dict)}


class WebShopDataError(ValueError):
    """The data files are missing or broken; the message says which, why, and where they come from."""


@dataclass(frozen=True, slots=True)
class Product:
    """One product as the shop shows it.

    Attributes:
        asin: its id, at most 10 characters.
        category: one of the five departments.
        query: the search phrase it was found under, lower case.
        product_category: category path, levels joined by "›".
        title: its name.
        description: full description, may be empty.
        bullets: feature lines.
        attributes: what it is known to be, lower case phrases.
        options: (option name, values) pairs in page order.
        prices: one price in dollars, or the two ends of a range.
        price_tag: the price as shown.
    """

    asin: str
    category: str
    query: str
    product_category: str
    title: str
    description: str
    bullets: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    prices: tuple[float, ...]
    price_tag: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Products and what people asked for.

    Attributes:
        products: in file order.
        human: asin -> instruction records of `items_human_ins.json`.
        synthetic: asin -> (instruction, attributes) of `items_ins_v2*.json`, where it has an instruction.
        digest: identifies the content, whatever the layout of the files.
    """

    products: tuple[Product, ...]
    human: Mapping[str, tuple[Mapping[str, Any], ...]]
    synthetic: Mapping[str, tuple[str, tuple[str, ...]]]
    digest: str


@dataclass(frozen=True, slots=True)
class _Annotation:
    attributes: tuple[str, ...] = ("DUMMY_ATTR",)  # the public code's word for a product without any
    synthetic: tuple[str, tuple[str, ...]] | None = None


def price_of(product: Product, seed: int) -> float:
    """The price in dollars; one point of its range, fixed by (asin, seed), where it has a range."""
    if len(product.prices) == 1:
        return product.prices[0]
    return random.Random(f"price|{seed}|{product.asin}").uniform(*product.prices)


def search_text(product: Product) -> str:
    """The text that search looks at.

    Title, description, first feature, options (as the public code indexes it).
    """
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    first = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, first, options)).lower()


def load_catalogue(folder: Path, size: str = "small", limit: int | None = None) -> Catalogue:
    """Read the three files of a folder, entry by entry.

    Args:
        folder: where the files are.
        size: "small" (the files named ..._1000.json) or "full".
        limit: keep the first so many products; None keeps all.

    Raises:
        WebShopDataError: a file is missing, unreadable, not JSON, or an entry lacks a field.
    """
    if size not in FILES:
        raise WebShopDataError(f"size: {size!r}, expected one of {', '.join(FILES)}")
    items, annotations, instructions = (folder / name for name in FILES[size])
    missing = [path.name for path in (items, annotations, instructions) if not path.is_file()]
    if missing:
        raise WebShopDataError(
            f"{folder}: {', '.join(missing)} not found; the WebShop data files come from {SOURCE}"
        )
    known = {
        asin: _annotation(annotations, asin, record)
        for asin, record in _checked(annotations, stream_object(annotations))
    }
    products = tuple(_read_products(items, known, limit))
    kept = {product.asin for product in products}
    human = {
        asin: _records(instructions, asin, records)
        for asin, records in _checked(instructions, stream_object(instructions))
        if asin in kept
    }
    synthetic = {asin: found.synthetic for asin in kept if (found := known.get(asin)) and found.synthetic}
    digest = hashlib.sha256()
    for product in products:
        digest.update(repr((product, human.get(product.asin), synthetic.get(product.asin))).encode())
    return Catalogue(products, human, synthetic, digest.hexdigest())


def _checked(path: Path, entries: Iterator[Any]) -> Iterator[Any]:
    """The entries, with any failure to read them turned into the one error."""
    try:
        yield from entries
    except (OSError, ValueError, RecursionError) as error:
        raise WebShopDataError(f"{path}: broken ({error}); get it again from {SOURCE}") from error


def _read_products(
    path: Path, annotations: Mapping[str, _Annotation], limit: int | None
) -> Iterator[Product]:
    seen: set[str] = set()
    for number, record in enumerate(_checked(path, stream_array(path))):
        if limit is not None and number >= limit:
            return
        try:
            asin = record["asin"]
            if asin == "nan" or len(asin) > 10 or asin in seen:
                continue  # as in the public code
            seen.add(asin)
            yield _product(record, annotations.get(asin, _Annotation()))
        except (KeyError, TypeError, AttributeError, InvalidOperation) as error:
            what = f"has no field {error}" if isinstance(error, KeyError) else f"is malformed ({error!r})"
            raise WebShopDataError(
                f"{path}: entry {number} {what}; get the file again from {SOURCE}"
            ) from error
    if not seen:
        raise WebShopDataError(f"{path}: no products; get it again from {SOURCE}")


def _product(record: Mapping[str, Any], annotation: _Annotation) -> Product:
    bullets = record["small_description"]
    prices, tag = _pricing(record.get("pricing"))
    return Product(
        asin=record["asin"],
        category=sys.intern(record["category"]),
        query=sys.intern(record["query"].lower().strip()),
        product_category=sys.intern(record["product_category"]),
        title=_text(record["name"]),
        description=_text(record["full_description"] or ""),
        bullets=tuple(_text(line) for line in (bullets if isinstance(bullets, list) else [bullets or ""])),
        attributes=annotation.attributes,
        options=tuple(_options(record["customization_options"] or {})),
        prices=prices,
        price_tag=tag,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where text should be")
    return value


def _pricing(text: str | None) -> tuple[tuple[float, ...], str]:
    parts = (text or "").split("$")[1:]
    if not parts:
        return (UNPRICED,), f"${UNPRICED}"
    prices = tuple(float(Decimal(re.sub(r"[^\d.]", "", part))) for part in parts[:2])
    return prices, " to ".join(f"${price}" for price in prices)


def _options(record: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    merged = {  # of two names that differ in case only, the later one's values count, as in the public code
        name.lower(): tuple(entry["value"].strip().replace("/", " | ").lower() for entry in entries)
        for name, entries in record.items()
        if entries is not None
    }
    yield from merged.items()


def _records(path: Path, asin: str, records: Any) -> tuple[Mapping[str, Any], ...]:
    listed = (
        records if isinstance(records, list) and all(isinstance(record, dict) for record in records) else [{}]
    )
    for field, kinds in _INSTRUCTION.items():
        if not all(isinstance(record.get(field), kinds) for record in listed):
            raise WebShopDataError(
                f"{path}: {asin} has an instruction without {field}; get it again from {SOURCE}"
            )
    return tuple(listed)


def _annotation(path: Path, asin: str, record: Any) -> _Annotation:
    if not isinstance(record, dict):
        raise WebShopDataError(
            f"{path}: {asin} is {type(record).__name__}, expected an object; get it from {SOURCE}"
        )
    # A few thousand phrases describe a million products: one string each.
    known = record.get("attributes", list(_Annotation().attributes))
    if not _phrases(known):
        raise WebShopDataError(
            f"{path}: {asin} has attributes {known!r}, expected a list of text; get it from {SOURCE}"
        )
    attributes = tuple(sys.intern(phrase) for phrase in known)
    instruction, wanted = record.get("instruction"), record.get("instruction_attributes")
    if instruction is None:
        return _Annotation(attributes, None)
    if not wanted or not _phrases(wanted):
        raise WebShopDataError(
            f"{path}: {asin} has an instruction without instruction_attributes; get it from {SOURCE}"
        )
    return _Annotation(attributes, (str(instruction), tuple(wanted)))


def _phrases(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(phrase, str) for phrase in value)
