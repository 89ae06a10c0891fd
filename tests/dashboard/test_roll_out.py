"""The page of an experiment after its test: what is shown, and the button to roll out."""

from __future__ import annotations

import random

import pytest

import steadyarm as sa
from steadyarm.storages import open_storage
from tests.dashboard.clients import Browser, Elements, dashboard

PAGE = "/experiments/button"
RATES = {"red": 0.2, "blue": 0.8}


@pytest.fixture
def spent() -> sa.Experiment:
    """A test whose budget is spent, and which is decided."""
    test = sa.create_experiment(
        *("button", list(RATES), sa.Steady(), 300, open_storage("memory")),
        seed=1,
        missing="drop",
        control="red",
    )
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
