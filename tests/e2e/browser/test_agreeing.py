"""One page, one analysis: page, charts, report and REST agree with each other."""

from __future__ import annotations

import csv
import random
import re
from html import unescape
from typing import Any

import httpx2
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.reading import address, draw_all
from tests.e2e.browser.sites import Site

PURCHASE = {"name": "purchase", "role": "primary", "kind": "yes/no"}


CLAIMS = ("A is ahead", "A leads", "B leads", "best estimate", "● healthy\n")


def create(api: httpx2.Client, name: str, arms: list[str], budget: int, **settings: Any) -> None:
    body = {"name": name, "arms": arms, "budget": budget, "seed": 1, **settings}
    api.post("/v1/experiments", json=body).raise_for_status()


def assign(api: httpx2.Client, name: str, units: list[str]) -> dict[str, str]:
    """The variant of each unit that is in the test."""
    path = f"/v1/experiments/{name}/assignments:batch"
    answer = api.post(path, json={"units": units}).raise_for_status().json()
    found = answer["assignments"]
    return {one["unit"]: one["arm"] for one in found if one.get("in_test")}


def main_text(page: Page) -> str:
    return page.get_by_role("main").inner_text()


def report_text(api: httpx2.Client, name: str) -> str:
    html = api.get(f"{address(name)}/report.html").raise_for_status().text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_a_test_without_a_reward_above_zero_has_no_leader(visitor: Visitor, empty: Site) -> None:
    page, _ = visitor(empty)
    said = {
        "fresh": "Waiting for the first of 400 visits",
        "zeros": "All 400 rewards so far are 0.",
    }
    with empty.api() as api:
        for name in said:
            create(
                api, name, ["A", "B"], 400, control="A", metrics=[PURCHASE | {"missing": "drop"}]
            )
        shown = assign(api, "zeros", [f"visitor {i}" for i in range(400)])
        zeros = [{"unit": unit, "reward": 0} for unit in shown]
        api.post("/v1/experiments/zeros/rewards:batch", json={"rewards": zeros})
        for name, why in said.items():
            assert api.get(f"/v1/experiments/{name}/recommendation").status_code == 409
            page.goto(address(name))
            for text in (main_text(page), report_text(api, name)):
                assert why in text
                assert not [claim for claim in CLAIMS if claim in text]
        assert api.get("/v1/experiments/zeros/health").json()["status"] == "fail"


def test_events_of_another_name_are_named(visitor: Visitor, empty: Site) -> None:
    page, _ = visitor(empty)
    units = [f"visitor {i}" for i in range(400)]
    why = (
        "No reward has arrived for 400 visits. Events named 'purchases' were received; the "
        "metric is called 'purchase'."
    )
    with empty.api() as api:
        create(api, "misnamed", ["A", "B"], 400, metrics=[PURCHASE | {"window": "1d"}])
        assign(api, "misnamed", units)
        for unit in units[:5]:
            api.post("/v1/events", json={"unit": unit, "event": "purchases"})
        health = api.get("/v1/experiments/misnamed/health").json()
        assert (health["status"], health["findings"][0]["explanation"]) == ("fail", why)
        assert api.get("/v1/experiments/misnamed/recommendation").status_code == 409
        page.goto(address("misnamed"))
        expect(page.get_by_role("region", name="Decision")).to_contain_text("Not healthy")
        for text in (main_text(page), unescape(report_text(api, "misnamed"))):
            assert why in text
            assert not [claim for claim in CLAIMS if claim in text]
        page.goto("/")
        expect(page.get_by_role("row", name="misnamed")).to_contain_text("failing")


def test_a_stopped_test_shows_the_analysis_that_stopped_it(visitor: Visitor, empty: Site) -> None:
    page, _ = visitor(empty)
    rates, people = {"today": 0.2, "photo": 0.24, "guest": 0.42}, random.Random(1)
    rules = {"metrics": [PURCHASE | {"missing": "drop"}], "stop": "when sure", "looks": 5}
    with empty.api() as api:
        create(api, "shop", list(rates), 4000, control="today", **rules)
        page.goto(address("shop"))
        waiting: list[dict[str, Any]] = []
        for start in range(0, 4000, 100):
            shown = assign(api, "shop", [f"visitor {start + i}" for i in range(100)])
            rewards = [
                {"unit": unit, "reward": float(people.random() < rates[name])}
                for unit, name in shown.items()
            ]
            waiting += rewards
            # The last 300 visits always wait, so that some are assigned after the look.
            due, waiting = waiting[:-300], waiting[-300:]
            api.post("/v1/experiments/shop/rewards:batch", json={"rewards": due})
            if start == 300:
                page.goto(address("shop"))
                board = page.locator("[data-live=leaderboard]")
                expect(board).to_contain_text("before the first interim analysis")
                assert "Lines: 95 % intervals" not in main_text(page)
            if not shown:
                break
        api.post("/v1/experiments/shop/rewards:batch", json={"rewards": waiting})
        found = api.get("/v1/experiments/shop/recommendation").json()
        assert found["stopping"]["stopped"]
        assert found["waiting"] > 0  # visits that came after the look
        page.goto(address("shop"))
        draw_all(page)
        text, written = main_text(page), report_text(api, "shop")
        for shown_text in (text, written):
            assert found["decision"]["text"] in shown_text
            assert found["stopping"]["text"] in shown_text
        drawn = list(
            csv.DictReader(api.get(f"{address('shop')}/charts/estimates.csv").iter_lines())
        )
        for one in found["arms"]:
            own = f"{100 * one['low']:.2f} % to {100 * one['high']:.2f} %"
            row = page.locator("[data-live=leaderboard]").get_by_role("row", name=one["name"])
            expect(row).to_contain_text(own)
            last = next(line for line in reversed(drawn) if one["name"] in line.values())
            assert (float(last["low"]), float(last["high"])) == (one["low"], one["high"])
        assert f"not ruled out: {len(found['plausible'])} of 3 variants" in text
        assert "Not decided yet" not in text
        api.post("/v1/experiments/shop/roll-out", json={"variant": "guest", "share": 1.0})
        page.goto(address("shop"))
        expect(page.get_by_role("region", name="Decision")).to_contain_text(
            "is rolled out to 100 %"
        )
        assert "Show it to everybody" not in main_text(page)
