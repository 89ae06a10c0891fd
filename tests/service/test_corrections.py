"""Corrections over HTTP: what each kind needs, who did it, and what follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, in_process

SHOP_PATH = "/v1/experiments/shop"
PATH = f"{SHOP_PATH}/corrections"
WHY = "a monitor of our own"


@pytest.fixture
def shop() -> Iterator[tuple[InProcess, list[dict[str, Any]]]]:
    """A shop with ten visits, eight of them with a reward, of an operator with a token."""
    storage = open_storage("memory")
    token, record = new_token("ada", "admin")
    storage.tokens.add(record)
    with in_process(storage) as client:
        client._client.headers["authorization"] = f"Bearer {token}"
        client.post("/v1/experiments", SHOP)
        units = [f"u{i}" for i in range(10)]
        asked = client.post(f"{SHOP_PATH}/assignments:batch", {"units": units}).json()
        rewards = [{"unit": unit, "reward": 1} for unit in units[:8]]
        client.post(f"{SHOP_PATH}/rewards:batch", {"rewards": rewards})
        yield client, asked["assignments"]


def test_corrections_count_at_once_and_say_who(shop: Any) -> None:
    client, given = shop
    done = client.post(PATH, {"kind": "void", "assignment": given[0]["id"], "reason": WHY})
    assert (done.status_code, done.json()["assignments"]) == (201, 1)
    assert client.post(PATH, {"kind": "exclude", "unit": "u2", "reason": WHY}).is_success
    totals = client.get(SHOP_PATH).json()["totals"]
    assert totals == {
        **{"variants": 3, "handed_out": totals["handed_out"]},
        **{"assigned": 10, "rewarded": 6, "excluded": 1},
    }
    assert client.post(PATH, {"kind": "erase", "unit": "u3"}).is_success
    told = client.get(PATH).json()["corrections"]
    assert [(entry["author"], entry["action"]) for entry in told] == [
        ("ada", "reward.voided"),
        ("ada", "visits.excluded"),
        ("ada", "unit.erased"),
    ]
    assert told[1]["detail"] == {"assignments": 1, "reason": WHY, "what": "a unit"}
    replayed = client.get(f"{SHOP_PATH}/replay").json()
    assert (replayed["agrees"], replayed["corrections"]) == (True, 3)
    audit = client.get("/v1/audit").json()["entries"]
    assert [entry["action"] for entry in audit][:2] == ["token.created", "experiment.created"]
    assert audit[1]["author"] == "ada"
    rest = client.get("/v1/audit", params={"after": audit[-3]["id"], "most": 1}).json()["entries"]
    assert rest == audit[-2:-1]
    one = client.get("/v1/audit", params={"experiment": "shop"}).json()["entries"]
    assert one == audit[1:]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "void", "reason": WHY}, "To void, give assignment or unit"),
        ({"kind": "void", "unit": "u0"}, "the reason is ''"),
        ({"kind": "exclude", "since": "2026-01-01", "reason": WHY}, "unit, or since and until"),
        (
            {"kind": "exclude", "unit": "u0", "since": "2026-01-01", "reason": WHY},
            "given: since, unit",
        ),
        ({"kind": "exclude", "entry": 77, "reason": WHY}, "there is no key 'entry'"),
        (
            {"kind": "exclude", "since": "monday", "until": "2026-01-01T00:00Z", "reason": WHY},
            "since is 'monday'; expected a time",
        ),
        ({"kind": "delete", "unit": "u0", "reason": WHY}, "kind is 'delete'; expected void"),
    ],
)
def test_what_is_missing_is_said(shop: Any, body: dict[str, Any], said: str) -> None:
    client, _ = shop
    answer = client.post(PATH, body)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
