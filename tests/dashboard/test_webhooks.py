"""The page of webhooks: endpoints, deliveries, a test, and sending once more."""

from __future__ import annotations

import pytest

from steadyarm.service import webhooks
from tests.dashboard.clients import Browser, dashboard
from tests.service.receivers import receiving


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TICK", "RENEWED", "WATCHED"):
        monkeypatch.setattr(webhooks, name, 0.05)


def test_without_endpoints_it_says_how_to_add_one(free: Browser) -> None:
    page = free.get("/webhooks").text
    assert "Nobody is told yet" in page
    assert "steadyarm webhook add https://" in page
    assert 'href="/webhooks" aria-current="page"' in page


def test_a_test_is_sent_and_shown_and_sent_again() -> None:
    with receiving(statuses=[204, 500, 204]) as receiver, dashboard() as browser:
        storage = browser.app.state.service.storage
        webhook = webhooks.new_webhook(
            receiver.url, storage.now(), events=["experiment.decided"], private=True
        )
        storage.add_webhook(webhook)
        page = browser.get("/webhooks").text
        assert receiver.url in page
        assert webhook.secrets[0].text not in page
        assert "Send a test" in page
        for status in ("answered 204", "answered 500 Internal Server Error"):
            answer = browser.post_form(f"/webhooks/{webhook.id}/test")
            assert (answer.status_code, answer.headers["location"]) == (303, "/webhooks#deliveries")
            assert status in browser.get("/webhooks").text
        failed = storage.deliveries()[0]
        path = f"/webhooks/{webhook.id}/deliveries/{failed.id}/resend"
        assert path in browser.get("/webhooks").text
        assert browser.post_form(path).status_code == 303
        receiver.wait(3)
        assert receiver.got[1].id == receiver.got[2].id == failed.message


@pytest.mark.parametrize(
    "path", ["/webhooks/wh_0/test", "/webhooks/wh_0/deliveries/1/resend", "/webhooks/wh_0"]
)
def test_what_does_not_exist_is_not_found(path: str, free: Browser) -> None:
    assert free.post_form(path).status_code == 404


def test_what_is_shown_is_text(free: Browser) -> None:
    storage = free.app.state.service.storage
    url = "https://hooks.example/<script>alert(1)</script>"
    storage.add_webhook(webhooks.new_webhook(url, storage.now()))
    page = free.get("/webhooks").text
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
