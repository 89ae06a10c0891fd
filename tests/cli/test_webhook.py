"""`steadyarm webhook`: endpoints are added, tried and removed by the command line."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from steadyarm.cli.main import main
from steadyarm.storages.service import EVENTS
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
        assert "experiment.decided, experiment.unhealthy" in listed
        assert secret.strip() not in listed
        printed, _ = webhook("test", id)
        assert "answered 204" in printed
        (got,) = receiver.got
        assert Webhook(secret.strip()).verify(got.body, got.headers)["type"] == "webhook.test"
        receiver.answers[:] = [500]
        _, wrong = webhook("test", id, status=1)
        assert "did not accept the test: answered 500 Internal Server Error" in wrong
    webhook("remove", id)
    assert webhook.json("list") == {"webhooks": []}
