"""Pages that stay open: nothing that changes is lost, and nothing that is in use is disturbed."""

from __future__ import annotations

import re

import httpx2
from playwright.sync_api import Page, Route, expect

from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.reading import address, draw_all, hurry, send_traffic, stayed, stays, verdict
from tests.e2e.browser.sites import Site

SELECT = "(one) => getSelection().selectAllChildren(one)"
SAID = """() => {
  const said = window.said = [];
  for (const one of document.querySelectorAll("[role=status], [aria-live]")) {
    new MutationObserver(() => said.push(one.textContent))
      .observe(one, {childList: true, characterData: true, subtree: true});
  }
}"""


def open_hurried(page: Page, path: str) -> None:
    hurry(page)
    page.goto(path)


def make(api: httpx2.Client, name: str) -> None:
    made = {"name": name, "arms": ["old", "new"], "budget": 5000, "seed": 5, "missing": "drop"}
    api.post("/v1/experiments", json=made).raise_for_status()


def refreshed(page: Page, times: int = 1) -> None:
    """Wait until the page has asked for its numbers so often, and put in what came."""
    for _ in range(times):
        page.evaluate(
            "() => new Promise((done) => document.addEventListener('steadyarm:fresh', done,"
            " {once: true}))"
        )


def test_what_was_in_use_is_renewed_when_it_is_free(
    visitor: Visitor, shop: Site, name: str
) -> None:
    page, _ = visitor(shop)
    with shop.api() as api:
        make(api, name)
        open_hurried(page, address(name))
        verdict(page).evaluate(SELECT)
        send_traffic(api, name, "early", 300, {"old": 0.0, "new": 1.0})
    facts = page.get_by_role("region", name="In numbers")
    expect(facts).to_contain_text("300 of 5,000")
    expect(verdict(page)).to_contain_text("Waiting")
    page.evaluate("getSelection().removeAllRanges()")
    expect(verdict(page)).to_contain_text("300 of 5,000")


def test_the_overview_goes_on_around_a_link_in_use(visitor: Visitor, shop: Site, name: str) -> None:
    page, _ = visitor(shop)
    with shop.api() as api:
        make(api, name)
        make(api, f"{name}-other")
        open_hurried(page, "/")
        rows = page.get_by_role("table").get_by_role("row")
        mine, other = (
            rows.filter(has=page.get_by_role("link", name=one, exact=True))
            for one in (name, f"{name}-other")
        )
        link = mine.get_by_role("link")
        link.focus()
        for one in (name, f"{name}-other"):
            send_traffic(api, one, "early", 250, {"old": 0.0, "new": 1.0})
        expect(other).to_contain_text("250 of 5,000")
        expect(mine).to_contain_text("250 of 5,000")
        expect(link).to_be_focused()
        count = rows.count()
        make(api, f"{name}-third")
        refreshed(page, 2)
        expect(link).to_be_focused()
        expect(rows).to_have_count(count)
        link.blur()
        expect(rows).to_have_count(count + 1)


def test_the_leaderboard_gets_its_file_with_the_first_verdict(
    visitor: Visitor, shop: Site, name: str
) -> None:
    page, _ = visitor(shop)
    with shop.api() as api:
        make(api, name)
        open_hurried(page, address(name))
        stays(page)
        file = page.get_by_role("link", name="CSV", exact=True)
        expect(file).to_have_count(0)
        send_traffic(api, name, "early", 50, {"old": 0.0, "new": 1.0})
        expect(file).to_have_count(0)  # no segment is complete yet
        send_traffic(api, name, "later", 150, {"old": 0.0, "new": 1.0})
        expect(file).to_have_count(1)
    assert stayed(page)


