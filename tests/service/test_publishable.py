"""Publishable keys: what visitors of pages can do with them, and all that they cannot."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

import steadyarm as sa
from steadyarm.errors import InvalidInputError
from steadyarm.service import auth
from steadyarm.service.auth import checked_origin
from steadyarm.service.service import STRANGERS
from steadyarm.storages import open_storage
from steadyarm.storages.storage import Storage
from tests.dashboard.clients import dashboard
from tests.service.clients import SHOP, InProcess, in_process

ORIGIN = "https://shop.example"
OWN, OTHER = "/v1/experiments/shop", "/v1/experiments/other"
REWARD = {"unit": "u", "reward": 1.0}


def add_key(storage: Storage, name: str = "web", **given: Any) -> str:
    usual: dict[str, Any] = {"experiments": ["shop"], "origins": [ORIGIN]}
    key, record = auth.new_key(name, **(usual | given))
    storage.tokens.add(record)
    return key


def page(key: str, origin: str | None = ORIGIN) -> dict[str, str]:
    """The headers of a page's requests."""
    found = {"Authorization": f"Bearer {key}"}
    return found if origin is None else found | {"Origin": origin}


@contextmanager
def shops(**given: Any) -> Iterator[tuple[InProcess, Storage, dict[str, str], str]]:
    """A service with two experiments, headers of an admin, and a key for the first."""
    storage = open_storage("memory")
    token, record = auth.new_token("me", "admin")
    storage.tokens.add(record)
    key = add_key(storage, **given)
    with in_process(storage) as client:
        me = {"Authorization": f"Bearer {token}"}
        for name in ("shop", "other"):
            assert client.post("/v1/experiments", SHOP | {"name": name}, headers=me).is_success
        yield client, storage, me, key


def test_other_experiments_cannot_be_touched() -> None:
    with shops() as (client, storage, me, key):
        theirs = client.post(f"{OTHER}/assignments", {"unit": "u"}, headers=me).json()["id"]
        client.post(f"{OWN}/assignments", {"unit": "u"}, headers=page(key))
        for place, body in (
            (f"{OTHER}/assignments", {"unit": "v"}),
            (f"{OTHER}/rewards", REWARD),
            (f"{OTHER}/rewards", {"assignment": theirs, "reward": 1}),
            (f"{OTHER}/rewards:batch", {"rewards": [REWARD]}),
            ("/v1/experiments/absent/assignments", {"unit": "v"}),
        ):
            answer = client.post(place, body, headers=page(key))
            assert answer.status_code == 403, place
            assert "not for this experiment" in answer.json()["detail"]  # nor whether it exists
        for body in ({"assignment": theirs, "reward": 1}, {"unit": theirs, "reward": 1}):
            assert client.post(f"{OWN}/rewards", body, headers=page(key)).status_code == 404
            sent = {"rewards": [body]}
            many = client.post(f"{OWN}/rewards:batch", sent, headers=page(key)).json()
            assert many["rewards"][0]["error"]["status"] == 404
        assert [s.rewarded for s in storage.summaries()] == [0, 0]
        assert [s.assigned for s in storage.summaries()] == [1, 1]


def test_errors_name_no_other_experiment() -> None:
    with shops(experiments=["shops"]) as (client, _, me, key):
        refused = client.post("/v1/experiments/shops/assignments", {"unit": "u"}, headers=page(key))
        assert refused.status_code == 404
        assert "'shop'" not in refused.text
        mine = client.post("/v1/experiments/shops/assignments", {"unit": "u"}, headers=me)
        assert "did you mean 'shop'" in mine.text


FLAGS = "/ofrep/v1/evaluate/flags"
CONTEXT = {"context": {"targetingKey": "u"}}


