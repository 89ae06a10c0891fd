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
from steadyarm.service.auth import validate_origin
from steadyarm.service.service import STRANGERS
from steadyarm.storages import open_storage
from steadyarm.storages.storage import Storage
from tests.dashboard.clients import dashboard
from tests.service.clients import SHOP, InProcess, add_token, bearer, in_process

ORIGIN = "https://shop.example"
OWN, OTHER = "/v1/experiments/shop", "/v1/experiments/other"
REWARD = {"unit": "u", "reward": 1.0}


def add_key(storage: Storage, name: str = "web", **given: Any) -> str:
    usual: dict[str, Any] = {"experiments": ["shop"], "origins": [ORIGIN]}
    key, record = auth.new_key(name, **(usual | given))
    storage.tokens.add(record)
    return key


def page(key: str, origin: str | None = ORIGIN) -> dict[str, str]:
    return bearer(key) if origin is None else bearer(key) | {"Origin": origin}


@contextmanager
def shops(**given: Any) -> Iterator[tuple[InProcess, Storage, dict[str, str], str]]:
    """A service with two experiments, headers of an admin, and a key for the first."""
    storage = open_storage("memory")
    me = bearer(add_token(storage))
    key = add_key(storage, **given)
    with in_process(storage) as client:
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


FLAGS = "/ofrep/v1/evaluate/flags"
CONTEXT = {"context": {"targetingKey": "u"}}
EVENT = {"unit": "u", "event": "reward"}


def test_flags_and_events_are_those_of_the_named_experiments() -> None:
    with shops() as (client, storage, me, key):
        for name in ("mine", "theirs"):
            given = SHOP | {"name": name, "bulk": True}
            assert client.post("/v1/experiments", given, headers=me).is_success
        wide = add_key(storage, "wide", experiments=["shop", "mine", "mines"])
        client.app.state.service.guard.reload()
        for name in ("shop", "other"):
            client.post(f"{FLAGS}/{name}", CONTEXT, headers=me)
        for name in ("other", "absent"):
            refused = client.post(f"{FLAGS}/{name}", CONTEXT, headers=page(key))
            assert (refused.status_code, refused.json()["errorCode"]) == (403, "GENERAL")
        for used, found in ((key, ["shop"]), (wide, ["shop", "mine"])):
            bulk = client.post(FLAGS, CONTEXT, headers=page(used))
            assert [flag["key"] for flag in bulk.json()["flags"]] == found
            assert "ETag" in bulk.headers["access-control-expose-headers"]
            same = page(used) | {"If-None-Match": bulk.headers["ETag"]}
            unchanged = client.post(FLAGS, CONTEXT, headers=same)
            assert unchanged.status_code == 304
            assert unchanged.headers["access-control-allow-origin"] == ORIGIN
        absent = client.post("/v1/experiments/mines/assignments", {"unit": "u"}, headers=page(wide))
        assert absent.status_code == 404
        assert "'mine'" not in absent.text  # nor does an error name what exists
        first = client.post("/v1/events", EVENT, headers=page(key))
        assert first.json() == {"experiments": [{"name": "shop", "status": "stored"}]}
        unseen = client.post("/v1/events", EVENT | {"event": "other"}, headers=page(key))
        assert unseen.json()["detail"].endswith("'other'; the events are reward, shop.")
        many = client.post("/v1/events:batch", {"events": [EVENT, 7]}, headers=page(wide)).json()
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
        every = client.post("/v1/events", EVENT, headers=me).json()  # a token reports to all
        assert {one["name"] for one in every["experiments"]} == {"shop", "other", "mine"}


def test_the_rate_holds_for_each_address_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    with shops(rate=5) as (client, storage, me, key):
        guard = client.app.state.service.guard
        guard._sent = auth.PerMinute(auth.KEY_ADDRESSES, lambda: now[0])
        other = add_key(storage, "second", rate=5)
        guard.reload()
        transport: Any = client._client._transport

        def asked(
            address: str, headers: dict[str, str], place: str = OWN, body: Any = REWARD
        ) -> httpx2.Response:
            transport.client = (address, 5)
            return client.post(f"{place}/rewards:batch", {"rewards": [body]}, headers=headers)

        found = [asked("10.1.2.3", page(key)) for _ in range(6)]
        assert [one.status_code for one in found] == [200] * 5 + [429]
        assert found[-1].headers["retry-after"] == "60"
        assert found[-1].headers["access-control-allow-origin"] == ORIGIN  # so that it is read
        assert found[-1].json()["type"] == "urn:steadyarm:problem:too-many-requests"
        # What a client writes into headers changes nothing.
        local = {"X-Forwarded-For": "10.9.9.9", "Host": "localhost", "X-Real-IP": "10.9.9.9"}
        assert asked("10.1.2.3", page(key) | local).status_code == 429
        for address, headers in (("10.1.2.3", page(other)), ("10.1.2.4", page(key))):
            assert asked(address, headers).status_code == 200
        assert asked("10.1.2.3", me).status_code == 200
        # All items of a batch count, also those that are refused.
        transport.client = ("10.1.2.5", 5)
        batch = {"rewards": [REWARD] * 6}
        assert client.post(f"{OWN}/rewards:batch", batch, headers=page(key)).status_code == 429
        now[0] += 60
        assert asked("10.1.2.3", page(key)).status_code == 200
        # So does guessing the names of experiments.
        places = [f"/v1/experiments/{i}" for i in range(6)]
        guesses = [asked("10.1.2.6", page(key), place).status_code for place in places]
        assert guesses == [403] * 5 + [429]


