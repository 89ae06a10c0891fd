"""Flags: a provider of OpenFeature gets what the native route would assign, as OFREP says it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, add_token, bearer, in_process

FLAGS = "/ofrep/v1/evaluate/flags"
BASE = "/v1/experiments/shop"


def context(unit: Any = "u1", **more: Any) -> dict[str, Any]:
    return {"context": {"targetingKey": unit} | more}


def assigned(client: InProcess, name: str = "shop") -> int:
    return int(client.get(f"/v1/experiments/{name}").json()["totals"]["assigned"])


@pytest.mark.parametrize(
    ("body", "code", "details"),
    [
        ({}, "TARGETING_KEY_MISSING", "the context has no targetingKey"),
        ({"context": {"device": "mobile"}}, "TARGETING_KEY_MISSING", "has no targetingKey"),
        (context(""), "TARGETING_KEY_MISSING", "has no targetingKey"),
        (context(3), "INVALID_CONTEXT", "targetingKey is 3; expected a text"),
        (context("x" * 513), "INVALID_CONTEXT", "expected a text of 1 to 512 characters"),
        ({"context": "u1"}, "INVALID_CONTEXT", "context is 'u1'; expected an object"),
        ([], "INVALID_CONTEXT", "expected an object with the key context"),
        (b"{", "PARSE_ERROR", "The body is not JSON"),
        (b'{"context": {"a": NaN}}', "PARSE_ERROR", "The body is not JSON"),
    ],
)
def test_wrong_requests_are_refused_in_the_words_of_the_protocol(
    shop: InProcess, body: Any, code: str, details: str
) -> None:
    given = {"content": body} if isinstance(body, bytes) else {"json": body}
    single = shop.request("POST", f"{FLAGS}/shop", **given)
    assert (single.status_code, single.json()["errorCode"]) == (400, code)
    assert details in single.json()["errorDetails"]
    assert set(single.json()) == {"key", "errorCode", "errorDetails"}
    assert single.headers["content-type"] == "application/json"
    assert assigned(shop) == 0


DECLARED = {
    "attributes": {"device": ["mobile", "desktop"], "member": ["true", "false"]},
    "covariates": ["spend", "expected"],
}


def test_a_preview_shows_a_variant_and_assigns_nothing(shop: InProcess) -> None:
    for preview in ("shop=B", {"shop": "B", "cart": "A"}):
        body = {"context": {"targetingKey": "colleague", "preview": preview}}
        answer = shop.post(f"{FLAGS}/shop", body).json()
        assert (answer["variant"], answer["reason"]) == ("B", "STATIC")
    wrong = {"context": {"targetingKey": "colleague", "preview": "shop=Z"}}
    assert shop.post(f"{FLAGS}/shop", wrong).status_code == 400
    shown = shop.post(f"{BASE}/assignments", {"unit": "colleague", "preview": "C"}).json()
    assert (shown["arm"], shown["in_test"]) == ("C", False)
    assert assigned(shop) == 0


def test_bulk_evaluation_spends_budget_only_where_that_was_wanted(shop: InProcess) -> None:
    shop.post("/v1/experiments", SHOP | {"name": "cart", "bulk": True})
    shop.post("/v1/experiments", SHOP | {"name": "later", "bulk": True, "start": False})
    first = shop.post(FLAGS, context()).json()["flags"]
    found = {flag["key"]: flag for flag in first}
    assert set(found) == {"cart", "later"}
    assert found["cart"] == shop.post(f"{FLAGS}/cart", context()).json()
    assert found["later"]["reason"] == "DISABLED"
    assert "value" not in found["later"]
    assert (assigned(shop), assigned(shop, "cart"), assigned(shop, "later")) == (0, 1, 0)
    single = shop.post(f"{FLAGS}/shop", context()).json()
    again = {flag["key"]: flag for flag in shop.post(FLAGS, context()).json()["flags"]}
    assert again == found | {"shop": single}
    for i in range(5):
        shop.post(FLAGS, context(f"other {i}"))
    assert (assigned(shop), assigned(shop, "cart")) == (1, 6)
    assert shop.get("/v1/experiments/cart").json()["settings"]["bulk"] is True
    assert shop.get(BASE).json()["settings"]["bulk"] is False
    empty = shop.post(FLAGS, {})
    assert (empty.status_code, empty.json()["errorCode"]) == (400, "TARGETING_KEY_MISSING")
    assert "key" not in empty.json()


def test_one_flag_that_cannot_be_evaluated_does_not_concern_the_others(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"bulk": True})
    client.post("/v1/experiments", SHOP | DECLARED | {"name": "strict", "bulk": True})
    flags = client.post(FLAGS, context(spend="much")).json()["flags"]
    assert [flag.get("reason") or flag["errorCode"] for flag in flags] == [
        "SPLIT",
        "INVALID_CONTEXT",
    ]
    assert set(flags[1]) == {"key", "errorCode", "errorDetails"}


def test_an_evaluation_is_the_assignment_of_the_native_route(shop: InProcess) -> None:
    answer = shop.post(f"{FLAGS}/shop", context() | {"extra": 1})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    native = shop.post(f"{BASE}/assignments", {"unit": "u1"}).json()
    assert not native["new"]
    assert answer.json() == {
        "key": "shop",
        "value": native["arm"],
        "variant": native["arm"],
        "reason": "SPLIT",
        "metadata": {
            "experiment": "shop",
            "inTest": True,
            "assignmentId": native["id"],
            "probability": native["probability"],
        },
    }
    told = {"assignment": native["id"], "reward": 1.0}
    assert shop.post(f"{BASE}/rewards", told).json() == {"status": "stored"}


def test_refusals_of_the_service_itself_are_general_errors() -> None:
    storage = open_storage("memory")
    with in_process(storage, max_body=1000) as client:
        client.post("/v1/experiments", SHOP)
        large = client.post(f"{FLAGS}/shop", context(filler="x" * 2000))
        token = add_token(storage, "page", "read")
        client.app.state.service.guard.reload()
        unknown = client.post(f"{FLAGS}/shop", context())
        weak = client.post(FLAGS, context(), headers=bearer(token))
        for answer, status in ((large, 413), (unknown, 401), (weak, 403)):
            assert (answer.status_code, answer.json()["errorCode"]) == (status, "GENERAL")


def test_polling_costs_an_etag_until_something_changes(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"bulk": True})
    first = client.post(FLAGS, context())
    tag = first.headers["ETag"]

    def asked(known: str, unit: str = "u1") -> httpx2.Response:
        return client.post(FLAGS, context(unit), headers={"If-None-Match": known})

    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = asked(known)
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    for known in ('"other"', tag.strip('"'), ""):
        assert asked(known).json() == first.json()
    assert asked(tag, "u2").status_code == 200  # another unit has other flags
    client.post("/v1/experiments", SHOP | {"name": "cart", "bulk": True})
    changed = asked(tag)
    assert changed.headers["ETag"] != tag
    assert [flag["key"] for flag in changed.json()["flags"]] == ["shop", "cart"]


def test_flags_before_and_after_the_test_cost_nothing(client: InProcess) -> None:
    values = {"A": {"price": 9}, "B": {"price": 12}, "C": {"price": 15}}
    given = SHOP | {"budget": 20, "control": "B", "values": values}
    client.post("/v1/experiments", given | {"start": False})

    def shown(unit: str) -> Any:
        return client.post(f"{FLAGS}/shop", context(unit)).json()

    static = {
        "key": "shop",
        "reason": "STATIC",
        "variant": "B",
        "value": {"price": 12},
        "metadata": {"experiment": "shop", "inTest": False},
    }
    assert shown("u0") == static  # a draft shows its control
    client.post(f"{BASE}/start")
    own = [shown(f"u{i}") for i in range(20)]
    assert {flag["reason"] for flag in own} == {"SPLIT"}
    assert all(flag["value"] == values[flag["variant"]] for flag in own)
    assert shown("late") == static  # late rewards may still decide, so nothing is chosen yet
    for unit, flags in (("late", []), ("u7", [own[7]])):  # bulk is off
        assert client.post(FLAGS, context(unit)).json() == {"flags": flags}
    tag = client.post(FLAGS, context("u7")).headers["ETag"]
    assert client.post(f"{BASE}/roll-out", {"variant": "C"}).is_success
    expected = static | {"variant": "C", "value": {"price": 15}}
    for unit in ("u7", "late", "new"):
        assert shown(unit) == expected
        polled = client.post(FLAGS, context(unit), headers={"If-None-Match": tag})
        assert (polled.status_code, polled.json()) == (200, {"flags": [expected]})
    assert assigned(client) == 20
    # Without a control, and with an error after the test, the application has its own default.
    for name, more, problem in (
        ("draft", {"start": False}, "wrong-state"),
        ("strict", {"budget": 1, "after": "refuse"}, "budget-spent"),
    ):
        client.post("/v1/experiments", SHOP | {"name": name} | more)
        client.post(f"{FLAGS}/{name}", context())
        flag = client.post(f"{FLAGS}/{name}", context("late"))
        metadata = {"experiment": name, "inTest": False, "problem": problem}
        disabled = {"key": name, "reason": "DISABLED", "variant": "", "metadata": metadata}
        assert (flag.status_code, flag.json()) == (200, disabled)
