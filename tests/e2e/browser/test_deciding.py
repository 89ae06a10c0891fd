"""The page of a test with a control that has had all of its visits: decision and lifts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.reading import address, draw_all
from tests.e2e.browser.sites import Site
from tests.e2e.browser.test_story import confirm

PAGE = address("checkout")
# Texts in a chart, each with its place; those that are drawn over each other cannot be read.
OVERLAPS = """() => {
  const found = [];
  let count = 0;
  for (const plot of document.querySelectorAll(".vega-embed")) {
    const kinds = ".role-axis-label text, .role-axis-title text, .role-legend-label text";
    const texts = [...plot.querySelectorAll(kinds)]
      .filter((one) => one.textContent.trim() && one.getAttribute("opacity") !== "0")
      .map((one) => [one, one.getBoundingClientRect()]);
    count += texts.length;
    texts.forEach(([one, a], i) => {
      for (const [other, b] of texts.slice(i + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 3) found.push(`${one.textContent} / ${other.textContent}`);
      }
    });
  }
  return [count, found];
}"""


def test_decision_and_lifts_come_first(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto(PAGE)
    decision = page.get_by_role("region", name="Decision")
    expect(decision).to_contain_text("Ship guest checkout: it beats today by")
    expect(decision).to_contain_text("Show it to everybody, and stop the test.")
    headings = page.get_by_role("main").get_by_role("heading", level=2)
    expect(headings.first).to_have_text("Leaderboard")
    expect(headings.nth(1)).to_have_text("Against the control")
    board = page.get_by_role("region", name="Leaderboard")
    expect(board.get_by_role("columnheader", name="Against control")).to_be_visible()
    row = board.get_by_role("row", name="guest checkout")
    expect(row).to_contain_text(re.compile(r"\+\d+ %"))
    expect(board.get_by_role("row", name="today")).to_contain_text("control")
    text = page.get_by_role("main").inner_text()
    for word in ("too early", "can still win"):
        assert word not in text.lower()


def test_what_charts_mean_is_told_on_request(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto(PAGE)
    meaning = page.get_by_text("In 95 % of all tests those of all variants").first
    expect(meaning).to_be_hidden()
    page.get_by_text("What this means: intervals of the leaderboard").click()
    expect(meaning).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["checkout", "landing-page"])
def test_no_labels_of_charts_collide(visitor: Visitor, shop: Site, name: str, width: int) -> None:
    page, _ = visitor(shop, width)
    page.goto(address(name))
    draw_all(page)
    count, overlaps = page.evaluate(OVERLAPS)
    assert count > 50
    assert overlaps == []


def test_a_test_that_had_all_visits_is_stopped_then_archived(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop, 390)
    page.goto(PAGE)
    actions = page.locator("[data-live=actions]").get_by_role("link")
    expect(actions).to_have_text(["Stop"])
    confirm(page, "Stop")
    expect(actions).to_have_text(["Archive"])
    expect(page.get_by_role("region", name="Decision")).to_contain_text("Show it to everybody.")