def test_only_news_is_read_out(visitor: Visitor, shop: Site, name: str) -> None:
    page, _ = visitor(shop)
    with shop.api() as api:
        make(api, name)
        send_traffic(api, name, "early", 400, {"old": 0.0, "new": 1.0})
        open_hurried(page, address(name))
        status = page.get_by_role("status")
        expect(status).to_contain_text("new", ignore_case=True)
        before = status.inner_text()
        page.evaluate(SAID)
        send_traffic(api, name, "more", 5, {"old": 0.0, "new": 1.0})
        expect(verdict(page)).to_contain_text("405 of 5,000")
        assert page.evaluate("window.said") == []
        send_traffic(api, name, "late", 900, {"old": 1.0, "new": 0.0})
        expect(verdict(page)).to_contain_text("1,305 of 5,000")
    expect(status).not_to_have_text(before)
    assert len(page.evaluate("window.said")) == 1
    assert "1,305" not in status.inner_text()


def test_the_words_of_a_chart_are_those_of_today(visitor: Visitor, shop: Site, name: str) -> None:
    page, _ = visitor(shop)
    with shop.api() as api:
        make(api, name)
        send_traffic(api, name, "early", 60, {"old": 0.0, "new": 1.0})
        open_hurried(page, address(name))
        chart = page.get_by_role("img", name="Who gets the traffic")
        expect(chart).to_have_accessible_description(re.compile("^60 visits so far"))
        send_traffic(api, name, "late", 40, {"old": 0.0, "new": 1.0})
        expect(chart).to_have_accessible_description(re.compile("^100 visits so far"))


def test_a_table_survives_a_service_that_goes_away(visitor: Visitor, shop: Site, name: str) -> None:
    page, watch = visitor(shop)
    watch.allow("ERR_FAILED")
    title = "Numbers of Who gets the traffic"
    tables: list[str] = []
    broken = True

    def cut(route: Route) -> None:
        tables.append(route.request.url)
        route.abort() if broken else route.continue_()

    with shop.api() as api:
        make(api, name)
        send_traffic(api, name, "early", 300, {"old": 0.0, "new": 1.0})
        open_hurried(page, address(name))
        draw_all(page)
        page.get_by_text(title).click()
        table = page.get_by_role("region", name=title)
        expect(table.get_by_role("row").nth(1)).to_be_visible()
        refreshed(page)
        before = table.inner_text()
        page.route("**/charts/allocation", cut)

        send_traffic(api, name, "late", 300, {"old": 1.0, "new": 0.0})
        expect(verdict(page)).to_contain_text("600 of 5,000")
        refreshed(page)
        assert tables
        assert table.inner_text() == before
        broken = False
        expect(table).not_to_have_text(before, use_inner_text=True)  # though nothing else comes

        asked, before = len(tables), table.inner_text()
        refreshed(page, 2)
        assert len(tables) == asked, "a table is fetched though nothing has changed"
        table.get_by_role("cell").first.evaluate(SELECT)
        send_traffic(api, name, "last", 300, {"old": 1.0, "new": 0.0})
        expect(verdict(page)).to_contain_text("900 of 5,000")
        refreshed(page)
        assert table.inner_text() == before, "what was chosen is gone"
        page.evaluate("getSelection().removeAllRanges()")
        expect(table).not_to_have_text(before, use_inner_text=True)


def test_a_name_that_is_taken_is_said_until_it_is_changed(
    visitor: Visitor, shop: Site, name: str
) -> None:
    page, watch = visitor(shop)
    watch.allow("status of 409")
    page.goto("/new")
    field = page.get_by_label("Name", exact=True)
    field.fill("landing-page")
    page.get_by_label("Variants", exact=True).fill("one\ntwo")
    page.get_by_label("Visitors in all").fill("2,000")
    with page.expect_response("**/new/preview") as waiting:  # that of the page that comes back
        page.get_by_role("button", name="Create experiment").click()
        expect(page.get_by_role("alert")).to_be_visible()
    waiting.value.finished()
    expect(page.locator("#count")).to_have_text("2 variants.")
    error = page.locator("#e-name")
    expect(error).to_contain_text("already")
    expect(field).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Visitors in all").fill("3,000")
    page.get_by_text("The same as a file").click()
    expect(page.get_by_label("The experiment as TOML")).to_contain_text("3000")
    expect(error).to_be_visible()
    field.fill(name)
    expect(error).to_be_hidden()
    expect(field).not_to_have_attribute("aria-invalid", "true")
