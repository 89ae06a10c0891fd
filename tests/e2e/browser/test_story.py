"""A test from the form to the report, as people who run it or only look at it see it."""

from __future__ import annotations

import csv
import io
import random
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from playwright.sync_api import Browser, Page, Route, expect

from tests.e2e.browser.chromium import new_context
from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.sites import (
    HOSTILE_TOKEN,
    Site,
    Watch,
    address,
    headline,
    hurry,
    send_traffic,
)

METRICS = (("revenue", "Money", "Only shown"), ("loading", "Number", "Guardrail"))


def create(page: Page, name: str, visitors: str = "2,000") -> None:
    page.goto("/")
    page.get_by_role("link", name="New experiment").first.click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Variants", exact=True).fill("plain\nbold\ncalm")
    control = page.get_by_label("Control (what visitors see today)")
    expect(control.get_by_role("option")).to_have_text(["none", "plain", "bold", "calm"])
    control.select_option("calm")
    page.get_by_label("Metric name").fill("purchase")
    for number, (event, kind, role) in enumerate(METRICS, start=2):
        page.get_by_role("button", name="Add a metric").click()
        metric = page.get_by_role("group", name=f"Metric {number}")
        metric.get_by_label("Metric name").fill(event)
        metric.get_by_label("Kind").select_option(kind)
        metric.get_by_label("Role").select_option(role)
        expect(metric.get_by_label("Acceptable loss")).to_be_visible(visible=role == "Guardrail")
        metric.get_by_label("Counts within").fill("1 day")
    metric.get_by_label("Acceptable loss").fill("5%")
    page.get_by_label("Visitors in total").fill(visitors)
    page.get_by_role("button", name="Create experiment").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def download(page: Page, link: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.get_by_role("link", name=link, exact=True).click()
    found = waiting.value
    return found.suggested_filename, Path(found.path()).read_bytes()


def confirm(page: Page, verb: str) -> None:
    """Nothing happens before a second page has said what follows."""
    page.get_by_role("link", name=verb, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(rf"^{verb} .*\?$"))
    page.get_by_role("button", name=verb, exact=True).click()


def test_a_test_from_the_form_to_the_report(
    visitor: Visitor, shop: Site, name: str, browser: Browser, tmp_path: Path
) -> None:
    page, watch = visitor(shop)
    hurry(page)
    create(page, name)
    with shop.api() as api:
        loaded = len(watch.navigations)
        send_traffic(api, name, "early", 200, {"plain": 0.0, "bold": 1.0, "calm": 0.0})
        expect(headline(page)).to_contain_text("bold")
        expect(headline(page)).to_contain_text("200 of 2,000")
        send_traffic(api, name, "late", 800, {"plain": 1.0, "bold": 0.0, "calm": 0.0})
        expect(headline(page)).to_contain_text("plain")
        expect(headline(page)).to_contain_text("1,000 of 2,000")
        first = page.get_by_role("region", name="Variants by").get_by_role("row").nth(1)
        expect(first).to_contain_text("plain")
        calm = page.get_by_role("region", name="Variants by").get_by_role("row", name="calm")
        expect(calm.get_by_role("cell", name="control", exact=True)).to_be_visible()
        assert len(watch.navigations) == loaded

        confirm(page, "Stop")
        expect(page.get_by_role("heading", level=1)).to_contain_text("stopped")
        created = api.get(f"/v1{address(name)}").json()
        assert created["state"] == "stopped"
        metrics = [metric["name"] for metric in created["settings"]["metrics"]]
        assert metrics == ["purchase", "revenue", "loading"]
        expect(page.get_by_role("heading", name="Variants by purchase")).to_be_visible()
        expect(page.get_by_role("heading", name="Guardrails")).to_be_visible()
        expect(page.get_by_role("link", name="Stop", exact=True)).to_have_count(0)

    file, content = download(page, "CSV of Estimates over time")
    assert file == f"{name}-estimates.csv"
    rows = list(csv.reader(io.StringIO(content.decode())))
    assert len(rows) > 3
    assert {"plain", "bold", "calm"} <= {cell for row in rows for cell in row}

    page.get_by_role("heading", name="Details").click()
    file, content = download(page, "Log")
    assert file == f"{name}.zip"
    with ZipFile(io.BytesIO(content)) as archive:
        assert len(archive.read(f"{name}.csv").splitlines()) == 1001

    file, content = download(page, "Report")
    assert file == f"{name}.html"
    mailed = tmp_path / "mailed.html"
    mailed.write_bytes(content)
    read_offline(browser, mailed, name)


def read_offline(browser: Browser, report: Path, name: str) -> None:
    context = new_context(browser, "file:///")
    watch = Watch(context, "file:///")
    context.set_offline(True)
    page = context.new_page()
    page.goto(report.as_uri())
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    expect(page.get_by_text("plain").first).to_be_visible()
    assert page.get_by_role("img").count() > 2
    assert page.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth)")
    context.close()
    watch.check()