def test_flags_and_events_are_those_of_the_named_experiments() -> None:
    with shops() as (client, storage, me, key):
        for name in ("mine", "theirs"):
            given = SHOP | {"name": name, "bulk": True}
            assert client.post("/v1/experiments", given, headers=me).is_success
        wide = add_key(storage, "wide", experiments=["shop", "mine"])
        client.app.state.service.guard.reload()
        for name in ("shop", "other"):
            client.post(f"{FLAGS}/{name}", CONTEXT, headers=me)
        own = client.post(f"{FLAGS}/shop", CONTEXT, headers={"X-API-Key": key, "Origin": ORIGIN})
        assert own.json()["reason"] == "SPLIT"
        assert own.headers["access-control-allow-origin"] == ORIGIN
        for name in ("other", "absent"):
            refused = client.post(f"{FLAGS}/{name}", CONTEXT, headers=page(key))
            assert (refused.status_code, refused.json()["errorCode"]) == (403, "GENERAL")
            assert "not for this experiment" in refused.json()["errorDetails"]
        for used, found in ((key, ["shop"]), (wide, ["shop", "mine"])):
            bulk = client.post(FLAGS, CONTEXT, headers=page(used))
            assert [flag["key"] for flag in bulk.json()["flags"]] == found
            assert "ETag" in bulk.headers["access-control-expose-headers"]
        same = page(key) | {
            "If-None-Match": client.post(FLAGS, CONTEXT, headers=page(key)).headers["ETag"]
        }
        unchanged = client.post(FLAGS, CONTEXT, headers=same)
        assert unchanged.status_code == 304
        assert unchanged.headers["access-control-allow-origin"] == ORIGIN
        event = {"unit": "u", "event": "reward"}
        first = client.post("/v1/events", event, headers=page(key))
        assert first.json() == {"experiments": [{"name": "shop", "status": "stored"}]}
        foreign = event | {"event": "other"}
        unseen = client.post("/v1/events", foreign, headers=page(key))
        assert unseen.status_code == 422
        assert unseen.json()["detail"].endswith("'other'; the events are reward, shop.")
        many = client.post("/v1/events:batch", {"events": [event, 7]}, headers=page(wide)).json()
        assert many["events"][0]["experiments"] == [
            {"name": "shop", "status": "repeated"},
            {"name": "mine", "status": "stored"},
        ]
        assert {s.name: (s.assigned, s.rewarded) for s in storage.summaries()} == {
            "shop": (1, 1),
            "other": (1, 0),
            "mine": (1, 1),
            "theirs": (0, 0),
        }
        second = client.post("/v1/events", event | {"value": 0.625}, headers=page(key))
        conflict = second.json()["experiments"][0]["error"]
        assert conflict["type"].endswith("reward-conflict")
        assert "1.0" not in conflict["detail"]
        for path in (FLAGS, f"{FLAGS}/shop", "/v1/events", "/v1/events:batch"):
            for origin in ("https://evil.example", None):
                assert client.post(path, CONTEXT, headers=page(key, origin)).status_code == 403
        every = client.post("/v1/events", event, headers=me).json()  # a token reports to all
        assert {one["name"] for one in every["experiments"]} == {"shop", "other", "mine"}


def test_answers_tell_no_rewards_of_others() -> None:
    with shops() as (client, _, me, key):
        client.post(f"{OWN}/assignments", {"unit": "u"}, headers=me)
        client.post(f"{OWN}/rewards", REWARD | {"reward": 0.625}, headers=me)
        guess = client.post(f"{OWN}/rewards", REWARD, headers=page(key))
        assert guess.status_code == 409
        many = client.post(f"{OWN}/rewards:batch", {"rewards": [REWARD]}, headers=page(key))
        for answer in (guess, many):
            assert "0.625" not in answer.text
            assert "reward-conflict" in answer.text
        assert "0.625" in client.post(f"{OWN}/rewards", REWARD, headers=me).text