def test_bodies_with_a_key_are_small_and_count_as_those_of_strangers() -> None:
    with shops() as (client, _, me, key):
        bodies = client.app.state.service.bodies

        def asked(headers: dict[str, str], **more: Any) -> httpx2.Response:
            return client.post(f"{OWN}/assignments", {"unit": "u"} | more, headers=headers)

        large = {"a": "x" * auth.MAX_BODY}
        assert asked(page(key), attributes=large).status_code == 413
        assert asked(me, attributes=large).status_code == 422
        bodies._bytes[False] = STRANGERS  # as many as may be held
        shed = asked(page(key))
        assert (shed.status_code, shed.headers["Retry-After"]) == (503, "1")
        assert shed.json()["type"].endswith("overloaded")
        assert shed.json()["hint"].startswith("Nothing was changed")
        assert asked(me).status_code == 201
        bodies._bytes[False] = 0
        assert asked(page(key)).status_code == 200
        assert bodies._bytes == {True: 0, False: 0}


def test_a_service_with_publishable_keys_alone_is_closed_to_all_else() -> None:
    storage = open_storage("memory")
    with in_process(storage) as client:
        assert client.post("/v1/experiments", SHOP).status_code == 201  # before the first token
        key = add_key(storage)
        add_key(storage, "second")
        guard = client.app.state.service.guard
        guard.reload()
        for headers in ({}, {"Authorization": "Bearer sa_x"}, {"Origin": ORIGIN}):
            for method, path in (("GET", "/v1/experiments"), ("POST", f"{OWN}/assignments")):
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401
                assert "steadyarm token create" in answer.json()["hint"]

        def asked(path: str = OWN, origin: str = ORIGIN) -> httpx2.Response:
            body = {"unit": "u"}
            return client.post(f"{path}/assignments", body, headers=page(key, origin))

        assert asked().status_code == 201
        storage.tokens.remove("web", now=0)
        guard.reload()
        # The page can read that its key was removed, while the other one declares its origin.
        assert asked().status_code == 401
        assert asked().headers["access-control-allow-origin"] == ORIGIN
        for answer in (asked(origin="https://evil.example"), asked(OTHER)):
            assert answer.status_code == 401
            assert "access-control-allow-origin" not in answer.headers
        storage.tokens.remove("second", now=0, lock_out=True)
        guard.reload()
        assert asked().status_code == 401
        assert "access-control-allow-origin" not in asked().headers


NEVER = 4_000_000_000


@contextmanager
def signed_shop() -> Iterator[tuple[InProcess, dict[str, str], str]]:
    """A service whose key takes signed units, headers of its page, and the secret."""
    with shops(signed=True) as (client, storage, _, key):
        other = add_key(storage, "second", experiments=["other"], signed=True)
        client.app.state.service.guard.reload()
        secrets = {one.name: one.signing or "" for one in storage.tokens.all()}
        token = sa.sign_unit(secrets["web"], "u", NEVER)
        foreign = page(other) | {"X-SteadyArm-Unit": token}
        answer = client.post(f"{OTHER}/assignments", {"unit": "u"}, headers=foreign)
        assert answer.status_code == 403  # with another key it is worth nothing
        yield client, page(key), secrets["web"]


