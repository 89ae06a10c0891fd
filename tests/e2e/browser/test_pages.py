"""All pages in all sizes and shades: nothing cut off, nothing that screen readers stumble over.

Pictures of those that matter most are written on the way, for people to look at.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.accessibility import faults
from tests.e2e.browser.chromium import SIZES
from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.reading import draw_all, hurry, send_traffic, stayed, stays
from tests.e2e.browser.screenshots import PAGES, warm
from tests.e2e.browser.sites import Site

# Not what the window says of itself: on phones it grows with what sticks out.
WIDE = """(width) => {
  const page = document.scrollingElement;
  if (page.scrollWidth <= width) return [];
  return [`${page.scrollWidth} instead of ${width} pixels wide`,
    ...[...document.querySelectorAll("body *")]
      .filter((one) => one.getBoundingClientRect().right > width + 1)
      .map((one) => one.outerHTML.slice(0, 120))].slice(0, 5);
}"""
# Charts follow the window's size some frames later, and ask for another figure where it needs one.
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
SETTLED = """() => [...document.querySelectorAll(".js-plotly-plot")].every((one) =>
  one.ariaBusy !== "true" && Math.abs(one._fullLayout.width - one.clientWidth) < 2)"""
# What is drawn within a chart is hidden from screen readers; without it axe is done sooner.
EMPTIED = """() => {
  for (const one of document.querySelectorAll(".js-plotly-plot")) one.replaceWith(one.cloneNode());
}"""

# Pages ask for news every four seconds; these are looked at as they came.
STILL = """{
  const any = window.setTimeout;
  window.setTimeout = (work, wait, ...rest) => wait === 4000 ? 0 : any(work, wait, ...rest);
}"""

# One page of each layout: between phone and laptop it is the layout that differs.
LAYOUTS = {"overview", "new", "landing-page", "confirmation", "numbers"}
FOLDER = Path(__file__).parents[3] / "steadyarm-screenshots"
SHOWN = {"overview", "landing-page"}


def faults_of(page: Page, both: bool = True, picture: str | None = None) -> list[str]:
    """Whatever is wrong with a page, in every size and shade.

    both : whether screen readers are also asked about the laptop's page
    picture : name of the pictures that are written, if any are
    """

    def take(width: int, shade: Literal["light", "dark"]) -> None:
        page.emulate_media(color_scheme=shade)
        page.screenshot(path=FOLDER / f"{picture}-{width}-{shade}.png", full_page=True)

    found: list[str] = []
    draw_all(page)
    for width in SIZES:
        resize(page, width)
        page.wait_for_function(SETTLED)
        found += [f"{width}: {one}" for one in page.evaluate(WIDE, width)]
        if picture is not None:
            take(width, "light")
            if width == min(SIZES):  # shades are the same in every size
                take(width, "dark")
    page.evaluate(EMPTIED)
    for width in (1280, 390) if both else (390,):
        resize(page, width)
        found += [f"{width} light: {fault}" for fault in faults(page)]
    page.emulate_media(color_scheme="dark")
    return found + [f"{width} dark: {fault}" for fault in faults(page, shades_only=True)]


def resize(page: Page, width: int) -> None:
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": width, "height": SIZES[width]})
    page.evaluate(FRAMES)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wrong_with(visitor: Visitor, shop: Site, name: str) -> None:
    page, watch = visitor(shop, 390)
    watch.allow("status of 404")
    page.add_init_script(STILL)
    if name == "overview":
        warm(shop)
    page.goto(PAGES[name])
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    found = faults_of(page, name in LAYOUTS, name if name in SHOWN else None)
    assert not found, "\n".join(found)
    if name in SHOWN:
        pictures = {path.name: path.read_bytes() for path in FOLDER.glob(f"{name}-*.png")}
        shown = [f"{name}-{width}-light.png" for width in SIZES] + [f"{name}-390-dark.png"]
        assert set(shown) <= set(pictures)
        for width, file in zip((*SIZES, 390), shown, strict=True):
            assert struct.unpack(">I", pictures[file][16:20])[0] == width


def test_nothing_is_wrong_where_one_signs_in(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded, 390)
    watch.allow("status of 403")
    page.goto("/")
    found = faults_of(page)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    found += faults_of(page)
    assert not found, "\n".join(found)


def test_the_overview_before_and_after_the_first_experiment(empty: Site, visitor: Visitor) -> None:
    page, _ = visitor(empty, 390)
    page.goto("/")
    expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()
    found = faults_of(page)
    assert not found, "\n".join(found)
    page.get_by_role("link", name="Create the first one").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("New experiment")

    hurry(page)
    page.goto("/")
    expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()
    stays(page)
    main = page.get_by_role("main")
    with empty.api() as api:
        made = {"name": "first", "arms": ["old", "new"], "budget": 5000, "missing": "drop"}
        api.post("/v1/experiments", json=made).raise_for_status()
        expect(main.get_by_role("link", name="New experiment")).to_be_visible()
        expect(main.get_by_role("link", name="first")).to_be_visible()
        search = page.get_by_label("Search")
        search.fill("fir")
        search.blur()  # what is typed but not sent stays, too
        send_traffic(api, "first", "early", 20, {"old": 0.0, "new": 1.0})
        expect(main).to_contain_text("20 of 5,000")
    expect(search).to_have_value("fir")
    assert stayed(page)
