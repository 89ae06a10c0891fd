"""`steadyarm token` and `steadyarm webhook`: what they create, say and show once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from steadyarm.cli.main import main
from steadyarm.service.auth import hash_of
from steadyarm.storages import open_storage
from steadyarm.storages.service import EVENTS
from tests.service.clients import receiving

KEY = ("token", "create", "--name", "web", "--scope", "assign")
BOUNDS = ("--experiment", "shop", "--origin", "https://shop.example")


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/tokens.db"
    monkeypatch.setenv("STEADYARM_STORAGE", url)
    return url


def test_a_publishable_key_is_printed_once_with_what_it_is_for(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--experiment", "news", "--origin", "HTTP://localhost:80/", "--rate", "30")
    assert main([*KEY, *BOUNDS, *more]) == 0
    printed, said = capsys.readouterr()
    key = printed.strip()
    assert key.startswith("pk_")
    assert "Visitors may read it" in said
    assert "The experiment news does not exist yet" in said
    assert "Create a token with the scope admin, too." in said
    with closing(open_storage(url)) as storage:
        (record,) = storage.tokens.all()
        assert storage.tokens.closed()
    assert record.hash == hash_of(key)
    main(["token", "list"])
    listed = capsys.readouterr().out
    assert "shop, news from https://shop.example, http://localhost, 30 a minute" in listed
    main(["token", "list", "--format", "json"])
    (fact,) = json.loads(capsys.readouterr().out)["tokens"]
    assert fact.pop("created")
    assert fact == {
        "expires": None,
        "last_used": None,
        "name": "web",
        "scope": "assign",
        "experiments": ["shop", "news"],
        "origins": ["https://shop.example", "http://localhost"],
        "rate": 30,
        "signed_units": False,
    }


def test_a_token_with_an_end_is_listed_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = "token create --name me --scope admin --expires 90d"
    assert main(words.split()) == 0
    capsys.readouterr()
    main(["token", "list", "--format", "json"])
    (fact,) = json.loads(capsys.readouterr().out)["tokens"]
    created, expires = (datetime.fromisoformat(fact[name]) for name in ("created", "expires"))
    assert expires - created == timedelta(days=90)
    main(["token", "list"])
    assert f"{expires:%Y-%m-%d %H:%M} UTC  never" in capsys.readouterr().out


def test_the_secret_of_signed_units_is_printed_once(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*KEY, *BOUNDS, "--signed-units"]) == 0
    printed, said = capsys.readouterr()
    key, secret = printed.split()
    assert (key[:3], secret[:3], len(secret)) == ("pk_", "us_", 46)
    assert "Do not send it to visitors" in said
    with closing(open_storage(url)) as storage:
        (record,) = storage.tokens.all()
        assert record.signing == secret
        assert secret not in repr(record)
        assert secret not in str(storage.audit())
    for words in (["token", "list"], ["token", "list", "--format", "json"], ["audit"]):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert "signed" in shown
        assert secret not in shown


class Terminal:
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