def test_the_rate_holds_for_each_address_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    with shops(rate=5) as (client, storage, me, key):
        guard = client.app.state.service.guard
        guard._used = auth.PerMinute(auth.KEY_ADDRESSES, lambda: now[0])
        other = add_key(storage, "second", rate=5)
        guard.reload()
        transport: Any = client._client._transport

        def asked(address: str, with_: str = key, **more: str) -> httpx2.Response:
            transport.client = (address, 5)
            headers = page(with_) | more
            return client.post(f"{OWN}/assignments", {"unit": "u"}, headers=headers)

        found = [asked("10.1.2.3") for _ in range(7)]
        assert [one.status_code for one in found] == [201, *[200] * 4, 429, 429]
        refused = found[-1]
        assert refused.headers["retry-after"] == "60"
        assert refused.headers["access-control-allow-origin"] == ORIGIN  # so that it is read
        assert refused.json()["type"] == "urn:steadyarm:problem:too-many-requests"
        # What a client writes into headers changes nothing.
        local = {"X-Forwarded-For": "10.9.9.9", "Host": "localhost", "X-Real-IP": "10.9.9.9"}
        assert asked("10.1.2.3", **local).status_code == 429
        assert asked("10.1.2.3", with_=other).status_code == 200
        assert asked("10.1.2.4").status_code == 200
        transport.client = ("10.1.2.3", 5)
        assert client.post(f"{OWN}/assignments", {"unit": "v"}, headers=me).status_code == 201
        # All items of a batch count, also those that are refused.
        batch = {"rewards": [REWARD] * 6}
        transport.client = ("10.1.2.5", 5)
        answer = client.post(f"{OWN}/rewards:batch", batch, headers=page(key))
        assert answer.status_code == 429
        assert storage.summaries()[0].rewarded == 0
        now[0] += 60
        assert asked("10.1.2.3").status_code == 200
        # So does guessing the names of experiments.
        transport.client = ("10.1.2.6", 5)
        places = [f"/v1/experiments/{i}/rewards" for i in range(7)]
        guesses = [client.post(place, REWARD, headers=page(key)) for place in places]
        assert [one.status_code for one in guesses] == [403] * 5 + [429] * 2


def test_bodies_with_a_key_are_small_and_count_as_those_of_strangers() -> None:
    with shops() as (client, _, me, key):
        service = client.app.state.service

        def asked(headers: dict[str, str], **more: Any) -> int:
            body = {"unit": "u"} | more
            return client.post(f"{OWN}/assignments", body, headers=headers).status_code

        large = {"a": "x" * auth.MAX_BODY}
        assert asked(page(key), attributes=large) == 413
        assert asked(me, attributes=large) == 422
        service.bodies._bytes[False] = STRANGERS
        assert asked(page(key)) == 503
        assert asked(me) == 201
        service.bodies._bytes[False] = 0
        assert asked(page(key)) == 200
        assert service.bodies._bytes == {True: 0, False: 0}


def test_a_storage_with_publishable_keys_alone_is_closed_to_all_else() -> None:
    storage = open_storage("memory")
    with in_process(storage) as client:
        assert client.post("/v1/experiments", SHOP).status_code == 201  # before the first token
        key = add_key(storage)
        client.app.state.service.guard.reload()
        for headers in ({}, {"Authorization": "Bearer sa_x"}, {"Origin": ORIGIN}):
            for method, path in (("GET", "/v1/experiments"), ("POST", f"{OWN}/assignments")):
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401
                assert "steadyarm token create" in answer.json()["hint"]
        assert client.get("/v1/experiments", headers=page(key)).status_code == 403
        assert client.post(f"{OWN}/stop", headers=page(key)).status_code == 403
        asked = client.post(f"{OWN}/assignments", {"unit": "u"}, headers=page(key))
        assert asked.status_code == 201
        storage.tokens.remove("web", now=0, lock_out=True)
        client.app.state.service.guard.reload()
        asked = client.post(f"{OWN}/assignments", {"unit": "u"}, headers=page(key))
        assert asked.status_code == 401
        assert "access-control-allow-origin" not in asked.headers


def test_a_page_can_read_that_its_key_was_removed_while_others_are_declared() -> None:
    with shops() as (client, storage, _, key):
        add_key(storage, "second")
        storage.tokens.remove("web", now=0)
        client.app.state.service.guard.reload()
        asked = client.post(f"{OWN}/assignments", {"unit": "u"}, headers=page(key))
        assert asked.status_code == 401
        assert asked.headers["access-control-allow-origin"] == ORIGIN
        for path, origin in ((OWN, "https://evil.example"), (OTHER, ORIGIN)):
            asked = client.post(f"{path}/assignments", {"unit": "u"}, headers=page(key, origin))
            assert asked.status_code == 401
            assert "access-control-allow-origin" not in asked.headers