def test_a_wrong_event_is_noticed_and_the_winner_is_rolled_out(
    visitor: Visitor, shop: Site, name: str
) -> None:
    page, _ = visitor(shop, 390)
    hurry(page)
    create(page, name, "600")
    luck = random.Random(1)
    with shop.api() as api:

        def ask(first: int, last: int) -> dict[str, str]:
            units = [f"{name} {i}" for i in range(first, last)]
            answer = api.post(f"/v1{address(name)}/assignments:batch", json={"units": units})
            return {shown["unit"]: shown["arm"] for shown in answer.json()["assignments"]}

        shown = ask(0, 60)
        wrong = api.post("/v1/events", json={"event": "purchases", "unit": f"{name} 0"})
        assert wrong.status_code == 422
        panel, facts = (page.locator(f"[data-live={part}]") for part in ("setup", "facts"))
        expect(panel).to_contain_text("unknown event name")
        expect(panel).to_contain_text("No metric counts it. This test counts purchase")
        expect(headline(page)).to_contain_text("Events named 'purchases' were received")
        expect(facts).to_contain_text("failing")
        shown |= ask(60, 600)
        events: list[dict[str, object]] = []
        for unit, variant in shown.items():
            bought = float(luck.random() < (0.8 if variant == "bold" else 0.3))
            events.append({"event": "purchase", "unit": unit, "value": bought})
            events.append({"event": "loading", "unit": unit, "value": luck.gauss(2, 0.1)})
        for batch in (events[:600], events[600:]):
            assert api.post("/v1/events:batch", json={"events": batch}).status_code == 200
    decision = page.get_by_role("region", name="Decision")
    expect(decision).to_contain_text("Ship bold")
    expect(facts).to_contain_text("healthy")
    expect(panel.get_by_role("heading")).to_have_count(0)  # more than 100 rewards have come
    decision.get_by_role("link", name="Roll out").click()
    expect(page.get_by_label("Variant")).to_have_value("bold")
    page.get_by_role("button", name="Roll out").click()
    expect(decision).to_contain_text("bold is rolled out to 100 % of all visitors")
    expect(decision).not_to_contain_text("Show it to everybody")


def test_the_page_of_sixteen_variants_is_short(visitor: Visitor, shop: Site, name: str) -> None:
    page, _ = visitor(shop)
    seconds = {"kind": "number", "unit": "s", "window": "1d"}
    test = {
        "name": name,
        "variants": [f"layout {i}" for i in range(16)],
        "budget": 4000,
        "control": "layout 0",
        "stop": "recommend",
        "metrics": [
            {"name": "bought", "role": "primary", "kind": "yes/no", "window": "1d"},
            {"name": "waited", "role": "guardrail", "margin": 0.1, **seconds},
            {"name": "stayed", **seconds},
            {"name": "read", **seconds},
        ],
    }
    with shop.api() as api:
        assert api.post("/v1/experiments", json=test).status_code == 201
        send_traffic(api, name, "u", 1000, {f"layout {i}": float(i > 7) for i in range(16)})
    page.goto(address(name))
    for chart in page.locator(".charts.main [data-chart]").all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator("svg").first).to_be_attached()
    assert page.get_by_role("region", name="Variants by").get_by_role("row").count() == 17
    assert page.evaluate("document.scrollingElement.scrollHeight") <= 2500


