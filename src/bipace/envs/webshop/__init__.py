"""WebShop: find and buy a product that fits an instruction (Yao et al. 2022, arXiv 2207.01206).

Our own shop with the published reward. It reads the official data files where you have them, and makes a
catalogue of its own otherwise. Scores on a generated catalogue are not WebShop scores: its splits and tasks
are named "gen...", and `data_label` says it in words. Install with `pip install 'bipace[webshop]'`. Reading
order: pages.py, shop.py, reward.py, catalogue.py, goals.py, search.py, generate.py, expert.py, web.py.

Settings read from the environment by `suite()`:

- BIPACE_WEBSHOP_DATA: folder with the official files (small set). Without it the generated catalogue is used.
- BIPACE_CACHE: where search indexes and generated files are kept (default: the user's cache folder,
  "bipace").

Differences from the public code, beside those listed in pages.py:

- Price bounds, prices inside a range and the order of goals depend on seeds alone, so every worker cuts the
  same list: validation is goals 0-499, training the rest. The public code draws them from the global random
  state.
- Search is BM25 in bm25s with Lucene's parameters, not Lucene; ranks can differ where scores are close.
- A query beginning with `<r>`, `<a>`, `<c>` or `<q>` is plain text (the public code has hidden commands
  there).
- Upper-case verbs and white space around an action are accepted; everything after the purchase is a no-op.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from bipace import files
from bipace.envs.base import Offers, UnknownTask
from bipace.envs.webshop.catalogue import Catalogue, WebShopDataError, load_catalogue, search_text
from bipace.envs.webshop.expert import first_page, plan
from bipace.envs.webshop.generate import VERSION, generate_files
from bipace.envs.webshop.goals import Goal, make_goals
from bipace.envs.webshop.nouns import noun_finder
from bipace.envs.webshop.pages import SEPARATOR
from bipace.envs.webshop.search import open_index
from bipace.envs.webshop.shop import HITS, Shop, WebShop
from bipace.envs.webshop.texts import HOW_TO_GET_GOALS, INSTRUCTIONS, instruction

__all__ = [
    "WebShop",
    "WebShopDataError",
    "WebShopSuite",
    "generated_suite",
    "official_suite",
    "short_suite",
    "suite",
    "synthetic_suite",
]

VALIDATION_GOALS = 500
PANEL = 256  # tasks of the fixed panels
MARKS = (SEPARATOR, "[", "]")


@dataclass(frozen=True)
class WebShopSuite:
    """The goals of one catalogue: a `Suite` of `bipace.envs.base`.

    Attributes:
        shop: what all its environments share.
        goals: all goals in their fixed order; a task id is "<label>/<place in this order>".
        label: short name of the data, at the front of every task id: "small", "full" or "gen1000-0", with
            "-synthetic" behind it for synthetic goals.
        data_label: what the data are, in words, to be shown beside every score.
        provenance: how scores came about: data, catalogue digest, seed, goals, nouns; to be kept with every
            run.
        name: "webshop", or "webshop-synthetic" for synthetic goals.
        max_steps: 15, the horizon of the public agents' small setting; 30 is the other one in use.
        instructions: the rules.
        splits: "train" (goals from 500), "validation" (0-499; all goals where there are fewer), and fixed
            panels of each, "train-panel" and "validation-panel"; with "gen-" in front on generated data,
            where the first half validates if there are no more than 500.
    """

    shop: Shop = field(repr=False)
    goals: Sequence[Goal] = field(repr=False)
    label: str
    data_label: str
    provenance: Mapping[str, str] = field(repr=False)
    name: str = "webshop"
    max_steps: int = 15
    instructions: str = field(default=INSTRUCTIONS, repr=False)
    splits: Mapping[str, Sequence[str]] = field(init=False, repr=False)

    @property
    def generated(self) -> bool:
        """True where the catalogue is generated."""
        return self.label.startswith("gen")

    @property
    def offers(self) -> Offers:
        """The data in words, panels, demonstrations, pages, and the instruction as the text of a task."""
        from bipace.envs.webshop.web import serve

        return Offers(
            data_label=self.data_label,
            provenance=self.provenance,
            absent=f"; to play {HOW_TO_GET_GOALS}" if self.generated else "",
            panels={"train": ("validation",)},
            marks=MARKS,
            demonstration=self.demonstration,
            task_text=instruction,
            pages=lambda port: serve(self, port),
        )

    def __post_init__(self) -> None:
        front = "gen-" if self.generated else ""
        tasks = tuple(f"{self.label}/{number}" for number in range(len(self.goals)))
        few = self.generated and len(tasks) <= VALIDATION_GOALS
        held = len(tasks) // 2 if few else VALIDATION_GOALS
        parts = {
            "train": tasks[held:],
            "validation": tasks[:held],
            "validation-panel": tasks[: min(PANEL, held)],
            "train-panel": tasks[held : held + PANEL],
        }
        splits = {f"{front}{name}": part for name, part in parts.items()}
        object.__setattr__(self, "splits", MappingProxyType(splits))

    def make(self) -> WebShop:
        """A fresh environment; `reset` begins an episode."""
        return WebShop(self.shop, self.goal)

    def goal(self, task: str) -> Goal:
        """The goal of a task. Raises UnknownTask."""
        match = re.fullmatch(rf"{re.escape(self.label)}/(0|[1-9][0-9]{{0,8}})", task)
        if match is None or int(match[1]) >= len(self.goals):
            raise UnknownTask(
                f"WebShop ({self.label}) has no task {task!r}: a task id is '{self.label}/' and a number "
                f"from 0 to {len(self.goals) - 1}, e.g. '{self.label}/0'"
            )
        return self.goals[int(match[1])]

    def family(self, task: str) -> str:
        """The department of the product asked for, e.g. "fashion". Raises UnknownTask."""
        return self.goal(task).category

    def expert(self, task: str) -> tuple[str, ...]:
        """Actions that buy the best product search finds, from the task's reset state. Raises UnknownTask."""
        return plan(self.shop, self.goal(task))

    def demonstration(self, task: str) -> tuple[str, ...]:
        """Actions of a shopper who never turns a page of results, to be imitated. Raises UnknownTask."""
        return first_page(self.shop, self.goal(task))