def test_programs_that_are_no_browsers_need_a_key_that_says_so() -> None:
    with shops(origins=[ORIGIN, "none"]) as (client, _, _, key):
        for origin, status in ((None, 201), (ORIGIN, 200), ("none", 403), ("null", 403)):
            answer = client.post(f"{OWN}/assignments", {"unit": "u"}, headers=page(key, origin))
            assert answer.status_code == status, origin
            assert ("access-control-allow-origin" in answer.headers) == (origin == ORIGIN)
        headers = {"Access-Control-Request-Method": "POST", "Origin": "none"}
        refused = client.request("OPTIONS", f"{OWN}/assignments", headers=headers)
        assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
        assert refused.json()["detail"].endswith("declares the origin 'none'.")
        twice = [*page(key).items(), ("Origin", ORIGIN)]
        answer = client.request("POST", f"{OWN}/assignments", headers=twice, json={"unit": "u"})
        assert answer.status_code == 403


# Signed units


@contextmanager
def signed_shop() -> Iterator[tuple[InProcess, dict[str, str], str]]:
    """A service whose key takes signed units, headers of its page, and the secret."""
    with shops(signed=True) as (client, storage, _, key):
        (secret,) = [one.signing for one in storage.tokens.all() if one.signing]
        yield client, page(key), secret


def test_signed_units_of_events_and_flags() -> None:
    with signed_shop() as (client, headers, secret):
        token = sa.sign_unit(secret, "me", NEVER)
        mine = headers | {"X-SteadyArm-Unit": token}
        client.post("/v1/experiments/shop/assignments", {"unit": "me"}, headers=mine)
        for place, body in (
            ("/v1/events", {"unit": "UNIT", "event": "reward"}),
            ("/v1/events:batch", {"events": [{"unit": "UNIT", "event": "reward"}]}),
            ("/ofrep/v1/evaluate/flags/shop", {"context": {"targetingKey": "UNIT"}}),
            ("/ofrep/v1/evaluate/flags", {"context": {"targetingKey": "UNIT"}}),
        ):
            for unit, used, status in (
                ("me", mine, 200),
                ("you", mine, 403),
                ("me", headers, 403),
            ):
                sent = json.loads(json.dumps(body).replace("UNIT", unit))
                assert client.post(place, sent, headers=used).status_code == status, place
        place = "/ofrep/v1/evaluate/flags/shop"
        for unit, status in (("me", 200), ("you", 403)):
            context = {"context": {"targetingKey": unit, "unitToken": token}}
            assert client.post(place, context, headers=headers).status_code == status
        for empty in ({}, {"context": None}, {"context": {"unitToken": token}}):
            assert client.post(place, empty, headers=headers).status_code == 403
        assert client.app.state.service.storage.summaries()[0].assigned == 1


NEVER = 4_000_000_000


def test_a_visitor_cannot_speak_for_another() -> None:
    with signed_shop() as (client, headers, secret):
        mine = headers | {"X-SteadyArm-Unit": sa.sign_unit(secret, "me", NEVER)}
        theirs = headers | {"X-SteadyArm-Unit": sa.sign_unit(secret, "you")}
        given = client.post(f"{OWN}/assignments", {"unit": "you"}, headers=theirs).json()["id"]
        for place, body in (
            ("assignments", {"unit": "you"}),
            ("assignments", {}),
            ("assignments", {"unit": "me "}),
            ("rewards", {"unit": "you", "reward": 1}),
            ("rewards", {"assignment": given, "reward": 1}),
            ("rewards:batch", {"rewards": [REWARD | {"unit": unit} for unit in ("me", "you")]}),
            ("rewards:batch", {"rewards": [{"assignment": given, "reward": 1}]}),
            ("rewards:batch", {"rewards": [7]}),
        ):
            answer = client.post(f"{OWN}/{place}", body, headers=mine)
            assert answer.status_code == 403, body
            assert "another unit" in answer.json()["detail"]
            assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert client.post(f"{OWN}/rewards:batch", {"rewards": []}, headers=mine).is_success
        assert client.app.state.service.storage.summaries()[0].rewarded == 0


