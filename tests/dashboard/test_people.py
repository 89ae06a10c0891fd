"""The page of a test whose units have attributes: results by level, marked as exploratory."""

from __future__ import annotations

import steadyarm as sa
from steadyarm.storages import open_storage
from tests.dashboard.clients import Elements, dashboard


def test_the_page_shows_results_by_level() -> None:
    storage = open_storage("memory")
    test = sa.create_experiment(
        *("shop", ["<b>today</b>", "guest"], sa.Steady(), 200, storage),
        seed=1,
        missing="drop",
        control="<b>today</b>",
        attributes={"device": ["mobile", "desktop"], "country": ["FR", "DE"]},
    )
    for i in range(200):
        known = {"device": ("mobile", "desktop")[i % 2]}
        test.tell(test.ask(f"u{i}", known), float(i % 3 == 0))
    with dashboard(storage) as browser:
        page = browser.get("/experiments/shop").text
    found = test.recommend(by="device")
    text = Elements(page).text
    assert "Segments of people" in text
    assert "By device" in text
    assert found.summary in text
    for _, visits, variant, value, difference in found.rows():
        for cell in (visits, variant, value, difference):
            assert cell in text
    assert "Of 200 visits the country is not known" in text
    assert "<b>today" not in page


def test_a_page_without_visits_or_without_attributes_says_less() -> None:
    plain = {"arms": ["A", "B"], "budget": 100, "missing": "drop"}
    with dashboard() as browser:
        browser.post("/v1/experiments", plain | {"name": "plain"})
        attributes = {"device": ["mobile", "desktop"]}
        browser.post("/v1/experiments", plain | {"name": "new", "attributes": attributes})
        assert "Segments of people" not in browser.get("/experiments/plain").text
        assert "There is nothing to compare yet" in browser.get("/experiments/new").text
