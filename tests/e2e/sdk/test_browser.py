"""Providers for browsers in a real one, on another origin than the service, with keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.e2e.sdk.pages import IMPORTS, PageServer
from tests.e2e.sdk.shops import Shop, create_shop
from tests.service.clients import until

OURS = (
    IMPORTS
    + """<title>Shop</title>
<p id="shown"></p><button id="buy">Buy</button><button id="leave">Buy and leave</button>
<script type="module">
  import { OpenFeature } from "@openfeature/web-sdk";
  import { SteadyArmWebProvider, visitorId } from "@steadyarm/openfeature/web";
  const provider = new SteadyArmWebProvider(%s);
  await OpenFeature.setProviderAndWait(provider, { targetingKey: visitorId(), device: "mobile" });
  const flags = OpenFeature.getClient();
  Object.assign(window, { OpenFeature, provider, flags });
  document.querySelector("#buy").onclick = () => flags.track("purchase");
  document.querySelector("#leave").onclick = () => {
    flags.track("purchase");
    location.href = "/elsewhere";
  };
  document.querySelector("#shown").textContent = flags.getStringValue("shop", "default");
</script>"""
)


def opened(
    visitor: BrowserContext, pages: PageServer, shop: Shop, key: str = "web", **options: Any
) -> Page:
    """The page of the shop, when it shows something."""
    settings = {"url": shop.url, "key": shop.keys.get(key, key), "flags": ["shop"]}
    settings |= {"timeout": 20_000} | options  # other tests keep the machine busy
    pages.pages["/shop"] = OURS % json.dumps(settings)
    pages.pages["/elsewhere"] = "<title>Elsewhere</title>"
    page = visitor.new_page()
    page.goto("/shop")
    expect(page.locator("#shown")).not_to_be_empty()
    return page


def details(page: Page, flag: str) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(f"flags.getStringDetails('{flag}', 'default')")
    return found


def delivered(page: Page, count: int) -> None:
    """Wait until the page knows that the service has so many events."""
    page.wait_for_function(f"provider.counts.delivered === {count}", timeout=30_000)
    expected = {"pending": 0, "delivered": count, "rejected": 0, "dropped": 0}
    assert page.evaluate("provider.counts") == expected


def until_counts(shop: Shop, expected: tuple[int, int]) -> None:
    until(lambda: shop.counts() == expected)


def test_a_page_shows_its_variant_and_reports_clicks(
    visitor: BrowserContext, pages: PageServer, shop: Shop
) -> None:
    assigned, rewarded = shop.counts()
    page = opened(visitor, pages, shop)
    found = details(page, "shop")
    assert found["value"] in ("A", "B", "C")
    assert found["reason"] == "SPLIT"
    assert found["flagMetadata"]["inTest"] is True
    page.click("#buy")
    delivered(page, 1)
    page.reload()
    expect(page.locator("#shown")).to_have_text(found["value"])  # the visitor keeps it
    assert shop.counts() == (assigned + 1, rewarded + 1)


def test_a_page_spends_no_budget_on_what_it_does_not_show(
    visitor: BrowserContext, pages: PageServer, shop: Shop
) -> None:
    names = ("shop", "page", "everywhere")
    before = [shop.counts(name)[0] for name in names]

    def spent() -> list[int]:
        return [shop.counts(name)[0] - was for name, was in zip(names, before, strict=True)]

    page = opened(visitor, pages, shop)
    assert details(page, "page")["errorCode"] == "FLAG_NOT_FOUND"
    assert details(page, "everywhere")["value"] in ("A", "B")  # created with bulk=True
    assert spent() == [1, 0, 1]
    page.evaluate("provider.load('page')")
    found = page.evaluate("flags.getObjectValue('page', {})")
    assert sorted(found) == ["headline", "image"]
    assert spent() == [1, 1, 1]
    page.reload()
    expect(page.locator("#shown")).not_to_be_empty()
    assert page.evaluate("flags.getObjectValue('page', {})") == found  # it is known by now
    assert spent() == [1, 1, 1]


def test_events_reach_the_service_when_the_page_is_left_or_closed(
    visitor: BrowserContext, pages: PageServer, shop: Shop
) -> None:
    assigned, rewarded = shop.counts()
    page = opened(visitor, pages, shop)
    page.click("#leave")
    page.wait_for_url("**/elsewhere")
    until_counts(shop, (assigned + 1, rewarded + 1))
    page.close()
    page = opened(visitor, pages, shop)
    page.evaluate("OpenFeature.setContext({ targetingKey: 'closes the tab' })")
    page.wait_for_function("flags.getStringDetails('shop', '').reason === 'SPLIT'")
    # An event of the very last moment, while the page goes away.
    page.evaluate("addEventListener('pagehide', () => flags.track('purchase'), { capture: true })")
    page.close(run_before_unload=True)
    until_counts(shop, (assigned + 2, rewarded + 2))


def test_pages_work_without_the_service_and_their_events_wait_for_it(
    visitor: BrowserContext, pages: PageServer, tmp_path: Path
) -> None:
    shop = create_shop(tmp_path, pages.url)
    with shop.open():
        page = opened(visitor, pages, shop)
        shown = details(page, "shop")["value"]
    page.click("#buy")  # the service is down from here
    page.wait_for_function("provider.counts.pending === 1")
    page.reload()
    expect(page.locator("#shown")).to_have_text(shown)  # what this visitor was shown before
    assert details(page, "shop")["reason"] == "CACHED"
    assert page.evaluate("provider.counts.pending") == 1  # it survived the page
    page.evaluate("OpenFeature.setContext({ targetingKey: 'new' })")
    page.wait_for_function("flags.getStringValue('shop', 'default') === 'default'")
    with shop.open():
        delivered(page, 1)  # by itself
        assert shop.counts() == (1, 1)


@pytest.mark.parametrize("key", ["elsewhere", "pk_none"])
def test_a_key_that_does_not_fit_gets_nothing_and_the_page_works(
    visitor: BrowserContext, pages: PageServer, shop: Shop, key: str
) -> None:
    before = shop.counts()
    page = opened(visitor, pages, shop, key)
    found = details(page, "shop")
    assert (found["value"], found["reason"]) == ("default", "ERROR")
    page.click("#buy")
    page.evaluate("provider.flush()")
    assert shop.counts() == before
