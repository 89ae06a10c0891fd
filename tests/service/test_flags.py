"""Flags: a provider of OpenFeature gets what the native route would assign, as OFREP says it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, in_process

FLAGS = "/ofrep/v1/evaluate/flags"
BASE = "/v1/experiments/shop"


def context(unit: Any = "u1", **more: Any) -> dict[str, Any]:
    return {"context": {"targetingKey": unit} | more}


def assigned(client: InProcess, name: str = "shop") -> int:
    """How much of the budget is spent."""
    return int(client.get(f"/v1/experiments/{name}").json()["totals"]["assigned"])


def test_an_evaluation_is_the_assignment_of_the_native_route(shop: InProcess) -> None:
    answer = shop.post(f"{FLAGS}/shop", context())
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
    assert shop.post(f"{FLAGS}/shop", context() | {"extra": 1}).json() == answer.json()
    assert assigned(shop) == 1
    assert "steadyarm_assignments_total 1.0" in shop.get("/metrics").text
    told = {"assignment": answer.json()["metadata"]["assignmentId"], "reward": 1.0}
    assert shop.post(f"{BASE}/rewards", told).json() == {"status": "stored"}


@pytest.mark.parametrize(
    ("body", "code", "details"),
    [
        ({}, "TARGETING_KEY_MISSING", "the context has no targetingKey"),
        ({"context": None}, "TARGETING_KEY_MISSING", "the context has no targetingKey"),
        ({"context": {"device": "mobile"}}, "TARGETING_KEY_MISSING", "has no targetingKey"),
        (context(""), "TARGETING_KEY_MISSING", "has no targetingKey"),
        (context(None), "TARGETING_KEY_MISSING", "has no targetingKey"),
        (context(3), "INVALID_CONTEXT", "targetingKey is 3; expected a text"),
        (context("x" * 513), "INVALID_CONTEXT", "expected a text of 1 to 512 characters"),
        (context("nul\0"), "INVALID_CONTEXT", "expected a text of 1 to 512 characters"),
        ({"context": "u1"}, "INVALID_CONTEXT", "context is 'u1'; expected an object"),
        ([], "INVALID_CONTEXT", "expected an object with the key context"),
        (b"{", "PARSE_ERROR", "The body is not JSON"),
        (b"", "PARSE_ERROR", "The body is not JSON"),
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


def test_refusals_of_the_service_itself_are_general_errors() -> None:
    storage = open_storage("memory")
    with in_process(storage, max_body=1000) as client:
        client.post("/v1/experiments", SHOP)
        large = client.post(f"{FLAGS}/shop", context(filler="x" * 2000))
        assert (large.status_code, large.json()["errorCode"]) == (413, "GENERAL")
        (token, record) = new_token("page", "read")
        storage.tokens.add(record)
        client.app.state.service.guard.reload()
        unknown = client.post(f"{FLAGS}/shop", context())
        assert (unknown.status_code, unknown.json()["errorCode"]) == (401, "GENERAL")
        read = {"Authorization": f"Bearer {token}"}
        for path in (f"{FLAGS}/shop", FLAGS):
            weak = client.post(path, context(), headers=read)
            assert (weak.status_code, weak.json()["errorCode"]) == (403, "GENERAL")
            assert "this needs write" in weak.json()["errorDetails"]
        wrong = {"Authorization": "Bearer sa_wrong"}
        tried = [client.post(f"{FLAGS}/shop", context(), headers=wrong) for _ in range(25)]
        assert {answer.status_code for answer in tried} == {401, 429}
        assert tried[-1].json()["errorCode"] == "GENERAL"
        assert 1 <= int(tried[-1].headers["Retry-After"]) <= 60


DECLARED = {
    "attributes": {"device": ["mobile", "desktop"], "member": ["true", "false"]},
    "covariates": ["spend", "expected"],
}


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


def test_polling_costs_an_etag_until_something_changes(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"bulk": True})
    first = client.post(FLAGS, context())
    tag = first.headers["ETag"]

    def asked(known: str, unit: str = "u1") -> httpx2.Response:
        return client.post(FLAGS, context(unit), headers={"If-None-Match": known})

    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = asked(known)
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["ETag"] == tag
    for known in ('"other"', tag.strip('"'), ""):
        assert asked(known).json() == first.json()
    assert asked(tag, "u2").status_code == 200  # another unit has other flags
    client.post("/v1/experiments", SHOP | {"name": "cart", "bulk": True})
    changed = asked(tag)
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag
    assert [flag["key"] for flag in changed.json()["flags"]] == ["shop", "cart"]
    assert assigned(client) == 2


def test_where_nothing_can_be_shown_the_application_uses_its_own_default(
    client: InProcess,
) -> None:
    client.post("/v1/experiments", SHOP | {"start": False})
    draft = client.post(f"{FLAGS}/shop", context())
    assert (draft.status_code, draft.json()) == (
        200,
        {
            "key": "shop",
            "reason": "DISABLED",
            "variant": "",
            "metadata": {"experiment": "shop", "inTest": False, "problem": "wrong-state"},
        },
    )
    client.post(f"{BASE}/start")
    assert client.post(f"{FLAGS}/shop", context()).json()["reason"] == "SPLIT"
    # Those who want an error after the test get the default in the code, too.
    strict = SHOP | {"name": "strict", "budget": 1, "after": "refuse"}
    client.post("/v1/experiments", strict)
    kept = client.post(f"{FLAGS}/strict", context()).json()
    spent = client.post(f"{FLAGS}/strict", context("late")).json()
    assert (spent["reason"], spent["metadata"]["problem"]) == ("DISABLED", "budget-spent")
    assert "value" not in spent
    assert client.post(f"{FLAGS}/strict", context()).json() == kept
    assert kept["reason"] == "SPLIT"


def test_after_the_test_flags_are_static_and_cost_nothing(client: InProcess) -> None:
    values = {"A": {"price": 9}, "B": {"price": 12}, "C": {"price": 15}}
    given = SHOP | {"budget": 20, "control": "B", "values": values}
    client.post("/v1/experiments", given | {"start": False})
    draft = client.post(f"{FLAGS}/shop", context())
    static = {
        "key": "shop",
        "reason": "STATIC",
        "variant": "B",
        "value": {"price": 12},
        "metadata": {"experiment": "shop", "inTest": False},
    }
    assert draft.json() == static  # a draft shows its control
    client.post(f"{BASE}/start")
    own = [client.post(f"{FLAGS}/shop", context(f"u{i}")).json() for i in range(20)]
    assert {flag["reason"] for flag in own} == {"SPLIT"}
    assert all(flag["value"] == values[flag["variant"]] for flag in own)
    assert client.post(FLAGS, context("late")).json() == {"flags": []}  # nobody has chosen yet
    assert client.post(f"{FLAGS}/shop", context("late")).json() == static
    assert client.post(f"{FLAGS}/shop", context("u7")).json() == own[7]
    # From now on a bulk evaluation may show it: it costs nothing, although bulk is off.
    assert client.post(FLAGS, context("later")).json() == {"flags": [static]}
    assert client.post(FLAGS, context("u7")).json() == {"flags": [own[7]]}
    tag = client.post(FLAGS, context("u7")).headers["ETag"]
    rolled = client.post(f"{BASE}/roll-out", {"variant": "C"})
    assert rolled.status_code == 200, rolled.text
    expected = static | {"variant": "C", "value": {"price": 15}}
    for unit in ("u7", "late", "new"):
        assert client.post(f"{FLAGS}/shop", context(unit)).json() == expected
        polled = client.post(FLAGS, context(unit), headers={"If-None-Match": tag})
        assert (polled.status_code, polled.json()) == (200, {"flags": [expected]})
    assert assigned(client) == 20