def _parts(content: str, secret: str, version: str = "v1") -> str:
    """A unit token with any payload, properly signed."""
    payload = base64.urlsafe_b64encode(content.encode()).rstrip(b"=").decode()
    signed = hmac.digest(secret.encode(), f"{version}.{payload}".encode(), "sha256")
    return f"{version}.{payload}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"


def test_unit_tokens_cannot_be_forged_or_used_after_their_time() -> None:
    with signed_shop() as (client, headers, secret):
        good = sa.sign_unit(secret, "u", NEVER)
        version, payload, signature = good.split(".")
        mine = sa.sign_unit(secret, "v", NEVER).split(".")
        forged = {
            "nothing": "",
            "no token": "u",
            "unsigned": f"{version}.{payload}.",
            "no signature": f"{version}.{payload}",
            "signature of another": f"{version}.{payload}.{mine[2]}",
            "payload of another": f"{version}.{mine[1]}.{signature}",
            "cut": good[:-1],
            "longer": good + "A",
            "padded": good + "=",
            "another version": f"v2.{payload}.{signature}",
            "signed for another version": _parts('{"u":"u","e":null}', secret, "v2"),
            "another secret": sa.sign_unit("us_another secret", "u", NEVER),
            "secret of nobody": _parts('{"u":"u","e":null}', ""),
            "the key as the secret": sa.sign_unit(headers["Authorization"][7:], "u", NEVER),
            "expired": sa.sign_unit(secret, "u", time.time() - 1),
            "expired since long": sa.sign_unit(secret, "u", 0),
            "expired at nan": _parts('{"u":"u","e":NaN}', secret),
            "no expiry": _parts('{"u":"u"}', secret),
            "expiry is text": _parts('{"u":"u","e":"4000000000"}', secret),
            "no unit": _parts('{"e":null}', secret),
            "a list": _parts('["u", null]', secret),
            "deep": _parts("[" * 2000, secret),
            "no JSON": _parts("u", secret),
            "much": "v1." + "A" * 5000 + "." + signature,
            "not ASCII": "v1.é.é",
        }
        for what, token in forged.items():
            sent = [*headers.items(), ("X-SteadyArm-Unit", token.encode("latin-1"))]
            body = json.dumps({"unit": "u"})
            answer = client.request("POST", f"{OWN}/assignments", headers=sent, content=body)
            assert answer.status_code == 403, what
            assert "sign_unit" in answer.json()["hint"]
        assert client.app.state.service.storage.summaries()[0].assigned == 0
        proven = headers | {"X-SteadyArm-Unit": good}
        assert client.post(f"{OWN}/assignments", {"unit": "u"}, headers=proven).status_code == 201


def test_unit_tokens_of_one_key_are_worth_nothing_with_another() -> None:
    with shops(signed=True) as (client, storage, _, _):
        other = add_key(storage, "second", experiments=["other"], signed=True)
        client.app.state.service.guard.reload()
        secrets = {one.name: one.signing for one in storage.tokens.all()}
        body = {"unit": "u"}
        for name, status in (("web", 403), ("second", 201)):
            token = sa.sign_unit(secrets[name] or "", "u", NEVER)
            headers = page(other) | {"X-SteadyArm-Unit": token}
            answer = client.post(f"{OTHER}/assignments", body, headers=headers)
            assert answer.status_code == status


def test_a_publishable_key_opens_no_page() -> None:
    storage = open_storage("memory")
    storage.tokens.add(auth.new_token("me", "admin")[1])
    key = add_key(storage)
    with dashboard(storage) as browser:
        refused = browser.sign_in(key)
        assert refused.status_code == 403
        assert "publishable key" in refused.text
        assert key not in refused.text
        for _ in range(auth.FAILURES + 5):  # it is no guess
            assert browser.sign_in(key).status_code == 403
        assert browser.get("/new", headers=page(key, None)).status_code == 303
        assert browser.get("/").status_code == 303


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "*", "https://*", "https://*.shop.example", "null", "shop.example", "file://"),
        *("https://shop.example/path", "https://me@shop.example", "ftp://shop.example"),
        *("https://", "https://shop.example:", "https://shop.example:port", "https://a b"),
        *("https://shop.example,https://b.example", "https://müller.example", "chrome://x"),
    ],
)
def test_what_is_no_origin_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match="without a path"):
        checked_origin(wrong)
