"""Webhooks over HTTP, and a service that watches and sends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

import steadyarm as sa
from steadyarm.service import webhooks
from steadyarm.storages.webhooks import WebhookRecord
from tests.service.clients import SHOP, InProcess, in_process
from tests.service.receivers import receiving

URL = "https://hooks.example/steadyarm"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TICK", "RENEWED", "WATCHED"):
        monkeypatch.setattr(webhooks, name, 0.05)


@pytest.fixture
def served(quick: None) -> Iterator[InProcess]:
    with in_process(public_url="https://tests.example.org") as client:
        yield client


def storage_of(client: InProcess) -> sa.storages.Storage:
    found: sa.storages.Storage = client.app.state.service.storage
    return found


def listen(client: InProcess, url: str, **given: Any) -> WebhookRecord:
    """An endpoint on this machine, as only the command line adds one."""
    storage = storage_of(client)
    made = webhooks.new_webhook(url, storage.now(), private=True, **given)
    storage.add_webhook(made)
    return made


def test_an_endpoint_over_http(client: InProcess) -> None:
    added = client.post("/v1/webhooks", {"url": URL + "?key=1", "events": ["experiment.decided"]})
    assert added.status_code == 201
    told = added.json()
    assert told["secret"].startswith("whsec_")
    assert told["url"] == URL + "?…"
    id = told["id"]
    (listed,) = client.get("/v1/webhooks").json()["webhooks"]
    assert listed == {name: value for name, value in told.items() if name != "secret"}
    rotated = client.post(f"/v1/webhooks/{id}/rotate").json()
    assert rotated["secret"] != told["secret"]
    assert client.post(f"/v1/webhooks/{id}/enable").json()["disabled"] is None
    assert client.get(f"/v1/webhooks/{id}/deliveries").json() == {"deliveries": []}
    assert client.request("DELETE", f"/v1/webhooks/{id}").json() == listed
    assert client.get("/v1/webhooks").json() == {"webhooks": []}
    actions = [entry["action"] for entry in client.get("/v1/audit").json()["entries"]]
    assert actions == ["webhook.added", "webhook.rotated", "webhook.removed"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "http://127.0.0.1:8000/"}, "steadyarm webhook add --allow-private"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, "--allow-private"),
        ({"url": "ftp://hooks.example/"}, "https://"),
        ({"url": URL, "events": ["experiment.exploded"]}, "events"),
        ({"url": URL, "experiments": ["a b"]}, "name of an experiment"),
        ({"url": URL, "format": "teams"}, "format"),
        ({"url": URL, "allow_private": True}, "allow_private"),
        ({}, "url"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], said: str, client: InProcess) -> None:
    answer = client.post("/v1/webhooks", given)
    assert answer.status_code == 422
    assert said in answer.text
    assert client.get("/v1/webhooks").json() == {"webhooks": []}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/webhooks/wh_0"),
        ("POST", "/v1/webhooks/wh_0/rotate"),
        ("POST", "/v1/webhooks/wh_0/test"),
        ("POST", "/v1/webhooks/wh_0/enable"),
        ("GET", "/v1/webhooks/wh_0/deliveries"),
        ("POST", "/v1/webhooks/wh_0/deliveries/1/resend"),
    ],
)
def test_what_does_not_exist_is_not_found(method: str, path: str, client: InProcess) -> None:
    assert client.request(method, path).status_code == 404


def test_a_service_tells_of_its_own_tests_and_of_those_that_run_elsewhere(
    served: InProcess,
) -> None:
    with receiving() as receiver:
        webhook = listen(served, receiver.url)
        served.post("/v1/experiments", SHOP | {"budget": 40})
        units = [f"visitor {i}" for i in range(40)]
        served.post("/v1/experiments/shop/assignments:batch", {"units": units})
        # In Python, without the service: its tick notices.
        own = sa.create_experiment(
            "own", ["A", "B"], sa.Uniform(), 10, storage_of(served), missing="drop"
        )
        for i in range(10):
            own.tell(own.ask(f"visitor {i}"), 1.0)
        own.stop()
        receiver.wait(6)
        heard = {(one.content["data"]["experiment"], one.content["type"]) for one in receiver.got}
        assert heard == {
            ("shop", "experiment.started"),
            ("shop", "experiment.budget_spent"),
            ("own", "experiment.started"),
            ("own", "experiment.budget_spent"),
            ("own", "experiment.decided"),
            ("own", "experiment.window_closed"),
        }
        for one in receiver.got:
            Webhook(webhook.secrets[0].text).verify(one.body, one.headers)
            assert b"visitor" not in one.body
        urls = {one.content["data"]["url"] for one in receiver.got}
        assert urls == {f"https://tests.example.org/experiments/{name}" for name in ("shop", "own")}
        answer = served.post(f"/v1/webhooks/{webhook.id}/test").json()
        assert (answer["state"], answer["status"]) == ("delivered", 204)
        pages = served.get(f"/v1/webhooks/{webhook.id}/deliveries", params={"most": 3}).json()
        first, *_, last = pages["deliveries"]
        assert first["type"] == "webhook.test"
        before = {"before": last["id"], "most": 100}
        rest = served.get(f"/v1/webhooks/{webhook.id}/deliveries", params=before).json()
        assert len(rest["deliveries"]) == 4
        path = f"/v1/webhooks/{webhook.id}/deliveries"
        assert served.post(f"{path}/{first['id']}/resend").json()["state"] == "waiting"
        receiver.wait(8)
        assert receiver.got[-1].id == receiver.got[-2].id
        for wrong in ("0", "77", "x", "-1", "9" * 30):
            assert served.post(f"{path}/{wrong}/resend").status_code == 404


def test_a_slow_receiver_holds_up_neither_others_nor_the_service(served: InProcess) -> None:
    with receiving(delay=30) as slow, receiving() as other:
        listen(served, slow.url)
        listen(served, other.url)
        for i in range(3):
            served.post("/v1/experiments", SHOP | {"name": f"shop{i}"})
        other.wait(3)
        assert len(slow.got) <= 1
        assert served.post("/v1/experiments/shop0/assignments", {"unit": "u"}).status_code == 201


def test_without_endpoints_nothing_is_watched(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("somebody watches")

    for name in ("watch", "send_due"):
        monkeypatch.setattr(webhooks.Notifier, name, never)
    with in_process() as client:
        assert client.post("/v1/experiments", SHOP).status_code == 201
        assert client.post("/v1/experiments/shop/assignments", {"unit": "u"}).status_code == 201
        storage = storage_of(client)
        assert storage.notices() == {}


def test_one_of_two_services_sends(quick: None) -> None:
    storage = sa.storages.open_storage("memory")
    with receiving() as receiver, in_process(storage) as one, in_process(storage) as two:
        listen(one, receiver.url)
        for i in range(4):
            (one, two)[i % 2].post("/v1/experiments", SHOP | {"name": f"shop{i}"})
        receiver.wait(4)
        turns = [each.app.state.service.notifier._has_turn for each in (one, two)]
        assert sorted(turns) == [False, True]
    assert len({got.id for got in receiver.got}) == len(receiver.got) == 4
