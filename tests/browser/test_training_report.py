"""The training report driven in headless Chromium: charts, switches, hostile text, a phone, forty runs in
time.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("scipy", reason="needs the train extra")
pytest.importorskip("playwright", reason="playwright is absent")

from playwright import sync_api as playwright

from bipace.report.write import make_report
from pages import assert_fits_a_phone, seconds_to_open
from run_folders import HOSTILE, hostile_episode, write_study

METHODS = {"gigpo": 0.2, "bipace": 0.4, HOSTILE: 0.1}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = write_study(
        tmp_path_factory.mktemp("report") / f"study {HOSTILE[:8].replace('/', '')}", METHODS, range(3),
        environments=("small", "large"), episodes=[hostile_episode(True), hostile_episode(False)],
    )  # fmt: skip
    return make_report([folder], out=folder / "report"), folder / "report" / "report.html"


@pytest.fixture
def page(browser, report):
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    view.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    view.on("pageerror", lambda e: complaints.append(str(e)))
    view.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else complaints.append(r.url),
    )
    view.goto(report[1].as_uri())
    view.wait_for_selector("html[data-ready=yes]")
    yield view
    # Everything has been near the screen once: charts, names and episodes have all been drawn.
    for chart in view.locator("#diagnostics .chart").all():
        chart.scroll_into_view_if_needed()
        playwright.expect(chart).to_have_attribute("data-drawn", "yes")
    view.locator("details.episode").first.evaluate("e => { e.open = true; }")
    assert view.evaluate("window.hacked") is None
    assert complaints == []
    view.close()


READ_LINES = """id => {
  const box = document.getElementById(id), marks = [...box.querySelectorAll("text")];
  const place = (mark, axis) => Number(mark.getAttribute(axis));
  const value = (mark) => Number(mark.textContent.replace(" %", ""));
  const ends = marks.filter((m) => m.getAttribute("text-anchor") === "end");
  const left = ends.map((m) => [value(m) / 100, place(m, "y") - 4]);
  const below = [...box.querySelectorAll("text.tick-x")].map((m) => [value(m), place(m, "x")]);
  const inverse = (ticks) => {
    const [[v0, p0], [v1, p1]] = [ticks[0], ticks[ticks.length - 1]];
    return (p) => v0 + ((p - p0) / (p1 - p0)) * (v1 - v0);
  };
  const x = inverse(below), y = inverse(left);
  return [...box.querySelectorAll("path.line")].map((line) => {
    const points = [...line.getAttribute("d").matchAll(/[ML]([-0-9.]+) ([-0-9.]+)/g)];
    return [points.map((m) => Math.round(x(Number(m[1])))), points.map((m) => y(Number(m[2])))];
  });
}"""


def drawn(page, chart):
    """[iterations, values] of each line, read back from the path that is on the screen."""
    found = page.evaluate(READ_LINES, chart)
    return [[x, pytest.approx(y, abs=2e-3)] for x, y in found]


def test_the_curves_are_the_summarys(page, report):
    curves = report[0]["environments"]["small"]["curves"]["demo-panel"]
    assert drawn(page, "chart-curve") == [[c["iterations"], c["mean"]] for c in curves.values()]
    page.locator("#panel").select_option("heldout-panel")
    curves = report[0]["environments"]["small"]["curves"]["heldout-panel"]
    assert drawn(page, "chart-curve") == [[c["iterations"], c["mean"]] for c in curves.values()]
    page.locator("#panel").select_option("")
    assert len(drawn(page, "chart-curve")[0][0]) == 20


def test_the_whole_curve_is_shown_beside_the_baselines(page, report):
    entry = report[0]["environments"]["small"]["whole_curves"]["bipace"]
    row = page.locator("#table-curves tr", has_text="bipace").first.inner_text()
    assert f"{100 * entry['mean']:.1f} %" in row
    less = entry["difference"]
    assert f"{abs(100 * less['mean']):.1f}".removesuffix(".0") in row
    assert f"{less['ahead']} of {less['n']}" in row


def test_the_table_shows_mean_deviation_and_intervals(page, report):
    peak = report[0]["environments"]["small"]["methods"]["bipace"]["val_at_max"]
    row = page.locator('#table-results tr[data-method="bipace"]').inner_text()
    assert f"{100 * peak['mean']:.1f} % ± {100 * peak['std']:.1f}" in row
    low, high = peak["interval"]
    assert f"{100 * peak['iqm']:.1f} % ({100 * low:.1f} to {100 * high:.1f})" in row


def test_a_method_that_is_switched_off_leaves_every_chart_and_table(page):
    before = len(drawn(page, "chart-curve"))
    page.locator('#methods input[value="gigpo"]').uncheck(force=True)
    assert len(drawn(page, "chart-curve")) == before - 1
    assert page.locator('#table-results tr[data-method="gigpo"]').count() == 0
    page.locator('#methods input[value="gigpo"]').check(force=True)
    assert len(drawn(page, "chart-curve")) == before


def test_the_environment_switch_changes_what_is_shown(page, report):
    page.locator('#environment input[value="large"]').check(force=True)
    curves = report[0]["environments"]["large"]["curves"]["demo-panel"]
    assert drawn(page, "chart-curve") == [[c["iterations"], c["mean"]] for c in curves.values()]


def test_every_seed_can_be_shown(page):
    assert page.locator("#chart-curve path.seed").count() == 0
    page.locator("#seeds").check()
    assert page.locator("#chart-curve path.seed").count() == 9


def test_hovering_a_curve_tells_its_value(page):
    page.locator("#chart-curve").scroll_into_view_if_needed()
    box = page.locator("#chart-curve svg[role=img]").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#chart-curve .tip")
    playwright.expect(tip).to_contain_text("bipace: ")
    assert "</script>" in tip.inner_text()


def test_hostile_text_is_shown_as_text(page):
    page.locator("details.episode").first.evaluate("e => { e.open = true; }")
    assert page.locator(".observation").first.inner_text() == f"a room {HOSTILE}"
    assert HOSTILE in page.locator(".response").first.inner_text()
    assert page.locator("#methods").inner_text().count(HOSTILE) == 1
    assert page.locator("#table-runs").inner_text().count(HOSTILE) == 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_no_sideways_scroll(browser, report, scheme):
    assert_fits_a_phone(browser, report[1], scheme)


def test_forty_runs_of_150_iterations_open_within_three_seconds(browser, tmp_path):
    methods = {f"method {i}": 0.05 * i for i in range(8)}
    folder = write_study(tmp_path / "large", methods, range(5), iterations=150, every=10)
    assert len(make_report([folder], out=tmp_path / "out")["runs"]) == 40
    assert seconds_to_open(browser, tmp_path / "out" / "report.html") < 3


def test_the_page_embeds_what_json_prints(page, report):
    assert page.evaluate("JSON.stringify(DATA)") == page.evaluate(
        "text => JSON.stringify(JSON.parse(text))", json.dumps(report[0])
    )
