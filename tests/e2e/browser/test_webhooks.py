"""The page of webhooks in a real browser: a test is sent, failures are seen, and sent again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from steadyarm.service.webhooks import new_webhook
from steadyarm.storages import open_storage
from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.sites import Site
from tests.e2e.browser.test_pages import FOLDER, faults_of
from tests.service.clients import SHOP
from tests.service.receivers import receiving


def test_a_person_tries_an_endpoint(empty: Site, visitor: Visitor, tmp_path: Path) -> None:
    page, _ = visitor(empty, 390)
    page.goto("/webhooks")
    expect(page.get_by_role("heading", name="Nobody is told yet")).to_be_visible()
    found = faults_of(page)
    long = "a-rather-long-path-of-an-endpoint/" * 4
    with (
        receiving(statuses=[204, 500, 204]) as receiver,
        closing(open_storage(f"sqlite:///{tmp_path}/service.db")) as storage,
    ):
        now = storage.now()
        storage.add_webhook(new_webhook(receiver.url, now, private=True))
        slack = new_webhook("https://slack.example/services/T0/B0/x", now + 1, format="slack")
        more: dict[str, Any] = {
            "events": ["experiment.decided", "experiment.unhealthy"],
            "experiments": ["shop"],
        }
        gone = new_webhook(f"https://hooks.example/{long}", now + 2, **more)
        for one in (slack, gone):
            storage.add_webhook(one)
        page.reload()
        for said in ("answered 204", "answered 500 Internal Server Error"):
            button = page.get_by_role("button", name=f"Send a test to {receiver.url}")
            button.click()
            expect(page.get_by_text(said)).to_be_visible()
        expect(page.get_by_role("heading", name="Last deliveries")).to_be_visible()
        page.get_by_role("row").filter(has_text="failed").get_by_role("button").click()
        receiver.wait(3)
        assert receiver.got[1].id == receiver.got[2].id
        with empty.api() as api:
            assert api.post("/v1/experiments", json=SHOP).status_code == 201
        receiver.wait(4)
        assert receiver.got[3].content["type"] == "experiment.started"
        # The page shows it by itself.
        expect(page.get_by_role("link", name="shop").first).to_be_visible(timeout=30_000)
        FOLDER.mkdir(exist_ok=True)
        found += faults_of(page, picture="webhooks")
    assert not found, "\n".join(found)
