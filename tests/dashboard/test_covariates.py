"""Pages of a test with covariates: raw estimates beside adjusted ones, and names in the form."""

from __future__ import annotations

import random

import steadyarm as sa
from steadyarm.dashboard.forms import read_form
from steadyarm.live.tables import adjusted_text
from steadyarm.storages import open_storage
from tests.dashboard.clients import Elements, dashboard


def test_the_page_shows_raw_estimates_and_what_was_gained() -> None:
    storage, luck = open_storage("memory"), random.Random(1)
    test = sa.create_experiment(
        *("shop", ["A", "B"], sa.Steady(), 200, storage), missing="drop", covariates=["spend"]
    )
    for i in range(200):
        spend = luck.gauss(0.0, 1.0)
        shown = test.ask(f"u{i}", covariates={"spend": spend})
        test.tell(shown, spend + luck.gauss(0.0, 0.5))
    with dashboard(storage) as browser:
        text = Elements(browser.get("/experiments/shop").text).text
        table = browser.get("/experiments/shop/charts/leaderboard.csv").text
    said = adjusted_text(test.recommend(), ["spend"])
    assert said.startswith("Adjusted for spend: variance down by")
    assert said in text
    assert text.count("unadjusted ") == 2
    assert "unadjusted" in table.splitlines()[0]


def test_a_page_without_covariates_says_nothing_of_them() -> None:
    with dashboard() as browser:
        plain = {"name": "plain", "arms": ["A", "B"], "budget": 100, "missing": "drop"}
        browser.post("/v1/experiments", plain)
        assert "djusted" not in Elements(browser.get("/experiments/plain").text).text
        assert "Covariates" in Elements(browser.get("/new").text).text


def test_the_form_takes_names() -> None:
    given = {"name": ["shop"], "variants": ["A\nB"], "budget": ["2000"]}
    found = read_form(given | {"covariates": ["visits_last_month, spend,"]})
    assert found.errors == {}
    assert found.description["covariates"] == ["visits_last_month", "spend"]
    assert found.settings is not None
    assert found.settings.covariates == ("visits_last_month", "spend")
    assert "covariates" not in read_form(given).description
    wrong = read_form(given | {"covariates": ["spend, spend"]})
    assert "twice" in wrong.errors["covariates"]
