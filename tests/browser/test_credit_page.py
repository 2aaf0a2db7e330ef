# long: one page in one browser serves all tests, and to start them takes most of the time
"""The credit report clicked through in headless Chromium: recipes, steps, addresses, maps, files, hostile
text.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn (the extra `analyze`) is absent")
pytest.importorskip("playwright", reason="playwright is absent")

from playwright import sync_api as playwright

import bipace
from bipace.analyze import Options, analyze
from pages import assert_fits_a_phone, seconds_to_open

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2><!--"


def episode(task, member, pairs, reward):
    steps = [
        {"observation": f"{o}{HOSTILE}", "response": f"<action>{a}</action>{HOSTILE}",
        "action": f"{a}{HOSTILE}",
         "parsed": True, "reward": 0.0}
        for o, a in pairs
    ]  # fmt: skip
    steps[-1]["reward"] = reward
    return {"task": task, "member": member, "steps": steps}


def write(path, groups=3, members=4, length=5):
    records = [
        episode(
            f"task {g} {HOSTILE}",
            m,
            [(f"room {t} of house {g}" + (" with a lamp" if m % 2 else ""),
            "go" if (m // 2 + t) % 2 else "wait")
             for t in range(length)],
            float(g % 3 < 2 and (m == 0 or (g + m) % 3 == 0)),
        )
        for g in range(groups)
        for m in range(members)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    # A file's name may hold anything but a slash.
    found = analyze(write(folder / f"e{HOSTILE.replace('/', '')}.jsonl"), Options())
    found.write_page(folder / "page.html")
    return found, folder / "page.html"


def watched(browser, complaints, **options):
    """A new page that notes errors and everything it fetches."""
    view = browser.new_page(**options)
    view.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    view.on("pageerror", lambda e: complaints.append(str(e)))
    view.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else complaints.append(r.url),
    )
    return view


def opened(view, path, address=""):
    view.goto(path.as_uri() + address)
    view.wait_for_selector("html[data-ready=yes]")
    # Groups are filled when they come near the screen.
    view.evaluate("document.getElementById('list').scrollIntoView()")
    return view


@pytest.fixture
def page(browser, report):
    complaints: list[str] = []
    view = watched(browser, complaints, viewport={"width": 1280, "height": 900})
    opened(view, report[1])
    playwright.expect(view.locator(".cell")).to_have_count(60)
    yield view
    assert view.evaluate("window.hacked") is None
    assert complaints == []
    view.close()


def cell_values(page, name="value"):
    """The advantages of all steps, in row order."""
    found = page.eval_on_selector_all(
        ".cell", f"cells => cells.map((c) => [Number(c.dataset.row), Number(c.dataset.{name})])"
    )
    return [value for _, value in sorted(found)]


def shown_groups(page):
    """Numbers of the groups, in the order shown."""
    return [int(i) for i in page.eval_on_selector_all(".group", "groups => groups.map((g) => g.id.slice(6))")]


@pytest.mark.parametrize("name", ["bipace", "grpo", "gigpo", "hgpo"])
def test_the_recipe_switch_colours_every_step_by_the_cores_advantage(page, report, name):
    page.locator(f"#recipe-{name}").check(force=True)
    expected = bipace.advantages(report[0].table.batch, bipace.recipe(name)).values
    np.testing.assert_allclose(cell_values(page), expected, rtol=1e-9, atol=1e-12)


def test_a_step_opens_its_text_its_peers_and_the_cores_arithmetic(page, report):
    found = report[0]
    term = found.credits["bipace"].terms[-1]
    row = int(np.flatnonzero((term.branch > 0) & (term.value != 0))[0])
    page.locator(f'.cell[data-row="{row}"]').click()
    playwright.expect(page.locator("#observation")).to_have_text(found.table.steps[row].observation)
    assert HOSTILE in page.locator("#response").inner_text()
    formula = page.locator(".term").last
    for name, values in (("q", term.q), ("v", term.v), ("scale", term.scale), ("value", term.value)):
        assert float(formula.get_attribute(f"data-{name}")) == pytest.approx(values[row], rel=1e-9)
    assert float(page.locator("#total").get_attribute("data-value")) == pytest.approx(
        found.credits["bipace"].values[row], rel=1e-9
    )
    assert page.locator("table.peers tbody tr").count() == int((term.cluster == term.cluster[row]).sum())
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#detail")).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.row") == str(row)


def test_the_eps_slider_shows_the_credit_of_each_radius(page, report):
    seen = set()
    for index, sweep in enumerate(report[0].sweep):
        page.locator("#eps").evaluate(f"e => {{ e.value = {index}; e.dispatchEvent(new Event('input')); }}")
        assert page.locator("#eps-value").inner_text() == f"{sweep.eps:g}"
        expected = sweep.credits["bipace"].values
        np.testing.assert_allclose(cell_values(page), expected, rtol=1e-9, atol=1e-12)
        seen.add(expected.tobytes())
    assert len(seen) > 1


def test_search_and_filters_narrow_the_groups_and_mark_the_steps(page):
    page.keyboard.press("/")
    page.keyboard.type("house 1 with")
    playwright.expect(page.locator(".group")).to_have_count(1)
    playwright.expect(page.locator(".cell.hit")).to_have_count(10)
    page.locator("#search").fill("nowhere at all")
    playwright.expect(page.locator(".group")).to_have_count(0)
    assert "0 of 3" in page.locator("#count").inner_text()


def test_arrow_keys_move_and_enter_opens(page):
    page.locator('.cell[data-row="0"]').focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.row") == "7"
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#detail h2")).to_contain_text("step 2")


def test_a_second_recipe_stands_in_the_lower_half_of_every_cell(page, report):
    page.locator("#beside").select_option("grpo")
    np.testing.assert_allclose(cell_values(page), report[0].credits["bipace"].values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        cell_values(page, "beside"), report[0].credits["grpo"].values, rtol=1e-9, atol=1e-12
    )
    page.locator('.cell[data-row="0"]').click()
    playwright.expect(page.locator("#detail h3", has_text="Arithmetic of grpo")).to_have_count(1)
    page.locator("#sort").select_option("differ")
    a, b = report[0].credits["bipace"].values, report[0].credits["grpo"].values
    task = report[0].table.batch.task
    expected = sorted(range(3), key=lambda g: -np.abs(a - b)[task == g].mean())
    assert shown_groups(page) == expected


def test_groups_that_teach_come_first_and_lone_ones_last(browser, tmp_path):
    rows = [episode("lone", 0, [("a", "x")], 1.0)]
    rows += [episode("flat", m, [("b", "x")], 1.0) for m in range(3)]
    rows += [episode("varied", m, [("c", "x" if m else "y")], float(m == 1)) for m in range(3)]
    path = tmp_path / "order.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    analyze(path).write_page(tmp_path / "order.html")
    view = opened(browser.new_page(), tmp_path / "order.html")
    assert shown_groups(view) == [2, 1, 0]
    view.locator("#sort").select_option("file")
    playwright.expect(view.locator(".group").first).to_have_id("group-0")
    assert shown_groups(view) == [0, 1, 2]
    view.close()


def test_next_previous_and_the_whole_transcript(page, report):
    page.locator('.cell[data-row="1"]').click()
    name = report[0].table.trajectories[0].name
    heading = page.locator("#detail h2")
    for key, t in (("n", 2), ("p", 1), ("p", 0), ("p", 0)):
        page.keyboard.press(key)
        playwright.expect(heading).to_have_text(f"{name}, step {t}")
    playwright.expect(page.locator("#previous")).to_be_disabled()
    page.locator("#next").click()
    playwright.expect(heading).to_have_text(f"{name}, step 1")
    page.keyboard.press("t")
    playwright.expect(page.locator(".turn")).to_have_count(5)
    steps = report[0].table.steps[:5]
    assert page.locator(".turn .seen").all_inner_texts() == [s.observation for s in steps]
    assert page.locator(".turn .said").all_inner_texts() == [s.response for s in steps]
    page.locator(".turn h3 button").nth(4).click()
    playwright.expect(heading).to_have_text(f"{name}, step 4")
    playwright.expect(page.locator("#next")).to_be_disabled()


def test_a_trajectory_has_one_name_everywhere(page, report):
    names = [t.name for t in report[0].table.trajectories]
    labels = page.locator(".row .name").all_inner_texts()
    assert sorted(labels) == sorted(names)
    row = int(report[0].table.batch.trajectory.tolist().index(5))
    page.locator(f'.cell[data-row="{row}"]').click()
    playwright.expect(page.locator("#detail h2")).to_have_text(f"{names[5]}, step 0")
    members = [
        n for n, t in zip(names, report[0].table.trajectories, strict=True) if t.task == f"task 1 {HOSTILE}"
    ]
    assert (
        page.locator("#detail .scroll table").first.locator("tbody td:first-child").all_inner_texts()
        == members
    )
    peers = page.locator("table.peers tbody td:first-child").all_inner_texts()
    assert f"{names[5]}, step 0" in peers
    assert {p.rsplit(", step", 1)[0] for p in peers} <= set(names)


def test_what_is_shown_survives_a_reload_and_travels_in_the_address(browser, page, report):
    page.locator("#recipe-gigpo").check(force=True)
    page.locator("#beside").select_option("rloo")
    page.locator("#filter").select_option("varied")
    page.locator("#sort").select_option("long")
    page.locator("#eps").evaluate("e => { e.value = 5; e.dispatchEvent(new Event('input')); }")
    page.locator(".cell").nth(7).click()
    page.keyboard.press("t")
    playwright.expect(page.locator(".turn").first).to_be_visible()
    heading, address = page.locator("#detail h2").inner_text(), page.url
    assert "view=transcript" in address
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    for view in (page, other := browser.new_page()):
        if view is other:
            view.goto(address)
            view.wait_for_selector("html[data-ready=yes]")
        playwright.expect(view.locator("#detail h2")).to_have_text(heading)
        assert view.locator("#recipe-gigpo").is_checked()
        assert [view.locator(f"#{i}").input_value() for i in ("beside", "filter", "sort", "eps")] == [
            "rloo", "varied", "long", "5",
        ]  # fmt: skip
        assert view.locator(".turn").count() == 5
    other.close()
    page.keyboard.press("Escape")
    assert "trajectory" not in page.url
    page.go_back()
    page.wait_for_function("!location.hash.includes('view')")


@pytest.mark.parametrize(
    "address", ["#trajectory=nobody&step=3", "#eps=7&recipe=x&show=y&order=z&file=9&step=-1", "#%%%"]
)
def test_an_address_that_names_nothing_here_shows_the_page(browser, report, address):
    complaints: list[str] = []
    view = opened(watched(browser, complaints), report[1], address)
    playwright.expect(view.locator(".group")).to_have_count(3)
    assert view.locator("#detail").is_hidden()
    assert view.locator("#recipe-bipace").is_checked()
    assert complaints == []
    view.close()


@pytest.fixture(scope="module")
def branching(tmp_path_factory):
    """Three members: all in the hall, two at the door where one is paid, one in the pit; the third loops."""
    members = [
        ([("great hall", "go"), ("red door", "open")], 1.0),
        ([("great hall", "go"), ("red door", "kick")], 0.0),
        ([("great hall", "wait"), ("dark pit", "cry"), ("dark pit", "cry"), ("cold cave", "sleep")], 0.0),
    ]
    folder = tmp_path_factory.mktemp("branching")
    path = folder / "b.jsonl"
    path.write_text("".join(json.dumps(episode("maze", m, *e)) + "\n" for m, e in enumerate(members)))
    analyze(path).write_page(folder / "b.html")
    return folder / "b.html"


def test_the_map_folds_equal_states_and_shows_what_each_branch_earned(browser, branching):
    view = opened(browser.new_page(), branching)
    view.locator(".show-map").click()
    view.locator(".map-box select").select_option("text")
    nodes = view.eval_on_selector_all(
        ".map .node:not(.end)",
        "nodes => nodes.map((n) => [n.dataset.members, n.dataset.states, n.dataset.earned].map(Number))",
    )
    # The hall of all three, the door of two, and pit and cave of the third as one box.
    assert sorted(nodes) == [[1, 2, 0], [2, 1, 0.5], [3, 1, pytest.approx(1 / 3)]]
    assert view.locator(".map .node.end").count() == 2
    table = view.locator("table.partings tbody tr")
    cells = [row.locator("td").all_inner_texts() for row in table.all()]
    assert [[a.split("<")[0], n, e] for _, a, n, e, _ in cells] == [
        ["open", "1", "1"], ["kick", "1", "0"], ["go", "2", "0.5"], ["wait", "1", "0"],
    ]  # fmt: skip
    assert [c[0].split("<")[0] for c in cells] == ["red door", "", "great hall", ""]
    view.locator(".map .node").first.click()
    playwright.expect(view.locator("#detail h2")).to_contain_text("maze")
    assert view.evaluate("window.hacked") is None
    view.close()


def test_two_files_stand_side_by_side(browser, tmp_path):
    paths = []
    for n, outcomes in enumerate(([0.0, 0.0], [1.0, 0.0], [1.0, 1.0])):
        rows = [
            episode(f"task {g}", m, [("x", "y")], r * (g < 2))
            for g in range(3)
            for m, r in enumerate(outcomes)
        ]
        paths.append(tmp_path / f"policy {n}.jsonl")
        paths[-1].write_text("".join(json.dumps(r) + "\n" for r in rows))
    analyze(paths).write_page(tmp_path / "two.html")
    view = opened(browser.new_page(), tmp_path / "two.html")
    view.locator("#file-b").select_option("2")
    said = view.locator("#pair").inner_text()
    assert said.startswith("3 tasks stand in both files. Mean outcome, second file less first: +0.6667")
    assert said.endswith("better in 2, worse in 0, equal in 1.")
    rows = [r.locator("td").all_inner_texts() for r in view.locator("#table-files tbody tr").all()]
    assert next(r for r in rows if r[0] == "mean outcome") == ["mean outcome", "0", "0.6667", "+0.6667"]
    view.locator("#table-tasks tbody button").nth(1).click()
    playwright.expect(view.locator("#group-6")).to_be_visible()
    view.locator("#file").select_option("1")
    playwright.expect(view.locator(".group")).to_have_count(3)
    assert str(tmp_path) not in view.locator("body").inner_text()
    view.close()


def test_findings_come_in_order_of_harm_with_the_worst_groups_and_lead_to_them(page, report):
    shown = page.eval_on_selector_all(".finding", "all => all.map((f) => f.dataset.id)")
    assert shown == [f.id for f in report[0].findings]
    gravity = [
        (("error", "warning", "info").index(f.severity), not f.first, -f.harm) for f in report[0].findings
    ]
    assert gravity == sorted(gravity)
    finding = next(f for f in report[0].findings if f.worst)
    box = page.locator(f'.finding[data-id="{finding.id}"]')
    box.evaluate("d => { d.open = true; }")
    for text, worst in zip(box.locator(".worst li").all_inner_texts(), finding.worst, strict=True):
        assert text.endswith(worst.number)
    box.locator(".worst button").first.click()
    playwright.expect(page.locator(f"#group-{finding.worst[0].group}")).to_be_in_viewport()


def test_paper_shows_every_finding_and_no_controls(page):
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#controls").is_hidden()
    assert page.locator("#theme").is_hidden()
    for finding in page.locator(".finding").all():
        assert finding.locator(".advice").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_no_sideways_scroll(browser, report, scheme):
    assert_fits_a_phone(browser, report[1], scheme)


@pytest.mark.parametrize("width", [390, 1280])
def test_an_open_step_and_map_fit_the_screen(browser, report, width):
    view = opened(browser.new_page(viewport={"width": width, "height": 800}), report[1])
    view.locator(".show-map").first.click()
    view.locator(".cell").first.click()
    playwright.expect(view.locator("#detail")).to_be_visible()
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert view.locator("#detail").evaluate("e => e.scrollWidth <= e.clientWidth")
    view.locator("#transcript").click()
    playwright.expect(view.locator(".turn").first).to_be_visible()
    assert view.locator("#detail").evaluate("e => e.scrollWidth <= e.clientWidth")
    view.close()


def test_ten_thousand_trajectories_open_within_three_seconds_and_do_not_stall(browser, tmp_path):
    path = tmp_path / "l.html"
    found = analyze(write(tmp_path / "l.jsonl", groups=1250, members=8, length=3))
    assert found.health.numbers["trajectories"] == 10_000
    found.write_page(path)
    assert path.stat().st_size < 3_000_000
    assert seconds_to_open(browser, path) < 3
    view = opened(browser.new_page(), path)
    assert "1250 of 1250 groups" in view.locator("#count").inner_text()
    # The longest time that the page did not answer while everything is searched.
    stall = view.evaluate("""async () => {
      let longest = 0, last = performance.now(), done = false;
      const box = document.getElementById("search");
      box.value = "house 1249 with"; box.dispatchEvent(new Event("input"));
      const end = performance.now() + 20000;
      while (performance.now() < end && !document.getElementById("count").textContent.includes("match")) {
        await new Promise((r) => setTimeout(r));
        longest = Math.max(longest, performance.now() - last); last = performance.now();
      }
      return longest;
    }""")
    playwright.expect(view.locator(".group")).to_have_count(1)
    assert stall < 1000
    view.close()