def test_a_visitor_cannot_speak_for_another() -> None:
    with signed_shop() as (client, headers, secret):
        token = sa.sign_unit(secret, "me", NEVER)
        mine = headers | {"X-SteadyArm-Unit": token}
        theirs = headers | {"X-SteadyArm-Unit": sa.sign_unit(secret, "you")}
        given = client.post(f"{OWN}/assignments", {"unit": "you"}, headers=theirs).json()["id"]
        client.post(f"{OWN}/assignments", {"unit": "me"}, headers=mine)
        for place, body in (
            ("assignments", {}),
            ("assignments", {"unit": "me "}),
            ("rewards", {"assignment": given, "reward": 1}),
            ("rewards:batch", {"rewards": [REWARD | {"unit": unit} for unit in ("me", "you")]}),
            ("rewards:batch", {"rewards": [{"assignment": given, "reward": 1}]}),
            ("rewards:batch", {"rewards": [7]}),
        ):
            answer = client.post(f"{OWN}/{place}", body, headers=mine)
            assert answer.status_code == 403, body
            assert "another unit" in answer.json()["detail"]
            assert answer.headers["access-control-allow-origin"] == ORIGIN
        event = {"unit": "UNIT", "event": "reward"}
        context = {"targetingKey": "UNIT"}
        for place, body in (
            (f"{OWN}/assignments", {"unit": "UNIT"}),
            (f"{OWN}/rewards", {"unit": "UNIT", "reward": 1}),
            ("/v1/events", event),
            ("/v1/events:batch", {"events": [event]}),
            (f"{FLAGS}/shop", {"context": context}),
            (FLAGS, {"context": context}),
        ):
            for unit, used, allowed in (
                ("me", mine, True),
                ("you", mine, False),
                ("me", headers, False),
            ):
                sent = json.loads(json.dumps(body).replace("UNIT", unit))
                status = client.post(place, sent, headers=used).status_code
                assert status in ((200, 201) if allowed else (403,)), place
        for unit, status in (("me", 200), ("you", 403)):
            context = {"targetingKey": unit, "unitToken": token}
            answer = client.post(f"{FLAGS}/shop", {"context": context}, headers=headers)
            assert answer.status_code == status
        (summary,) = client.app.state.service.storage.summaries()[:1]
        assert (summary.assigned, summary.rewarded) == (2, 1)


def _signed(content: str, secret: str, version: str = "v1") -> str:
    payload = base64.urlsafe_b64encode(content.encode()).rstrip(b"=").decode()
    signed = hmac.digest(secret.encode(), f"{version}.{payload}".encode(), "sha256")
    return f"{version}.{payload}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"


def test_unit_tokens_cannot_be_forged_or_used_after_their_time() -> None:
    with signed_shop() as (client, headers, secret):
        good = sa.sign_unit(secret, "u", NEVER)
        version, payload, signature = good.split(".")
        other = sa.sign_unit(secret, "v", NEVER).split(".")
        forged = [
            *("", "u", f"{version}.{payload}.", f"{version}.{payload}"),
            *(f"{version}.{payload}.{other[2]}", f"{version}.{other[1]}.{signature}"),
            *(good[:-1], good + "A", good + "=", f"v2.{payload}.{signature}"),
            _signed('{"u":"u","e":null}', secret, "v2"),
            sa.sign_unit("us_another secret", "u", NEVER),
            _signed('{"u":"u","e":null}', ""),
            sa.sign_unit(headers["Authorization"][7:], "u", NEVER),  # the key is no secret
            sa.sign_unit(secret, "u", time.time() - 1),
            sa.sign_unit(secret, "u", 0),
            *(_signed(f'{{"u":"u","e":{end}}}', secret) for end in ("NaN", '"4000000000"')),
            *(_signed(text, secret) for text in ('{"u":"u"}', '{"e":null}', '["u", null]', "u")),
            _signed("[" * 2000, secret),
            "v1." + "A" * 5000 + "." + signature,
            "v1.é.é",
        ]
        for token in forged:
            sent = [*headers.items(), ("X-SteadyArm-Unit", token.encode("latin-1"))]
            body = json.dumps({"unit": "u"})
            answer = client.request("POST", f"{OWN}/assignments", headers=sent, content=body)
            assert answer.status_code == 403, token
            assert "sign_unit" in answer.json()["hint"]
        assert client.app.state.service.storage.summaries()[0].assigned == 0
        proven = headers | {"X-SteadyArm-Unit": good}
        assert client.post(f"{OWN}/assignments", {"unit": "u"}, headers=proven).status_code == 201


def test_a_publishable_key_opens_no_page() -> None:
    storage = open_storage("memory")
    add_token(storage)
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


def test_what_is_no_origin_is_refused() -> None:
    for wrong in (
        *("", "*", "https://*", "https://*.shop.example", "null", "shop.example", "file://"),
        *("https://shop.example/path", "https://me@shop.example", "ftp://shop.example"),
        *("https://", "https://shop.example:", "https://shop.example:port", "https://a b"),
        *("https://shop.example,https://b.example", "https://müller.example", "chrome://x"),
    ):
        with pytest.raises(InvalidInputError, match="without a path"):
            validate_origin(wrong)
