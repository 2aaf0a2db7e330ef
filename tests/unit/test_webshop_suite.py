"""WebShop as a suite: expert, task ids, splits, labels, and the same shop in every process."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bipace.envs.base import UnknownTask
from bipace.envs.webshop import WebShopDataError, generated_suite, official_suite, short_suite, suite
from bipace.envs.webshop.expert import best_options, first_page, plan, query_words
from bipace.envs.webshop.generate import generate_files, generated_records
from bipace.envs.webshop.shop import WebShop

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("webshop")


@pytest.fixture(scope="module")
def shop(cache):
    return generated_suite(cache_folder=cache)


def last_turn(environment, task, actions):
    turn = environment.reset(task)
    for action in actions:
        turn = environment.step(action)
    return turn


def test_expert_scores_one_on_the_panels(shop):
    for panel in ("gen-validation-panel", "gen-train-panel"):
        turns = [last_turn(shop.make(), task, shop.expert(task)) for task in shop.splits[panel]]
        assert sum(turn.won for turn in turns) / len(turns) >= 0.95
    lengths = [len(shop.expert(task)) for task in shop.splits["gen-validation"]]
    assert max(lengths) <= shop.max_steps


def test_expert_query_is_made_of_the_instructions_words():
    text = "i am looking for gluten free, non gmo tea in 16-ounce bag, and price lower than 40.00 dollars"
    assert query_words(text) == "gluten free non gmo tea 16-ounce bag"
    assert query_words("") == ""


def test_expert_buys_the_best_there_is_where_nothing_fits(shop):
    goal = replace(shop.goal("gen1000-0/0"), attributes=("made of moonlight",))
    actions = plan(shop.shop, goal)
    environment = WebShop(shop.shop, lambda _: goal)
    last = last_turn(environment, "any", actions)
    assert last.terminated
    assert 0 < last.reward < 1


def test_demonstrations_buy_the_best_product_of_the_first_page(shop):
    for task in shop.splits["gen-validation-panel"][:64]:
        goal, actions = shop.goal(task), shop.demonstration(task)
        assert actions[0] == f"search[{query_words(goal.instruction)}]"
        assert actions[1] != "click[next >]"
        page = shop.shop.search(query_words(goal.instruction))[:10]
        best = max(shop.shop.score(product, goal, best_options(product, goal)).total for product in page)
        assert last_turn(shop.make(), task, actions).reward == best
    assert first_page(shop.shop, replace(shop.goal("gen1000-0/0"), instruction="i am looking for the")) == ()


def test_expert_prefers_the_equal_option_to_a_similar_one(shop):
    product = replace(
        shop.shop.products[0], options=(("color", ("dark blue", "blue")), ("size", ("9 wide", "9")))
    )
    goal = replace(shop.goal("gen1000-0/0"), options=("9", "blue"))
    assert best_options(product, goal) == {"color": "blue", "size": "9"}
    assert best_options(product, replace(goal, options=("navy blue",))) == {"color": "dark blue"}


def test_unknown_tasks_are_refused_with_one_that_works(shop):
    for task in (
        "",
        "gen1000-0/2000",
        "gen1000-0/-1",
        "gen1000-0/01",
        "small/0",
        "gen1000-0/0 ",
        "gen1000-0/٣",
    ):
        with pytest.raises(UnknownTask, match="'gen1000-0/0'"):
            shop.make().reset(task)
        with pytest.raises(UnknownTask):
            shop.expert(task)
        with pytest.raises(UnknownTask):
            shop.family(task)


def test_validation_is_the_first_500_goals_and_training_the_rest(shop):
    splits = shop.splits
    assert list(splits["gen-validation"]) == [f"gen1000-0/{number}" for number in range(500)]
    assert list(splits["gen-train"]) == [f"gen1000-0/{number}" for number in range(500, 2000)]
    assert splits["gen-validation-panel"] == splits["gen-validation"][:256]
    assert splits["gen-train-panel"] == splits["gen-train"][:256]
    assert not set(splits["gen-train"]) & set(splits["gen-validation"])
    families = {shop.family(task) for task in splits["gen-validation"]}
    assert families == {"beauty", "electronics", "fashion", "garden", "grocery"}


def test_the_generated_catalogue_and_its_order_never_change(shop):
    """A change here changes every number measured on the generated shop: raise generate.VERSION with it."""
    records = json.dumps(list(generated_records(200, 0))).encode()
    assert hashlib.sha256(records).hexdigest()[:16] == "61dda763fd3c0681"
    assert [shop.goal(f"gen1000-0/{number}").instruction for number in (0, 500)] == [
        "i want to buy coffee beans that is single origin, pack 2 pound box, and price lower than 100.00 "
        "dollars",
        "i would like foldable arm, aluminum alloy adjustable tablet holder in mustard yellow, and price "
        "lower than 70.00 dollars",
    ]
    assert shop.expert("gen1000-0/0") == (
        "search[coffee beans single origin pack 2 pound box]",
        "click[B0GP2ST3M0]",
        "click[2 pound box]",
        "click[buy now]",
    )


def test_the_short_shop_shows_two_products_and_says_so(shop, cache, monkeypatch):
    monkeypatch.setenv("BIPACE_CACHE", str(cache))
    short = short_suite.__wrapped__()
    task = short.splits["gen-train"][0]
    assert task == "gen1000-0-hits-2/500"
    assert short.goal(task) == shop.goal("gen1000-0/500")
    assert short.data_label.startswith("generated catalogue, 1,000 products, 2 hits a search, seed 0")
    environment = short.make()
    environment.reset(task)
    page = environment.step(short.demonstration(task)[0]).observation
    assert "Page 1 (Total results: 2)" in page
    assert page.count("B0G") == 2
    query = query_words(short.goal(task).instruction)
    assert short.shop.search(query) == shop.shop.search(query)[:2]


def test_scores_on_generated_data_are_labelled(shop):
    assert all(name.startswith("gen-") for name in shop.splits)
    assert (
        shop.data_label == "generated catalogue, 1,000 products, seed 0: not comparable with WebShop scores"
    )
    assert dict(shop.provenance) == {
        "data": shop.data_label,
        "catalogue": shop.provenance["catalogue"],
        "goals": "human",
        "seed": "0",
        "nouns": "words",
    }


def test_official_files_give_the_official_suite(tmp_path, monkeypatch):
    generate_files(tmp_path / "data", 30, seed=1)
    monkeypatch.setenv("BIPACE_WEBSHOP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BIPACE_CACHE", str(tmp_path / "cache"))
    suite.cache_clear()
    try:
        official = suite()
    finally:
        suite.cache_clear()
    assert set(official.splits) == {"train", "validation", "train-panel", "validation-panel"}
    assert official.splits["validation"][0] == "small/0"
    assert official.data_label == "official small set, 30 products, human goals"
    synthetic = official_suite(tmp_path / "data", goals="synthetic", cache_folder=tmp_path / "cache")
    turns = [
        last_turn(synthetic.make(), task, synthetic.expert(task))
        for task in synthetic.splits["validation"][:40]
    ]
    assert sum(turn.won for turn in turns) >= 38


def test_the_seed_moves_price_bounds_but_not_the_order(cache, shop):
    other = generated_suite(seed=1, cache_folder=cache)
    pairs = list(zip(shop.goals, other.goals, strict=True))
    assert all(one.asin == two.asin and one.options == two.options for one, two in pairs)
    assert any(one.price_upper != two.price_upper for one, two in pairs)


TRACE = """
import hashlib, sys
from pathlib import Path
from bipace.envs.webshop import generated_suite
shop = generated_suite(300, data_seed=3, cache_folder=Path(sys.argv[1]))
text = hashlib.sha256()
for task in shop.splits["gen-validation"][:40]:
    environment = shop.make()
    turns = [environment.reset(task), *(environment.step(action) for action in shop.expert(task))]
    text.update(repr((task, turns)).encode())
