"""The published reward, clause by clause (Yao et al. 2022, arXiv 2207.01206; princeton-nlp/WebShop).

    r = r_type * (matched attributes + matched options + [price <= bound]) / (attributes + options + 1)

Paid once, on buying. A purchase is a success when r = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bipace.envs.webshop.catalogue import Product
from bipace.envs.webshop.goals import Goal
from bipace.envs.webshop.nouns import NounFinder

try:
    from rapidfuzz import fuzz, utils
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "WebShop needs the package 'rapidfuzz': install the extra with pip install 'bipace[webshop]'",
        name="rapidfuzz",
    ) from error

__all__ = [
    "Score",
    "TypeMatch",
    "matched_attributes",
    "matched_options",
    "normalise_color",
    "similar",
    "type_match",
]
__all__ += ["score_purchase"]

SIMILAR_ABOVE = 85  # of 100
_NOT_ASCII = dict.fromkeys(range(128, 256))

# The public code's colour words, in its order: the first one found inside an option value replaces the value.
_COLOR_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel
camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry
cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green
grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot
midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple
rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan
taupe teal tiger turquoise violet walnut wheat white wine yellow
"""
COLORS = tuple(_COLOR_WORDS.split())


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """The type clause and what it rests on.

    Attributes:
        factor: r_type in {0, 0.1, 0.5, 1}.
        same_query: both products were found under one search phrase.
        shared_categories: levels the two category paths have in common.
        title_overlap: t, the share of the goal title's nouns that the bought title has.
    """

    factor: float
    same_query: bool
    shared_categories: int
    title_overlap: float


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase's reward and its clauses.

    Attributes:
        total: r in [0, 1].
        type: the type clause.
        attributes: (matched, asked for).
        options: (matched, asked for).
        price_ok: the price is within the bound.
    """

    total: float
    type: TypeMatch
    attributes: tuple[int, int]
    options: tuple[int, int]
    price_ok: bool

    @property
    def success(self) -> bool:
        """True for a reward of 1."""
        return self.total == 1.0


def score_purchase(
    product: Product, goal: Goal, price: float, chosen: Mapping[str, str], nouns: NounFinder
) -> Score:
    """Score of buying a product with these options.

    Args:
        product: what was bought.
        goal: what was asked for.
        price: what it costs, in dollars.
        chosen: option name -> value clicked.
        nouns: how nouns are found for the type clause.
    """
    kind = type_match(product, goal, nouns)
    attributes = matched_attributes(product, goal.attributes)
    options = matched_options(chosen.values(), goal.options)
    price_ok = price <= goal.price_upper
    asked = len(goal.attributes) + len(goal.options) + 1
    return Score(
        total=(attributes + options + price_ok) / asked * kind.factor,
        type=kind,
        attributes=(attributes, len(goal.attributes)),
        options=(options, len(goal.options)),
        price_ok=price_ok,
    )


def type_match(product: Product, goal: Goal, nouns: NounFinder) -> TypeMatch:
    """Whether the product is of the kind asked for.

    r_type is 1 with the same query, two or more shared category levels, or t > 0.2; 0.5 otherwise. Then t <
    0.1 makes it 0.1 and t = 0 makes it 0, whatever the rest says. A goal title without nouns has t = 0.2.
    """
    same_query = product.query == goal.query
    shared = len(_levels(product.product_category) & _levels(goal.product_category))
    wanted = nouns.find(goal.title)
    overlap = len(set(nouns.find(product.title)) & set(wanted)) / len(wanted) if wanted else 0.2
    factor = 1.0 if same_query or shared >= 2 or overlap > 0.2 else 0.5
    if overlap < 0.1:
        factor = 0.1 if overlap else 0.0
    return TypeMatch(factor, same_query, shared, overlap)


def _levels(path: str) -> set[str]:
    return {level.strip() for level in path.split("\u203a")}


def matched_attributes(product: Product, wanted: Sequence[str]) -> int:
    """How many wanted attributes the product has.

    Similar to one of its own, or inside its title, features or text.
    """
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(similar(known, phrase) for known in product.attributes) or any(phrase in text for text in texts)
        for phrase in wanted
    )


def matched_options(chosen: Iterable[str], wanted: Sequence[str | tuple[str, str]]) -> int:
    """How many wanted options are similar to a chosen value, both reduced to their colour word."""
    values = [normalise_color(value) for value in chosen]
    return sum(any(similar(value, normalise_color(option)) for value in values) for option in wanted)


def normalise_color(option: str | tuple[str, str]) -> str:
    """The first colour word of COLORS inside the option, or the option itself.

    A synthetic goal's (name, value) pair is reduced where its name or value is a colour word, and is compared
    whole, name included, where neither is: the public code's `in` looks at the parts of a pair.
    """
    return next((color for color in COLORS if color in option), str(option))


def similar(one: str, other: str) -> bool:
    """Whether thefuzz's `token_set_ratio(one, other)` is above 85.

    That is rapidfuzz's ratio after thefuzz's preprocessing (the characters 128-255 dropped, then lower case,
    anything but letters and digits as blanks) and its rounding to a whole number: 85.5 counts, 85.4 does not.
    Two texts of which one has no letter or digit left are not similar.
    """
    ratio = fuzz.token_set_ratio(_plain(one), _plain(other))
    return round(ratio) > SIMILAR_ABOVE


def _plain(text: str) -> str:
    return utils.default_process(text.translate(_NOT_ASCII))
