"""The page of a test shows what its settings add: covariates, attributes and looks."""

from __future__ import annotations

import random

import steadyarm as sa
from steadyarm.live.tables import adjusted_text
from steadyarm.storages import open_storage
from tests.dashboard.clients import Elements, dashboard


def test_the_page_shows_covariates_attributes_and_looks() -> None:
    storage, luck = open_storage("memory"), random.Random(1)
    test = sa.create_experiment(
        "shop",
        ["<b>today</b>", "guest"],
        sa.Steady(),
        2000,
        storage,
        seed=1,
        missing="drop",
        control="<b>today</b>",
        covariates=["spend"],
        attributes={"device": ["mobile", "desktop"], "country": ["FR", "DE"]},
        stop="when sure",
        looks=5,
    )
    with dashboard(storage) as browser:
        before = Elements(browser.get("/experiments/shop").text).text
        assert "There is nothing to compare yet" in before
        assert "Looks" not in before
        for i in range(2000):
            spend = luck.gauss(0.0, 1.0)
            device = {"device": ("mobile", "desktop")[i % 2]}
            shown = test.ask(f"u{i}", device, {"spend": spend})
            test.tell(shown, spend + luck.gauss(0.4 * (shown.name == "guest"), 0.5))
            if test.state == "stopped":
                break
        assert test.state == "stopped"
        page = browser.get("/experiments/shop").text
        text = Elements(page).text
        stopping = browser.get("/v1/experiments/shop/recommendation").json()["stopping"]
        table = browser.get("/experiments/shop/charts/leaderboard.csv").text
        assert "<b>today" not in page
        assert adjusted_text(test.recommend(), ["spend"]) in text
        assert "unadjusted" in table.splitlines()[0]
        people = test.recommend(by="device")
        assert "By device" in text
        assert people.summary in text
        for _, *cells in people.rows():
            assert all(cell in text for cell in cells)
        assert "the country is not known" in text
        assert stopping["text"].startswith("Stopped on ")
        assert stopping["text"] in text
        for look in stopping["looks"]:
            assert f"{look['number']} of 5" in text


def test_the_page_of_a_plain_test_says_nothing_of_them() -> None:
    with dashboard() as browser:
        plain = {"name": "plain", "arms": ["A", "B"], "budget": 100, "missing": "drop"}
        browser.post("/v1/experiments", plain)
        text = Elements(browser.get("/experiments/plain").text).text
        for absent in ("djusted", "Segments of people", "Looks"):
            assert absent not in text
