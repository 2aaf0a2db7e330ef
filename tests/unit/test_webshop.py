"""WebShop as an environment: pages, actions, episodes."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bipace.envs.base import Environment, Suite
from bipace.envs.webshop import generated_suite
from bipace.envs.webshop.pages import View, clickables, page_text


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
    tail = [
        product.title,
        f"Price: {product.price_tag}",
        "Rating: N.A.",
        "Description",
        "Features",
        "Reviews",
    ]
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
    assert all(
        (turn.reward, turn.terminated, turn.won, turn.valid) == (0.0, False, False, True) for turn in before
    )
    assert (last.reward, last.terminated, last.won) == (1.0, True, True)
    assert environment.score.success
    assert last.observation == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0"
    after = environment.step("search[more]")
    assert (after.valid, after.reward, after.terminated, after.won) == (False, 0.0, True, True)


def test_a_partial_score_is_a_reward_but_not_a_win(shop):
    goals = [(task, shop.goal(task)) for task in shop.splits["gen-validation"]]
    task, goal = next(
        (task, goal) for task, goal in goals if len(goal.options) == 2 and len(goal.attributes) == 1
    )
    asin = goal.asin.lower()
    title = next(product.title for product in shop.shop.products if product.asin == goal.asin)
    environment = shop.make()
    last = play(environment, task, [f"search[{title}]", f"click[{asin}]", "click[buy now]"])[-1]
    assert last.reward == pytest.approx(2 / 4)  # the attribute and the price; neither option
    assert (last.terminated, last.won) == (True, False)


@pytest.mark.parametrize(
    "action",
    [
        *(
            "",
            " ",
            "\0",
            "buy",
            "click",
            "click[]",
            "search[]",
            "think[x]",
            "say search[x]",
            "search[two\nlines]",
        ),
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
    assert [environment.step(action) for action in actions[2:]] == [
        other.step(action) for action in actions[2:]
    ]
    third = shop.make()
    play(third, task, actions[:1])
    fourth = third.copy()
    fourth.step("click[back to search]")
    assert third.view.kind == "results"


words = st.sampled_from(
    ["shoes", "tea", "lamp with", "[", "]", "é", "\n", "x" * 300, "click[", "buy now", "\ud800"]
)
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
            choices = [name for name in turn.admissible if name != "search[<your query>]"] or [
                "search[shoes and tea]"
            ]
            action = choices[action % len(choices)]
            expected = not turn.terminated
        else:
            expected = None
        before, view = turn, environment.view
        turn = environment.step(action)
        assert expected is None or turn.valid == expected
        no_ops += not turn.valid
        assert (turn.executed is None) == (not turn.valid)
        if not turn.valid:
            assert environment.view is view
            assert turn == replace(before, reward=0.0, valid=False, executed=None)
        assert turn.terminated == (environment.view.kind == "done")
        assert turn.reward == 0.0 or (turn.terminated and 0.0 <= turn.reward <= 1.0)
        assert turn.won == (environment.score is not None and environment.score.total == 1.0)
        assert json.loads(json.dumps(turn.observation)) == turn.observation
    assert environment.no_ops == no_ops