@cache
def suite() -> WebShopSuite:
    """The official small set where BIPACE_WEBSHOP_DATA names it, else the generated catalogue of 1,000.

    Raises:
        WebShopDataError: BIPACE_WEBSHOP_DATA is set and a file is missing or broken.
    """
    folder = os.environ.get("BIPACE_WEBSHOP_DATA")
    return official_suite(Path(folder)) if folder else generated_suite()


def official_suite(
    folder: Path,
    size: str = "small",
    limit: int | None = None,
    goals: str = "human",
    seed: int = 0,
    max_steps: int = 15,
    show_attributes: bool = False,
    nouns: str = "auto",
    cache_folder: Path | None = None,
) -> WebShopSuite:
    """The suite over the official files.

    Args:
        folder: where the files are.
        size: "small" or "full".
        limit: take the first so many products only (the public code's num_products).
        goals: "human" (written by people) or "synthetic" (one per combination of options; verl-agent's
            default).
        seed: fixes prices and price bounds.
        max_steps: the horizon, 15 or 30 in the literature.
        show_attributes: adds the sub-page with a product's attributes.
        nouns: see `bipace.envs.webshop.nouns.noun_finder`.
        cache_folder: folder of search indexes; None is the default one.

    Raises:
        WebShopDataError: a file is missing or broken.
    """
    catalogue = load_catalogue(folder, size, limit)
    words = f"official {size} set, {len(catalogue.products):,} products, {goals} goals"
    label = size if limit is None else f"{size}-first-{limit}"
    return _suite(catalogue, label, words, goals, seed, max_steps, show_attributes, nouns, cache_folder)


def generated_suite(
    products: int = 1000,
    data_seed: int = 0,
    goals: str = "human",
    seed: int = 0,
    max_steps: int = 15,
    show_attributes: bool = False,
    nouns: str = "words",
    cache_folder: Path | None = None,
    hits: int = HITS,
) -> WebShopSuite:
    """The suite over a generated catalogue, written to the cache once and read like the official files.

    Args:
        products: 1 to 100,000.
        data_seed: another seed is another shop.
        goals: as in `official_suite`.
        seed: as in `official_suite`.
        max_steps: as in `official_suite`.
        show_attributes: as in `official_suite`.
        nouns: as in `official_suite`; "words" here, so that scores do not depend on what else is installed.
        cache_folder: folder of generated files and search indexes; None is the default one.
        hits: products a search returns at most; 50 is the field's. Fewer make another, easier shop, which the
            label of its tasks and data says.
    """
    folder = (cache_folder or files.cache_folder("webshop")) / f"generated-v{VERSION}-{products}-{data_seed}"
    generate_files(folder, products, data_seed)
    catalogue = load_catalogue(folder, "small" if products <= 1000 else "full")
    kind = "" if goals == "human" else f"{goals} goals, "
    words = (
        f"generated catalogue, {products:,} products, {kind}seed {data_seed}: not comparable with "
        "WebShop scores"
    )
    label = f"gen{products}-{data_seed}"
    if hits != HITS:
        words, label = words.replace("seed", f"{hits} hits a search, seed"), f"{label}-hits-{hits}"
    return _suite(catalogue, label, words, goals, seed, max_steps, show_attributes, nouns, cache_folder, hits)


@cache
def synthetic_suite() -> WebShopSuite:
    """As `suite`, with synthetic goals, which verl-agent trains and validates on."""
    folder = os.environ.get("BIPACE_WEBSHOP_DATA")
    return official_suite(Path(folder), goals="synthetic") if folder else generated_suite(goals="synthetic")


@cache
def short_suite() -> WebShopSuite:
    """The generated shop with two products a page, where imitation begins.

    An id is easier to find on a short page.
    """
    return generated_suite(hits=2)


def _suite(
    catalogue: Catalogue,
    label: str,
    words: str,
    goals: str,
    seed: int,
    max_steps: int,
    show_attributes: bool,
    nouns: str,
    cache_folder: Path | None,
    hits: int = HITS,
) -> WebShopSuite:
    asked = make_goals(catalogue, goals, seed)
    if not asked:
        raise WebShopDataError(
            f"{words}: no product has an instruction; take more products or the other kind of goals"
        )
    texts = (search_text(product) for product in catalogue.products)
    finder = noun_finder(nouns)
    provenance = {
        "data": words,
        "catalogue": catalogue.digest[:16],
        "goals": goals,
        "seed": str(seed),
        "nouns": finder.name,
    }
    return WebShopSuite(
        shop=Shop(
            catalogue.products,
            open_index(texts, catalogue.digest, cache_folder or files.cache_folder("webshop")),
            finder,
            seed,
            show_attributes,
            hits,
        ),
        goals=asked,
        label=label if goals == "human" else f"{label}-{goals}",
        data_label=words,
        name="webshop" if goals == "human" else f"webshop-{goals}",
        provenance=MappingProxyType(provenance),
        max_steps=max_steps,
    )
