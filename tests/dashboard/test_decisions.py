"""The page of an experiment at its end: what it says everywhere, and the button to roll out."""

from __future__ import annotations

import csv
import random
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.dashboard import pages
from steadyarm.storages import open_storage
from tests.dashboard.clients import Browser, Elements, create, dashboard

CLAIMS = ("A is ahead", "A leads", "B leads", "best estimate")


def texts(browser: Browser, name: str) -> list[str]:
    """Of the page and of the report."""
    paths = (f"/experiments/{name}", f"/experiments/{name}/report.html")
    return [" ".join(Elements(browser.get(path).text).text.split()) for path in paths]


@pytest.mark.parametrize(
    ("visits", "event", "why"),
    [
        (0, "", "Waiting for the first of 400 visits"),
        (400, "purchase", "All 400 rewards so far are 0."),
        (400, "purchases", "Events named 'purchases' were received; the metric is called 'purc"),
    ],
)
def test_without_a_reward_above_zero_nobody_leads(visits: int, event: str, why: str) -> None:
    storage = open_storage("memory")
    metric = sa.Metric("purchase", role="primary", kind="yes/no", window="1d")
    test = create(storage, control="A", metrics=[metric])
    units = [f"visitor {i}" for i in range(visits)]
    test.ask_many(units)
    with dashboard(storage) as browser:
        if event:
            events = [{"unit": unit, "event": event, "value": 0} for unit in units]
            browser.post("/v1/events:batch", {"events": events})
            assert browser.get("/v1/experiments/shop/health").json()["status"] == "fail"
        assert browser.get("/v1/experiments/shop/recommendation").status_code == 409
        page, report = texts(browser, "shop")
        for text in (page, report):
            assert why in text
            assert not [claim for claim in CLAIMS if claim in text]
        assert ("Not healthy" in page) == bool(event)
        assert ("failing" in browser.get("/").text) == bool(event)


def test_a_stopped_test_shows_the_analysis_that_stopped_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "TTL", 0.0)  # at once, not a few seconds later
    monkeypatch.setattr(pages, "COST", 0.0)
    rates, luck = {"standard": 0.2, "photo": 0.24, "guest": 0.42}, random.Random(1)
    storage = open_storage("memory")
    purchase = sa.Metric("purchase", role="primary", kind="yes/no", missing="drop")
    rules: dict[str, Any] = {"metrics": [purchase], "stop": "when sure", "looks": 5}
    test = create(storage, 4000, arms=" ".join(rates), control="standard", **rules)
    waiting: list[Any] = []
    with dashboard(storage) as browser:
        for start in range(0, 4000, 100):
            asked: Any = test.ask_many([f"visitor {start + i}" for i in range(100)])
            shown = [one for one in asked if one.in_test]
            waiting += [(one, float(luck.random() < rates[one.name])) for one in shown]
            # The last 300 visits always wait, so that some are assigned after the look.
            test.tell_many(waiting[:-300])
            waiting = waiting[-300:]
            if start == 300:
                assert "before the first interim analysis" in texts(browser, "shop")[0]
            if not shown:
                break
        test.tell_many(waiting)
        found = browser.get("/v1/experiments/shop/recommendation").json()
        assert found["stopping"]["stopped"]
        assert found["waiting"] > 0  # visits that came after the look
        page, report = texts(browser, "shop")
        for text in (page, report):
            assert found["decision"]["text"] in text
            assert found["stopping"]["text"] in text
        file = browser.get("/experiments/shop/charts/estimates.csv").text
        drawn = list(csv.DictReader(file.splitlines()))
        for one in found["arms"]:
            assert f"{100 * one['low']:.2f} % to {100 * one['high']:.2f} %" in page
            last = next(line for line in reversed(drawn) if one["name"] in line.values())
            assert (float(last["low"]), float(last["high"])) == (one["low"], one["high"])
        assert f"not ruled out: {len(found['plausible'])} of 3 variants" in page
        for look in found["stopping"]["looks"]:
            assert f"{look['number']} of 5" in page
        assert "Not decided yet" not in page
        assert "Show it to everybody" in page
        assert test.roll_out("guest").share == 1.0
        (page, _) = texts(browser, "shop")
        assert "is rolled out to 100 %" in page
        assert "Show it to everybody" not in page


PAGE = "/experiments/button"
RATES = {"red": 0.2, "blue": 0.8}


@pytest.fixture
def spent() -> sa.Experiment:
    test = create(open_storage("memory"), 300, "button", " ".join(RATES), control="red")
    luck = random.Random(1)
    for i in range(300):
        shown = test.ask(f"u{i}")
        test.tell(shown, float(luck.random() < RATES[shown.name]))
    return test


def test_a_decided_test_offers_to_roll_out(spent: sa.Experiment) -> None:
    with dashboard(spent.storage) as browser:
        page = browser.get(PAGE).text
        assert f'href="{PAGE}/roll-out"' in page
        assert (
            page.index("Ship blue") < page.index("Roll out</a>") < page.index("Variants by reward")
        )
        assert f'href="{PAGE}/pause"' not in page
        form = browser.get(f"{PAGE}/roll-out").text
        assert '<option value="blue" selected>' in form
        assert "Stop the running test" not in form  # its budget is spent
        sent = browser.post_form(f"{PAGE}/roll-out", {"variant": "blue", "share": "10"})
        assert (sent.status_code, sent.headers["location"]) == (303, PAGE)
        page = Elements(browser.get(PAGE).text).text
        assert "blue is rolled out to 10 % of all visitors" in page
        assert "Change the roll-out" in page
        typed = {"variant": "blue", "share": "5 %", "reason": "<b>careful</b>"}
        lower = browser.post_form(f"{PAGE}/roll-out", typed)
        assert lower.status_code == 422
        assert "takes it away" in lower.text
        assert "<b>careful" not in lower.text
        assert browser.post_form(f"{PAGE}/roll-out", typed | {"change": "1"}).status_code == 303
        for bad in ("", "much", "200"):
            refused = browser.post_form(f"{PAGE}/roll-out", {"variant": "blue", "share": bad})
            assert refused.status_code == 422
        (last,) = [e for e in spent.history() if e.detail.get("reason") == "<b>careful</b>"]
        assert last.action == "experiment.rolled_out"
        assert last.detail["share"] == 0.05


def test_a_running_test_is_stopped_only_with_a_tick(free: Browser) -> None:
    page = "/experiments/shop"
    assert f'href="{page}/roll-out"' not in free.get(page).text  # nothing is decided
    form = free.get(f"{page}/roll-out").text
    assert "Stop the running test" in form
    refused = free.post_form(f"{page}/roll-out", {"variant": "B", "share": "100"})
    assert refused.status_code == 422
    assert "is running" in refused.text
    sent = free.post_form(f"{page}/roll-out", {"variant": "B", "share": "100", "stop": "1"})
    assert sent.status_code == 303
    assert free.post("/v1/experiments/shop/assignments", {"unit": "u"}).json()["arm"] == "B"
