"""Names full of markup are shown as text everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.chromium import new_context
from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.names import (
    HOSTILE_EXPERIMENT,
    HOSTILE_FACTORS,
    HOSTILE_NAMES,
    HOSTILE_TOKEN,
)
from tests.e2e.browser.reading import address, draw_all, sign_in
from tests.e2e.browser.sites import Site
from tests.e2e.browser.watching import Watch

# Elements and attributes that only come into being if a name was taken for markup.
FOREIGN = """() => [...document.querySelectorAll(
  'script:not([src]), [src="x"], [onerror], [onload], iframe, main b, main i, main u')]
  .filter((one) => !(one.tagName === "SCRIPT" && one.type === "application/json"))
  .map((one) => one.outerHTML.slice(0, 200))"""


def no_markup(page: Page) -> None:
    assert page.evaluate(FOREIGN) == []
    text = page.get_by_role("main").inner_text()
    assert "49" not in text.split(), "{{7*7}} was computed"


def text_of(page: Page) -> str:
    """All that a page says, hidden parts included, as it was written."""
    return str(page.evaluate("document.body.textContent"))


def test_variants_on_the_page_and_in_its_charts_and_tables(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto(address("hostile-names"))
    board = page.get_by_role("region", name="Leaderboard")
    for name in HOSTILE_NAMES:
        expect(board.get_by_role("rowheader", name=name, exact=True)).to_be_visible()
    draw_all(page)
    no_markup(page)
    for picture in page.locator("[data-chart]").all()[:3]:
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        assert box is not None
        for share in (0.3, 0.5, 0.7):  # pointing at a chart shows a name
            page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
    no_markup(page)
    page.get_by_text("Numbers of Who gets the traffic").click()
    numbers = page.get_by_role("region", name="Numbers of Who gets the traffic")
    expect(numbers.get_by_role("row").nth(len(HOSTILE_NAMES))).to_be_attached()
    no_markup(page)
    said = numbers.inner_text()
    for name in HOSTILE_NAMES:
        assert name in said


def test_parts_and_their_choices(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto(address("hostile-factors"))
    draw_all(page)
    page.get_by_text("Numbers of What each level does").click()
    numbers = page.get_by_role("region", name="Numbers of What each level does")
    expect(numbers.get_by_role("row").nth(1)).to_be_visible()
    no_markup(page)
    said = numbers.inner_text()
    for factor, levels in HOSTILE_FACTORS.items():
        for text in (factor, *levels):
            assert text in said


def test_an_experiment_on_every_page_that_names_it(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    page.goto("/")
    link = page.get_by_role("link", name=HOSTILE_EXPERIMENT, exact=True)
    expect(link).to_be_visible()
    no_markup(page)
    link.click()
    for path in ("", "/stop", "/charts/estimates"):
        page.goto(address(HOSTILE_EXPERIMENT) + path)
        expect(page.get_by_text(HOSTILE_EXPERIMENT).first).to_be_visible()
        assert HOSTILE_EXPERIMENT in page.title()
        no_markup(page)


def test_leaders_on_the_overview(visitor: Visitor, shop: Site) -> None:
    page, _ = visitor(shop)
    for name in ("hostile-names", "hostile-factors"):
        page.goto(address(name))  # looked at once, so that its leader is known
    page.goto("/")
    expect(page.get_by_text("alert(2)").first).to_be_visible()
    no_markup(page)


def test_what_is_typed_into_the_form(visitor: Visitor, shop: Site, name: str) -> None:
    page, watch = visitor(shop)
    watch.allow("status of 422")
    page.goto("/new")
    page.get_by_label("Variants", exact=True).fill("\n".join(HOSTILE_NAMES))
    page.get_by_label("Name", exact=True).fill(HOSTILE_EXPERIMENT)
    page.get_by_label("Visitors in all").fill(HOSTILE_NAMES[0])
    page.get_by_role("button", name="Create experiment").click()
    expect(page.get_by_role("alert")).to_be_visible()
    no_markup(page)
    expect(page.get_by_label("Variants", exact=True)).to_have_value("\n".join(HOSTILE_NAMES))
    expect(page.get_by_label("Name", exact=True)).to_have_value(HOSTILE_EXPERIMENT)

    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Visitors in all").fill("500")
    page.get_by_text("The same as a file").click()
    file = page.get_by_label("The experiment as TOML")
    expect(file).to_contain_text("<script>alert(1)</script>")
    no_markup(page)
    page.get_by_role("button", name="Create experiment").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    for variant in HOSTILE_NAMES:
        expect(page.get_by_role("rowheader", name=variant, exact=True)).to_be_visible()


def test_tokens(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 403")
    page.goto("/")
    sign_in(page, guarded.tokens["read"])
    expect(page.get_by_role("banner")).to_contain_text(HOSTILE_TOKEN)
    page.goto("/new")  # refused, with the token's name in the reason
    expect(page.get_by_role("main")).to_contain_text(HOSTILE_TOKEN)
    no_markup(page)


@pytest.mark.parametrize("name", ["hostile-names", "hostile-factors", HOSTILE_EXPERIMENT])
def test_reports(shop: Site, browser: Browser, tmp_path: Path, name: str) -> None:
    with shop.api() as api:
        answer = api.get(f"{address(name)}/report.html").raise_for_status()
    report = tmp_path / "report.html"
    report.write_bytes(answer.content)
    context = new_context(browser, "file:///")
    watch = Watch(context, "file:///")
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.evaluate(FOREIGN.replace(", main b, main i, main u", "")) == []
    said = text_of(page)
    assert name in said
    if name == "hostile-names":
        for text in HOSTILE_NAMES[:8]:
            assert text in said
    context.close()
    watch.check()
