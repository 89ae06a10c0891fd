"""The page of a test of bundles shows what each item brings."""

from __future__ import annotations

import csv
import io

import steadyarm as sa
from steadyarm.live.scoring import scorecard_of
from steadyarm.storages import open_storage
from tests.dashboard.clients import Elements, dashboard, stored
from tests.live.scorecards import played

ITEMS = ["news", "sport", "<b>food</b>", "games"]


def test_the_page_of_bundles_shows_what_each_item_brings() -> None:
    storage = open_storage("memory")
    stored(played(sa.ArmSet.bundles(ITEMS, 2), budget=1200, visits=600, days=2), storage, "pairs")
    effects = scorecard_of(sa.load_experiment("pairs", storage)).effects
    assert effects is not None
    with dashboard(storage) as browser:
        page = Elements(browser.get("/experiments/pairs").text)
        path = "/experiments/pairs/charts/items"
        drawn = browser.get(f"{path}.json")
        rows = list(csv.DictReader(io.StringIO(browser.get(f"{path}.csv").text)))
        alone = Elements(browser.get(path).text)
        absent = [
            browser.get(f"/experiments/pairs/charts/{n}") for n in ("effects", "interactions")
        ]
    assert "6 bundles of 2 of 4 items: news, sport, <b>food</b> and games." in page.text
    assert "What each item brings" in page.text
    assert "What each level does" not in page.text
    assert f"The best item is {effects.main[0].level}" in page.text
    assert drawn.status_code == 200
    assert [row["level"] for row in rows] == [effect.level for effect in effects.main]
    assert alone.tags.count("tr") == len(ITEMS) + 1
    assert [answer.status_code for answer in absent] == [404, 404]
