"""WebShop as an environment: pages, actions, episodes, splits, determinism."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.envs.base import Environment, Suite, UnknownTask
from bipace.envs.webshop import generated_suite, official_suite, suite
from bipace.envs.webshop.expert import best_options, plan, query_words
from bipace.envs.webshop.generate import generate_files, generated_records
from bipace.envs.webshop.pages import View, clickables, page_text
from bipace.envs.webshop.shop import WebShop

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("webshop")


@pytest.fixture(scope="module")
def shop(cache):
    return generated_suite(cache_folder=cache)


def play(environment, task, actions):
    turns = [environment.reset(task)]
    turns += [environment.step(action) for action in actions]
    return turns


def test_it_is_a_suite_of_environments(shop):
    assert isinstance(shop, Suite)
    assert isinstance(shop.make(), Environment)
    assert (shop.name, shop.max_steps) == ("webshop", 15)


def test_pages_have_the_fields_text_form(shop):
    task = shop.splits["gen-validation-panel"][0]
    goal, environment = shop.goal(task), shop.make()
    start = environment.reset(task)
    assert start.observation == f"WebShop [SEP] Instruction: [SEP] {goal.instruction} [SEP] Search"
    assert start.admissible == ("search[<your query>]",)

    results = environment.step(f"search[{goal.query}]")
    hits = shop.shop.search(goal.query)
    listed = [text for product in hits[:10] for text in (product.asin, product.title, product.price_tag)]
    head = ["Instruction:", goal.instruction, "Back to Search", "Page 1 (Total results: 50)", "Next >"]
    assert results.observation == " [SEP] ".join(head + listed)
    names = ["back to search", "next >", *(product.asin.lower() for product in hits[:10])]
    assert results.admissible == tuple(f"click[{name}]" for name in names)

    product = hits[0]
    item = environment.step(f"click[{product.asin.lower()}]")
    options = [text for name, values in product.options for text in (name, *values)]
    tail = [product.title, f"Price: {product.price_tag}", "Rating: N.A.", "Description", "Features", "Reviews"]
    head = ["Instruction:", goal.instruction, "Back to Search", "< Prev"]
    assert item.observation == " [SEP] ".join([*head, *options, *tail, "Buy Now"])
    buttons = ["back to search", "< prev", "description", "features", "reviews", "buy now"]
    values = [value for _, values in product.options for value in values]
    assert item.admissible == tuple(f"click[{name}]" for name in [*buttons, *values])

    features = environment.step("click[features]")
    assert features.observation == " [SEP] ".join([*head, *product.bullets])
    assert features.admissible == ("click[back to search]", "click[< prev]")
    assert environment.step("click[reviews]").valid is False  # not on this page
    assert environment.step("click[< prev]").observation == item.observation
    assert environment.step("click[< prev]").observation == results.observation
    assert environment.step("click[back to search]").observation == start.observation


def test_there_are_five_pages_of_ten_and_no_sixth(shop):
    environment = shop.make()
    environment.reset("gen1000-0/0")
    environment.step("search[shoes]")
    seen = [environment.view.number]
    while (turn := environment.step("click[next >]")).valid:
        seen.append(environment.view.number)
    assert seen == [1, 2, 3, 4, 5]
    assert "click[< prev]" in turn.admissible
    assert environment.step("click[< prev]").observation.count("Page 4 (Total results: 50)") == 1


def test_attributes_page_is_there_when_asked_for(cache):
    environment = generated_suite(20, show_attributes=True, cache_folder=cache).make()
    play(environment, "gen20-0/0", ["search[a b c lamp shoes tea coffee]"])
    asin = environment.view.hits[0].asin
    environment.step(f"click[{asin}]")
    turn = environment.step("click[Attributes]")
    assert all(attribute in turn.observation for attribute in environment.view.product.attributes)


def test_buying_ends_the_episode_with_the_score(shop):
    task = shop.splits["gen-train"][0]
    environment = shop.make()
    *before, last = play(environment, task, shop.expert(task))
    assert all((turn.reward, turn.terminated, turn.won, turn.valid) == (0.0, False, False, True) for turn in before)
    assert (last.reward, last.terminated, last.won) == (1.0, True, True)
    assert environment.score.success
    assert last.observation == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0"
    after = environment.step("search[more]")
    assert (after.valid, after.reward, after.terminated, after.won) == (False, 0.0, True, True)


def test_a_partial_score_is_a_reward_but_not_a_win(shop):
    goals = [(task, shop.goal(task)) for task in shop.splits["gen-validation"]]
    task, goal = next((task, goal) for task, goal in goals if len(goal.options) == 2 and len(goal.attributes) == 1)
    asin = goal.asin.lower()
    title = next(product.title for product in shop.shop.products if product.asin == goal.asin)
    environment = shop.make()
    last = play(environment, task, [f"search[{title}]", f"click[{asin}]", "click[buy now]"])[-1]
    assert last.reward == pytest.approx(2 / 4)  # the attribute and the price; neither option
    assert (last.terminated, last.won) == (True, False)


@pytest.mark.parametrize(
    "action",
    [
        *("", " ", "\0", "buy", "click", "click[]", "search[]", "think[x]", "say search[x]", "search[two\nlines]"),
        *("click[buy now", "click[search]", "click[<your query>]", "click[next >]", "click[B000000000]"),
        "search" * 5000,
    ],
)
def test_anything_else_changes_nothing_and_is_counted(shop, action):
    environment = shop.make()
    start = environment.reset("gen1000-0/3")
    turn = environment.step(action)
    assert turn == replace(start, valid=False)
    assert environment.no_ops == 1
    assert environment.reset("gen1000-0/3") == start
    assert environment.no_ops == 0


def test_case_and_white_space_around_do_not_matter(shop):
    one, other = shop.make(), shop.make()
    first = play(one, "gen1000-0/1", ["search[running shoes]"])[-1]
    assert play(other, "gen1000-0/1", ["  Search[Running SHOES]\n"])[-1] == first
    asin = one.view.hits[2].asin
    assert one.step(f"click[{asin}]") == other.step(f"CLICK[{asin.lower()}] ")


def test_search_works_on_every_page_and_forgets_the_options(shop):
    environment = shop.make()
    play(environment, "gen1000-0/1", ["search[hoodie]"])
    environment.step(f"click[{environment.view.hits[0].asin}]")
    option = environment.view.product.options[0]
    environment.step(f"click[{option[1][0]}]")
    environment.step(f"click[{option[1][1]}]")
    assert environment.view.chosen == ((option[0], option[1][1]),)  # the last click on an option counts
    assert environment.step("search[lamp]").observation.count("Page 1") == 1
    assert environment.view.chosen == ()


def test_a_query_without_results_is_a_page(shop):
    turn = play(shop.make(), "gen1000-0/0", ["search[zzzz]"])[-1]
    assert turn.valid
    assert turn.observation.endswith("Page 1 (Total results: 0)")
    assert turn.admissible == ("click[back to search]",)


def test_step_before_reset_says_so(shop):
    with pytest.raises(RuntimeError, match="reset"):
        shop.make().step("search[x]")


def test_an_option_offered_twice_goes_to_the_later_one_and_buttons_win_over_options(shop):
    product = replace(shop.shop.products[0], options=(("a", ("x", "features")), ("b", ("x",))))
    environment = shop.make()
    environment.reset("gen1000-0/0")
    environment.view = View("item", product=product)
    assert clickables(environment.view, False).count("x") == 1
    environment.step("click[x]")
    assert environment.view.chosen == (("b", "x"),)
    environment.step("click[features]")
    assert environment.view.kind == "sub"


def test_empty_and_blank_strings_leave_no_gap(shop):
    product = replace(shop.shop.products[0], description=" \n ", bullets=("", " kept "))
    assert page_text(View("sub", product=product, sub="Description"), "do", False).endswith(
        "Back to Search [SEP] < Prev"
    )
    assert page_text(View("sub", product=product, sub="Features"), "do", False).endswith("< Prev [SEP] kept")


def test_copy_goes_its_own_way(shop):
    task = shop.splits["gen-train"][5]
    actions = shop.expert(task)
    environment = shop.make()
    play(environment, task, actions[:2])
    other = environment.copy()
    assert [environment.step(action) for action in actions[2:]] == [other.step(action) for action in actions[2:]]
    third = shop.make()
    play(third, task, actions[:1])
    fourth = third.copy()
    fourth.step("click[back to search]")
    assert third.view.kind == "results"


def test_expert_scores_one_on_the_panels(shop):
    for panel in ("gen-validation-panel", "gen-train-panel"):
        turns = [play(shop.make(), task, shop.expert(task))[-1] for task in shop.splits[panel]]
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
    last = play(environment, "any", actions)[-1]
    assert last.terminated
    assert 0 < last.reward < 1


def test_expert_prefers_the_equal_option_to_a_similar_one(shop):
    product = replace(shop.shop.products[0], options=(("color", ("dark blue", "blue")), ("size", ("9 wide", "9"))))
    goal = replace(shop.goal("gen1000-0/0"), options=("9", "blue"))
    assert best_options(product, goal) == {"color": "blue", "size": "9"}
    assert best_options(product, replace(goal, options=("navy blue",))) == {"color": "dark blue"}


def test_unknown_tasks_are_refused_with_one_that_works(shop):
    for task in ("", "gen1000-0/2000", "gen1000-0/-1", "gen1000-0/01", "small/0", "gen1000-0/0 ", "gen1000-0/٣"):
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
    assert splits["gen-validation-panel"] == splits["gen-validation"][:128]
    assert splits["gen-train-panel"] == splits["gen-train"][:128]
    assert not set(splits["gen-train"]) & set(splits["gen-validation"])
    families = {shop.family(task) for task in splits["gen-validation"]}
    assert families == {"beauty", "electronics", "fashion", "garden", "grocery"}


def test_the_generated_catalogue_and_its_order_never_change(shop):
    """A change here changes every number measured on the generated shop: raise generate.VERSION with it."""
    records = json.dumps(list(generated_records(200, 0))).encode()
    assert hashlib.sha256(records).hexdigest()[:16] == "61dda763fd3c0681"
    assert [shop.goal(f"gen1000-0/{number}").instruction for number in (0, 500)] == [
        "i want to buy coffee beans that is single origin, pack 2 pound box, and price lower than 100.00 dollars",
        "i would like foldable arm, aluminum alloy adjustable tablet holder in mustard yellow, "
        "and price lower than 70.00 dollars",
    ]
    assert shop.expert("gen1000-0/0") == (
        "search[coffee beans single origin pack 2 pound box]",
        "click[b0gp2st3m0]",
        "click[2 pound box]",
        "click[buy now]",
    )


def test_scores_on_generated_data_are_labelled(shop):
    assert all(name.startswith("gen-") for name in shop.splits)
    assert shop.data_label == "generated catalogue, 1,000 products, seed 0: not comparable with WebShop scores"
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
    turns = [play(synthetic.make(), task, synthetic.expert(task))[-1] for task in synthetic.splits["validation"][:40]]
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
        answers.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(answers) == 1


words = st.sampled_from(["shoes", "tea", "lamp with", "[", "]", "é", "\n", "x" * 300, "click[", "buy now", "\ud800"])
actions = st.one_of(
    st.integers(0, 40),  # the n-th admissible action
    st.lists(words, max_size=4).map(lambda parts: f"search[{' '.join(parts)}]"),
    st.lists(words, max_size=4).map(lambda parts: f"click[{' '.join(parts)}]"),
    st.text(max_size=30),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1999), st.lists(actions, max_size=12))
def test_no_action_breaks_a_session(shop, number, script):
    environment = shop.make()
    turn = environment.reset(f"gen1000-0/{number}")
    no_ops = 0
    for action in script:
        if isinstance(action, int):
            choices = [name for name in turn.admissible if name != "search[<your query>]"] or ["search[shoes and tea]"]
            action = choices[action % len(choices)]
            expected = not turn.terminated
        else:
            expected = None
        before, view = turn, environment.view
        turn = environment.step(action)
        assert expected is None or turn.valid == expected
        no_ops += not turn.valid
        if not turn.valid:
            assert environment.view is view
            assert turn == replace(before, reward=0.0, valid=False)
        assert turn.terminated == (environment.view.kind == "done")
        assert turn.reward == 0.0 or (turn.terminated and 0.0 <= turn.reward <= 1.0)
        assert turn.won == (environment.score is not None and environment.score.total == 1.0)
        assert json.loads(json.dumps(turn.observation)) == turn.observation
    assert environment.no_ops == no_ops