def test_what_went_wrong_in_the_form_is_said_at_its_fields(
    visitor: Visitor, shop: Site, name: str
) -> None:
    page, watch = visitor(shop)
    watch.allow("status of 422")
    page.goto("/new")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Variants", exact=True).fill("only one")
    page.get_by_label("Visitors in total").fill("many")
    page.get_by_label("Metric name").fill("purchase")
    slow: list[Route] = []
    page.route("**/static/new.js", lambda route: slow.append(route))
    page.get_by_role("button", name="Create experiment").click()
    alert = page.get_by_role("alert")
    expect(alert.get_by_role("link", name="Variants")).to_be_visible()
    expect(alert.get_by_role("link", name="Visitors in total")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value(name)
    expect(page.get_by_label("Visitors in total")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Visitors in total").fill("1000")
    (script,) = slow
    script.continue_()
    expect(alert.get_by_role("link", name="Visitors in total")).to_have_count(0)
    page.get_by_label("Variants", exact=True).fill("one\ntwo")
    expect(alert).to_have_count(0)


def test_the_planner_fills_in_the_form(visitor: Visitor, shop: Site, name: str) -> None:
    page, _ = visitor(shop, 390)
    page.goto("/new")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Variants", exact=True).fill("plain\nbold")
    page.get_by_label("Metric name").fill("purchase")
    page.get_by_label("Usual rate").fill("20")
    page.get_by_label("Smallest difference worth finding").first.fill("10")
    page.get_by_label("Visitors per day").fill("20")  # some weeks, with analyses on the way
    page.get_by_role("button", name="Plan").click()
    expect(page.locator("#plan-verdict")).to_contain_text("Take Steady")
    expect(page.locator("#plan-chart svg").first).to_be_attached()
    page.get_by_role("button", name="and stop when sure").click()
    expect(page.get_by_label("Visitors in total")).not_to_have_value("")
    expect(page.get_by_label("The test stops itself")).to_be_checked()
    page.get_by_text("The same as TOML and Python").click()
    expect(page.locator("#toml")).to_contain_text('stop = "when sure"')
    expect(page.locator("#python")).to_contain_text("sa.Metric('purchase'")


PAGE = address("landing-page")


def test_a_reader_signs_in_reads_and_is_told_of_signing_out(
    visitor: Visitor, guarded: Site
) -> None:
    page, watch = visitor(guarded)
    for status in ("403", "401"):
        watch.allow(f"status of {status}")
    hurry(page)
    title = page.get_by_role("heading", level=1)
    page.goto(PAGE)
    expect(title).to_have_text("Sign in")
    assert "landing-page" not in page.get_by_role("main").inner_text()
    for token in ("sa_<script>alert(1)</script>", guarded.tokens["read"]):
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        if "script" in token:
            expect(page.get_by_role("alert")).to_contain_text("is unknown")
            expect(page.get_by_label("Token")).to_have_value("")
            assert "alert(1)" not in page.content()
    expect(title).to_contain_text("landing-page")
    expect(page.get_by_role("banner")).to_contain_text(HOSTILE_TOKEN)
    for name in ("Pause", "Stop", "New experiment"):
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    assert page.evaluate("document.cookie") == ""
    page.goto(f"{PAGE}/stop")
    expect(page.get_by_role("main")).to_contain_text("This needs admin")
    page.goto(PAGE)
    cookies: Any = page.context.cookies()
    page.context.clear_cookies()  # as if this person had signed out elsewhere
    expect(page.get_by_text("signed out")).to_be_visible()
    page.context.add_cookies(cookies)
    page.goto(PAGE)
    page.get_by_role("button", name="Sign out").click()
    expect(title).to_have_text("Sign in")
    page.go_back()
    page.goto(PAGE)
    expect(title).to_have_text("Sign in")
