"""What tests read off pages, and how they get there."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import httpx2
from playwright.sync_api import Locator, Page, expect

# Pages ask for news every four seconds, and less often after a failure; tests cannot wait so long.
HURRIED = """{
  const slow = window.setTimeout;
  window.setTimeout = (work, wait, ...rest) => slow(work, wait >= 4000 ? wait / 16 : wait, ...rest);
}"""


def address(name: str) -> str:
    """Of an experiment's page."""
    return f"/experiments/{quote(name, safe='')}"


def headline(page: Page) -> Locator:
    """The sentence that says how it stands."""
    return page.locator("[data-live=headline]")


def hurry(page: Page) -> None:
    """Let the pages that are loaded from now on ask for news 16 times as often."""
    page.add_init_script(HURRIED)


def draw_all(page: Page) -> None:
    """Unfold and scroll through the page until every chart is drawn; then back."""
    page.evaluate("for (const fold of document.querySelectorAll('.fold')) fold.open = true")
    for picture in page.locator("[data-chart]").all():
        picture.scroll_into_view_if_needed()
        expect(picture.locator("svg").first).to_be_attached()
    page.evaluate("scrollTo(0, 0)")


def send_traffic(
    api: httpx2.Client, name: str, prefix: str, count: int, rewards: Mapping[str, float]
) -> None:
    """Send visitors, and report the reward of each by the variant that it got."""
    path = f"/v1{address(name)}"
    units = [f"{prefix} {number}" for number in range(count)]
    answer = api.post(f"{path}/assignments:batch", json={"units": units}).raise_for_status()
    reported = [
        {"assignment": assigned["id"], "reward": rewards[assigned["arm"]]}
        for assigned in answer.json()["assignments"]
    ]
    api.post(f"{path}/rewards:batch", json={"rewards": reported}).raise_for_status()