print(text.hexdigest())
"""


def test_every_process_sees_the_same_shop(tmp_path):
    answers = set()
    for hash_seed, folder in (("1", "one"), ("2", "two"), ("3", "one")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-c", TRACE, str(tmp_path / folder)]
        answers.add(
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        )
    assert len(answers) == 1


def test_a_small_generated_catalogue_has_tasks_in_every_split(cache):
    for products, held in ((1, 1), (100, 100), (250, 250), (300, 500)):
        small = generated_suite(products, cache_folder=cache)
        splits = {name.removeprefix("gen-"): tasks for name, tasks in small.splits.items()}
        assert all(splits.values())
        assert (len(splits["validation"]), len(splits["train"])) == (held, 2 * products - held)
        assert not set(splits["train"]) & set(splits["validation"])
        assert set(splits["train-panel"]) <= set(splits["train"])
        assert set(splits["validation-panel"]) <= set(splits["validation"])


def test_a_catalogue_without_goals_is_refused(tmp_path):
    generate_files(tmp_path / "data", 2)
    (tmp_path / "data" / "items_human_ins.json").write_text("{}", encoding="utf-8")
    with pytest.raises(WebShopDataError, match="no product has an instruction"):
        official_suite(tmp_path / "data", cache_folder=tmp_path)
