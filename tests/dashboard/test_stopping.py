"""The page of a test that may stop early: its looks, and why it stopped."""

from __future__ import annotations

import random

import steadyarm as sa
from steadyarm.cli.experiment_show import experiment_text
from steadyarm.storages import open_storage
from tests.dashboard.clients import Elements, dashboard


def test_page_answers_and_command_line_show_the_looks_and_why_the_test_stopped() -> None:
    storage, people = open_storage("memory"), random.Random(1)
    with dashboard(storage) as browser:
        settings = {"arms": ["today", "guest"], "budget": 2000, "missing": "drop", "seed": 1}
        settings |= {"control": "today", "stop": "when sure", "looks": 5}
        made = browser.post("/v1/experiments", settings | {"name": "shop"})
        assert made.status_code == 201
        assert made.json()["settings"]["looks"] == 5
        test = sa.load_experiment("shop", storage)
        assert "Looks" not in Elements(browser.get("/experiments/shop").text).text
        for start in range(0, 2000, 50):
            answers = test.ask_many([f"visitor {start + i}" for i in range(50)])
            given = [one for one in answers if isinstance(one, sa.LiveAssignment)]
            rates = {"today": 0.2, "guest": 0.4}
            test.tell_many([(one, float(people.random() < rates[one.name])) for one in given])
            if test.state == "stopped":
                break
        text = Elements(browser.get("/experiments/shop").text).text
        found = browser.get("/v1/experiments/shop/recommendation").json()["stopping"]
        after = browser.post("/v1/experiments/shop/assignments", {"unit": "somebody new"})
    assert test.state == "stopped"
    assert found["stopped"]
    assert found["text"].startswith("Stopped on ")
    assert found["text"] in text
    assert "Standard errors seen" in text
    for look in found["looks"]:
        assert f"{look['number']} of 5" in text
    assert (after.status_code, after.json()["in_test"]) == (200, False)
    assert found["text"] in experiment_text(test)
