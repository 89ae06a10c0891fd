"""`steadyarm webhook`: endpoints are added, tried, rotated and removed by the command line."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from steadyarm.cli.main import main
from steadyarm.storages import open_storage
from steadyarm.storages.webhooks import EVENTS
from tests.service.receivers import receiving


class Terminal:
    """Commands on one storage, and what they print."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self._capsys = f"sqlite:///{folder}/tests.db", capsys

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        typed = ["webhook", *words, "--storage", self.url]
        with ThreadPoolExecutor(1) as thread:  # the main one may have a loop of browser tests
            assert thread.submit(main, typed).result() == status
        out, err = self._capsys.readouterr()
        return out, err

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--format", "json")[0])


@pytest.fixture
def webhook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, capsys)


def test_an_endpoint_from_its_first_day_to_its_last(webhook: Terminal) -> None:
    assert "There are no webhooks" in webhook("list")[0]
    with receiving() as receiver:
        added = ("add", receiver.url, "--event", EVENTS[1], "--event", EVENTS[2])
        more = ("--experiment", "shop", "--allow-private")
        secret, said = webhook(*added, *more)
        (found,) = webhook.json("list")["webhooks"]
        id = found["id"]
        assert id in said
        assert "not shown again" in said
        assert (found["url"], found["format"]) == (receiver.url, "standard")
        assert (found["events"], found["experiments"]) == ([*EVENTS[1:3]], ["shop"])
        listed = webhook("list")[0]
        assert "decided, unhealthy" in listed
        assert secret.strip() not in listed
        printed, _ = webhook("test", id)
        assert "answered 204" in printed
        (got,) = receiver.got
        assert Webhook(secret.strip()).verify(got.body, got.headers)["type"] == "webhook.test"
        assert got.id in printed
        other, said = webhook("rotate", id)
        assert "For a day the old one signs, too" in said
        told = webhook.json("test", id)
        assert (told["state"], told["attempts"], told["status"]) == ("delivered", 1, 204)
        for one in (secret, other):
            Webhook(one.strip()).verify(receiver.got[1].body, receiver.got[1].headers)
        receiver.statuses[:] = [500]
        _, wrong = webhook("test", id, status=1)
        assert "not accepted: answered 500 Internal Server Error" in wrong
        receiver.statuses[:] = [410]
        webhook("test", id, status=1)
    assert "disabled: answered 410 Gone" in webhook("list")[0]
    webhook("enable", id)
    assert "active" in webhook("list")[0]
    rows = webhook.json("deliveries", id)["deliveries"]
    assert [row["state"] for row in rows] == ["failed", "failed", "delivered", "delivered"]
    text, _ = webhook("deliveries", "--most", "1")
    assert len(text.splitlines()) == 2
    assert "answered 410 Gone" in text
    assert "waits to be sent again" in webhook("resend", str(rows[1]["id"]))[0]
    assert webhook.json("deliveries")["deliveries"][1]["state"] == "waiting"
    assert "next attempt" in webhook("deliveries")[0]
    webhook("remove", id)
    assert webhook.json("list") == {"webhooks": []}
    storage = open_storage(webhook.url)
    noted = [(entry.action, bool(entry.author)) for entry in storage.audit()]
    storage.close()
    assert noted == [
        ("webhook.added", True),
        ("webhook.rotated", True),
        ("webhook.disabled", True),
        ("webhook.enabled", True),
        ("webhook.removed", True),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "http://127.0.0.1/"), "--allow-private"),
        (("add", "gopher://hooks.example/"), "begins with https:// or http://"),
        (("add", "https://hooks.example/", "--event", "experiment.decide"), "experiment.decided"),
        (("add", "https://hooks.example/", "--experiment", "a b"), "name of an experiment"),
        (("remove", "wh_0"), "there is no webhook 'wh_0'"),
        (("test", "wh_0"), "there is no webhook 'wh_0'"),
        (("rotate", "wh_0"), "there is no webhook 'wh_0'"),
        (("enable", "wh_0"), "there is no webhook 'wh_0'"),
        (("deliveries", "wh_0"), "there is no webhook 'wh_0'"),
        (("resend", "7"), "there is no delivery 7"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], said: str, webhook: Terminal) -> None:
    webhook("list")  # makes the tables
    assert said in webhook(*words, status=1)[1]
    assert webhook.json("list") == {"webhooks": []}


def test_slack_gets_its_shape(webhook: Terminal) -> None:
    with receiving(statuses=[200]) as receiver:
        webhook("add", receiver.url, "--format", "slack", "--allow-private")
        (found,) = webhook.json("list")["webhooks"]
        assert found["url"] == f"http://127.0.0.1:{receiver.port}/…"
        webhook("test", found["id"])
    content = receiver.got[0].content
    assert set(content) == {"text", "blocks"}
    assert content["text"] == "This is a test. Webhooks of SteadyArm arrive here."
