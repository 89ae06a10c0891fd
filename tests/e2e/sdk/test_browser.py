"""Providers for browsers in a real one, on another origin than the service, with keys."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import steadyarm as sa
from steadyarm.cli.main import main
from tests.e2e.sdk.shops import IMPORTS, ROOT, PageServer, Shop, create_shop
from tests.service.clients import listening, until

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


HOME = ROOT / "examples/web"
HEADLINES = {
    "Mountain tea, first harvest": "standard",
    "The mountain in a cup": "warm",
    "Tea. Just better.": "short",
}
CLICKS = {"standard": 0.2, "warm": 0.8, "short": 0.1}  # what visitors like


def commands() -> list[str]:
    """What the README says to type, of SteadyArm's commands."""
    blocks = re.findall(r"```console\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if "steadyarm " in line]


def typed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    words = command.split()
    assert words[0] == "steadyarm"
    assert main(words[1:]) == 0
    return capsys.readouterr().out.strip()


def come(page: Page, address: str) -> str:
    """What somebody is shown who has never been here."""
    page.evaluate("localStorage.clear()")
    page.goto(address)
    expect(page.locator("main")).to_be_visible()
    return HEADLINES[page.locator("h1").inner_text()]


def test_a_whole_test_ends_with_a_verdict(
    visitor: BrowserContext,
    pages: PageServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = f"sqlite:///{tmp_path}/tests.db"
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("STEADYARM_STORAGE", storage)
    create, admin, web, serve, recommend = commands()
    assert (serve, recommend) == ("steadyarm serve", "steadyarm experiment recommend tea")
    typed(create, capsys)
    typed(admin, capsys)
    key = typed(web.replace("http://127.0.0.1:8080", pages.url), capsys)
    ahead = [0.0]
    experiment = sa.load_experiment("tea", storage, clock=lambda: time.time() + ahead[0])
    with listening(storage) as url:
        html, flags = (HOME / "index.html").read_text(), 'flags: ["tea"]'
        assert flags in html
        # Other tests keep the machine busy.
        pages.pages["/examples/web/"] = html.replace(flags, f"{flags}, timeout: 20_000")
        address = f"/examples/web/?{urlencode({'url': url, 'key': key})}"
        page = visitor.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto("/examples/web/style.css")
        people, shown = random.Random(7), list[str]()
        for _ in range(5):
            shown.append(come(page, address))
            page.get_by_role("button").click()
            expect(page.get_by_role("status")).to_have_text("In your basket.")
            page.wait_for_function("Object.keys(localStorage).every((k) => !k.includes('event'))")
        assert not problems
        assert list(experiment.status().assigned) == [shown.count(name) for name in CLICKS]
        assert experiment.status().total_rewarded == 5
        rest: Any = experiment.ask_many([f"visitor {i}" for i in range(5, experiment.budget)])
        experiment.tell_many((one, float(people.random() < CLICKS[one.name])) for one in rest)
        ahead[0] = 31.0  # the window of 15 s, and as long for what comes late
        experiment.refresh()
        verdict = experiment.recommend()
        assert verdict.decision.text.startswith("Ship warm: it beats standard")
        come(page, address)  # nobody who comes later waits for anything
    come(page, address)  # nor if the service is gone
