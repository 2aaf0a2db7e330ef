"""The shop in headless Chromium: a person can do a task and sees the score; nothing in the data runs as a
page.
"""

import threading
import urllib.error
import urllib.request
from dataclasses import replace
from http.client import HTTPConnection

import pytest

from bipace.envs.webshop import generated_suite
from bipace.envs.webshop.search import open_index
from bipace.envs.webshop.web import MAX_SESSIONS, make_server

BAD_TITLE = "<script>document.title='owned'</script><b>Bold</b> & \"Sons\" glow lamp"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The generated shop with one hostile product: its title, option and description are HTML."""
    suite = generated_suite(cache_folder=tmp_path_factory.mktemp("cache"))
    hostile = replace(
        suite.shop.products[0],
        asin="B0HOSTILE0",
        title=BAD_TITLE,
        description="<img src=x onerror=\"document.title='owned'\">",
        options=(("<i>color</i>", ('"><script>document.title=1</script>', "plain")),),
    )
    products = (*suite.shop.products, hostile)
    index = open_index([product.title for product in products], "", None)
    return replace(suite, shop=replace(suite.shop, products=products, index=index))


@pytest.fixture(scope="module")
def address(shop):
    server = make_server(shop)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def page(browser, address):
    context = browser.new_context()
    tab = context.new_page()
    tab.problems = []
    tab.on("console", lambda message: tab.problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.set_default_timeout(10_000)
    tab.goto(address)
    yield tab
    context.close()


def begin(page, task):
    page.get_by_label("Task").fill(task)
    page.get_by_role("button", name="Begin").click()


def do(page, action):
    verb, argument = action[:-1].split("[", 1)
    if verb == "search":
        page.locator("#search_input").fill(argument)
        page.get_by_role("button", name="Search", exact=True).click()
    else:
        page.locator(f'button[name="click"][value="{argument.lower()}"]').click()


def test_a_person_can_do_the_task_and_sees_the_score(page, shop):
    task = shop.splits["gen-validation-panel"][2]
    begin(page, task)
    assert page.locator("#instruction").inner_text() == shop.goal(task).instruction
    actions = shop.expert(task)
    for action in actions:
        do(page, action)
    assert page.locator("#score").inner_text() == "1.000"
    assert f"step {len(actions)} (agents have 15)" in page.locator("header").inner_text()
    assert "price\twithin the bound" in page.locator("table").inner_text()
    assert "not comparable with WebShop scores" in page.locator("footer").inner_text()
    page.get_by_role("button", name="Next task").click()
    assert (
        page.locator("#instruction").inner_text()
        == shop.goal(shop.splits["gen-validation-panel"][3]).instruction
    )
    assert page.problems == []


def test_every_kind_of_page_can_be_reached_and_left(page, shop):
    product = next(product for product in shop.shop.search("for women")[:10] if product.options)
    do(page, "search[for women]")
    assert "Page 1 (Total results: 50)" in page.locator("main").inner_text()
    do(page, "click[next >]")
    assert "Page 2" in page.locator("main").inner_text()
    do(page, "click[< prev]")
    do(page, f"click[{product.asin.lower()}]")
    option = page.locator("fieldset button").first
    option.click()
    assert page.locator("fieldset button").first.get_attribute("aria-pressed") == "true"
    for name in ("description", "features", "reviews"):
        do(page, f"click[{name}]")
        assert page.locator("h1").inner_text().lower() == name
        do(page, "click[< prev]")
    assert page.locator("fieldset button").first.get_attribute("aria-pressed") == "true"
    do(page, "click[back to search]")
    assert page.locator("#search_input").is_visible()
    assert page.problems == []


def test_hostile_text_is_shown_and_never_run(page):
    do(page, "search[bold sons glow lamp]")
    title = page.locator("ul.products b", has_text="Sons")
    assert title.inner_text() == BAD_TITLE
    do(page, "click[b0hostile0]")
    assert page.locator("h1").inner_text() == BAD_TITLE
    assert page.locator("legend").inner_text() == "<i>color</i>"
    page.locator("fieldset button").first.click()
    assert page.locator("fieldset button").first.get_attribute("aria-pressed") == "true"
    do(page, "click[description]")
    assert "onerror" in page.locator("main li").inner_text()
    assert page.locator("main img, main script, main i").count() == 0
    assert page.title() == "WebShop"
    begin(page, "<script>document.title='owned'</script>")
    assert 'has no task "<script>' in page.locator(".note").inner_text()
    assert page.title() == "WebShop"
    assert page.problems == []


def test_two_windows_shop_apart(page, browser, address):
    do(page, "search[lamp]")
    other = browser.new_context()
    tab = other.new_page()
    tab.goto(address)
    assert tab.locator("#search_input").is_visible()
    page.reload()
    assert "Total results" in page.locator("main").inner_text()
    other.close()


def ask(address, method="GET", path="/", body=None, **headers):
    connection = HTTPConnection(address.removeprefix("http://"), timeout=10)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_other_host_names_are_refused(address):
    answer, _ = ask(address, Host="shop.example.org")
    assert answer.status == 403


def test_broken_requests_get_an_answer(address):
    assert ask(address, path="/no")[0].status == 404
    assert ask(address, "POST", "/no", "")[0].status == 404
    assert ask(address, "POST", "/act", "x" * 20_000)[0].status == 413
    assert ask(address, "POST", "/act", "a=1&" * 5000)[0].status == 413
    assert ask(address, "POST", "/act", "a=1&" * 20)[0].status == 303
    answer, page = ask(address, Cookie="bipace_shop=\x01; =;")
    assert answer.status == 200
    assert "Instruction" in page


def test_answers_forbid_scripts_and_framing(address):
    with urllib.request.urlopen(address) as answer:
        policy = answer.headers["Content-Security-Policy"]
        cookie = answer.headers["Set-Cookie"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "HttpOnly; SameSite=Strict" in cookie


def test_sessions_are_bounded(shop):
    server = make_server(shop)
    sessions = server.RequestHandlerClass.shoppers
    first, _ = sessions.page(None)
    for _ in range(MAX_SESSIONS):
        sessions.page(None)
    assert len(sessions._open) == MAX_SESSIONS
    assert sessions.page(first)[0] != first
    server.server_close()
