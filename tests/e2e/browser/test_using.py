"""Pages for people who use keys, who read tables, and who watch for long."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.reading import address, draw_all, hurry, send_traffic, stayed, stays, verdict
from tests.e2e.browser.sites import Site

FOCUSED = """() => {
  const one = document.activeElement;
  const named = one.labels?.[0]?.textContent ?? one.getAttribute("aria-label") ?? one.textContent;
  return [one.tagName, named.trim().replace(/\\s+/g, " ")].join(" ");
}"""


def tabbed(page: Page, most: int = 80) -> list[str]:
    """What the tabulator key reaches, in this order."""
    found: list[str] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        found.append(page.evaluate(FOCUSED))
        if found[-1].startswith("BODY"):
            break
    return found


def test_the_tabulator_reaches_what_can_be_done(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto(address("landing-page"))
    draw_all(page)
    reached = tabbed(page)
    assert reached[0] == "A Skip to the content"
    wanted = ["A New experiment", "A Pause", "A Stop", "A Report", "A Log"]
    places = [reached.index(one) for one in wanted]
    assert places == sorted(places)
    assert any(one.startswith("SUMMARY Numbers") for one in reached)


def test_the_first_key_skips_to_the_content(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_where_one_is_can_be_seen(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto(address("button-colour"))
    for _ in range(12):
        page.keyboard.press("Tab")
        ring = page.evaluate(
            """() => { const style = getComputedStyle(document.activeElement);
               return [style.outlineStyle, style.outlineWidth, style.boxShadow]; }"""
        )
        assert ring[0] != "none" or ring[2] != "none", page.evaluate(FOCUSED)


def test_the_form_can_be_filled_in_with_keys_alone(visitor: Visitor, shop: Site, name: str) -> None:
    page, _ = visitor(shop)
    page.goto("/new")
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.type(name)
    page.get_by_label("Variants", exact=True).focus()
    page.keyboard.type("one\ntwo")
    page.get_by_label("Visitors in all").focus()
    page.keyboard.type("100")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def test_every_chart_has_words_a_table_and_a_file(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto(address("landing-page"))
    draw_all(page)
    charts = page.locator("[data-chart]")
    assert charts.count() >= 8
    for chart in charts.all():
        expect(chart).to_have_accessible_name(re.compile(r"\w"))
        expect(chart).to_have_accessible_description(re.compile(r"\d"))
    assert page.get_by_role("link", name="CSV of").count() == charts.count()
    details = page.get_by_text("Numbers of")
    assert details.count() == charts.count()
    details.first.click()
    table = page.get_by_role("region", name="Numbers of").get_by_role("table")
    expect(table.get_by_role("columnheader").first).to_be_visible()
    assert table.get_by_role("row").count() > 10


def test_a_refresh_moves_nothing(visitor: Visitor, shop: Site, name: str) -> None:
    page, watch = visitor(shop)
    hurry(page)
    with shop.api() as api:
        made = {"name": name, "arms": ["old", "new"], "budget": 5000, "seed": 5, "missing": "drop"}
        api.post("/v1/experiments", json=made).raise_for_status()
        send_traffic(api, name, "early", 500, {"old": 0.0, "new": 1.0})
        page.goto(address(name))
        draw_all(page)
        title = page.get_by_role("heading", name="Who gets the traffic")
        summary = page.get_by_text("Numbers of Who gets the traffic")
        summary.click()
        rows = page.get_by_role("region", name="Numbers of Who gets the traffic").get_by_role("row")
        expect(rows.nth(1)).to_be_visible()
        summary.focus()
        stays(page)
        before, count, loaded = title.bounding_box(), rows.count(), len(watch.navigations)

        send_traffic(api, name, "late", 500, {"old": 1.0, "new": 0.0})
        expect(verdict(page)).to_contain_text("1,000 of 5,000")
        expect(rows).not_to_have_count(count)
        expect(rows.nth(count)).to_be_attached()
    assert stayed(page)
    assert len(watch.navigations) == loaded
    expect(summary).to_be_focused()
    expect(rows.nth(1)).to_be_visible()
    after = title.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) <= 2, "the page jumped"


def test_what_is_being_read_is_not_taken_away(visitor: Visitor, shop: Site, name: str) -> None:
    page, _ = visitor(shop)
    hurry(page)
    with shop.api() as api:
        made = {"name": name, "arms": ["old", "new"], "budget": 5000, "seed": 5, "missing": "drop"}
        api.post("/v1/experiments", json=made).raise_for_status()
        page.goto(address(name))
        expect(verdict(page)).to_be_visible()
        button = page.get_by_role("link", name="Pause")
        button.focus()
        send_traffic(api, name, "early", 300, {"old": 0.0, "new": 1.0})
        expect(verdict(page)).to_contain_text("300 of 5,000")
        expect(button).to_be_focused()
        draw_all(page)  # charts that were not there before are drawn, too
    assert page.locator("[data-chart]").count() > 1


def test_a_service_that_goes_away_is_told(visitor: Visitor, shop: Site) -> None:
    page, watch = visitor(shop)
    hurry(page)
    watch.allow("ERR_INTERNET_DISCONNECTED")
    page.goto(address("not-started"))
    expect(verdict(page)).to_be_visible()
    page.context.set_offline(True)
    expect(page.get_by_text("may be old")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("may be old")).to_have_count(0)


def test_the_form_takes_over_what_the_planner_says(visitor: Visitor, empty: Site) -> None:
    """Fields of the planner follow the form; its buttons fill in visitors and when to stop."""
    page, _ = visitor(empty)
    page.goto("/new")
    page.get_by_label("Variants", exact=True).fill("now\nshort")
    expect(page.get_by_label("Usual rate")).to_be_visible()
    page.get_by_label("Any number, such as euros").check()
    expect(page.get_by_label("Usual rate")).to_be_hidden()
    page.get_by_label("Yes or no, such as a click or a purchase: 1 or 0").check()
    page.get_by_label("Usual rate").fill("20")
    page.get_by_label("Smallest difference worth finding").first.fill("10")
    page.get_by_role("button", name="Plan", exact=True).click()
    uses = page.locator("#plan-uses button")
    expect(uses).to_have_count(3)
    expect(page.locator("#plan-answers")).to_contain_text("clear answers in 80 % of the tests")
    with page.expect_response("**/new/preview"):
        uses.last.click()
    assert re.sub(r"\D", "", uses.last.inner_text()) == page.locator("#f-budget").input_value()
    expect(page.locator("input[name=stop][value=sure]")).to_be_checked()
    expect(page.locator("#f-looks")).to_have_value("8")
