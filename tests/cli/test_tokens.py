"""`steadyarm token`: what it creates, what it says, what it refuses."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from steadyarm.cli.main import main
from steadyarm.service.auth import hash_of
from steadyarm.storages import open_storage

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
    assert "The experiment shop does not exist yet" in said
    assert "Create a token with the scope admin, too." in said
    with closing(open_storage(url)) as storage:
        (record,) = storage.tokens.all()
        assert storage.tokens.closed()
    assert record.hash == hash_of(key)
    assert record.experiments == ("shop", "news")
    assert record.origins == ("https://shop.example", "http://localhost")
    assert record.rate == 30
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
