"""All pages on a phone and a laptop, light and dark: readable by people and by screen readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.chromium import SIZES
from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.sites import HOSTILE_EXPERIMENT, Site, address, draw_all

PAGES = {
    "overview": "/",
    "form": "/new",
    "tokens": "/tokens",
    "API": "/docs",
    "factorial": address("landing-page"),
    "control": address("checkout"),
    "stopped": address("finished"),
    "draft": address("not-started"),
    "without visits": address("no-visitors-yet"),
    "hostile": address(HOSTILE_EXPERIMENT),
    "table": f"{address('checkout')}/charts/drift",
    "confirmation": f"{address('checkout')}/stop",
    "roll-out": f"{address('checkout')}/roll-out",
    "absent": "/experiments/absent",
}
SCREENS: tuple[tuple[int, Literal["light", "dark"]], ...] = (
    (390, "light"),
    (1280, "light"),
    (1280, "dark"),
)
# Not what the window says of itself: on phones it grows with what sticks out.
WIDE = """(width) => {
  const page = document.scrollingElement;
  return page.scrollWidth <= width ? [] : [`${page.scrollWidth} instead of ${width} pixels wide`];
}"""
# Texts in a chart that are drawn over each other cannot be read.
OVERLAPS = """() => {
  const overlaps = [];
  for (const plot of document.querySelectorAll(".vega-embed")) {
    const kinds = ".role-axis-label text, .role-axis-title text, .role-legend-label text";
    const texts = [...plot.querySelectorAll(kinds)]
      .filter((text) => text.textContent.trim() && text.getAttribute("opacity") !== "0")
      .map((text) => [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([one, a], i) => {
      for (const [other, b] of texts.slice(i + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 3) overlaps.push(`${one} / ${other}`);
      }
    });
  }
  return overlaps;
}"""
AXE = Path(__file__).parents[3] / ".venv/browser/node_modules/axe-core/axe.min.js"
# Within a picture there is nothing to be read out: its label and its table stand for it.
RUN = """(rules) => axe.run({exclude: [['[role=img] svg']]},
  {resultTypes: ['violations'], ...(rules ? {runOnly: rules} : {})})"""
SHADES = ["color-contrast", "link-in-text-block"]  # all that depends on colours
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def barriers(page: Page, shades_only: bool) -> list[str]:
    """What axe-core finds to be serious for people who cannot see the page, or use no mouse."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate(RUN, SHADES if shades_only else None)
    return [
        f"{rule['id']}: {rule['help']}; {node['target']}: {node['html'][:200]}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def problems_of(page: Page) -> list[str]:
    """Whatever is wrong with a page, in both sizes and shades."""
    problems = []
    for width, shade in SCREENS:
        page.set_viewport_size({"width": width, "height": SIZES[width]})
        page.emulate_media(color_scheme=shade)
        draw_all(page)
        page.evaluate(FRAMES)
        found = [*page.evaluate(WIDE, width), *page.evaluate(OVERLAPS)]
        found += barriers(page, shades_only=shade == "dark")
        problems += [f"{width} {shade}: {text}" for text in found]
    return problems


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_readable(visitor: Visitor, shop: Site, name: str) -> None:
    page, watch = visitor(shop, 390)
    watch.allow("status of 404")
    page.goto(PAGES[name])
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    problems = problems_of(page)
    assert not problems, "\n".join(problems)


def test_signing_in_and_the_first_experiment_are_readable(
    visitor: Visitor, guarded: Site, empty: Site
) -> None:
    page, watch = visitor(guarded, 390)
    watch.allow("status of 403")
    page.goto("/")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    problems = problems_of(page)
    page, _ = visitor(empty, 390)
    page.goto("/")
    expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()
    problems += problems_of(page)
    assert not problems, "\n".join(problems)
