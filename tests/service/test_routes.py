"""Every route does what the contract says, from the creation of a test to its roll-out."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pyarrow.parquet
import pytest
from msgspec import convert

from steadyarm.service.auth import new_token
from steadyarm.wire.responses import CreatedExperiment, Recommendation
from tests.service.clients import SHOP, InProcess, in_process, until

BASE = "/v1/experiments/shop"
SLOTS = {f"slot {i}": ["off", "on"] for i in range(16)}
WHY = "a monitor of our own"


def test_the_life_of_a_test(client: InProcess) -> None:
    created = client.post("/v1/experiments", SHOP | {"start": False})
    assert created.status_code == 201
    convert(created.json(), CreatedExperiment)
    again = SHOP | {"start": False, "load_if_exists": True}
    assert client.post("/v1/experiments", again).status_code == 200
    for body in (SHOP, again | {"budget": 7}):
        refused = client.post("/v1/experiments", body)
        assert refused.json()["type"] == "urn:steadyarm:problem:experiment-exists"
    (listed,) = client.get("/v1/experiments").json()["experiments"]
    assert (listed["name"], listed["state"], listed["arms"]) == ("shop", "draft", 3)
    early = client.post(f"{BASE}/assignments", {"unit": "u"})
    assert early.json()["type"] == "urn:steadyarm:problem:wrong-state"
    assert client.post(f"{BASE}/start").json()["state"] == "running"
    for path in ("recommendation", "health", "drift"):
        early = client.get(f"{BASE}/{path}")
        assert early.json()["type"] == "urn:steadyarm:problem:rewards-pending"
    assert client.get(f"{BASE}/allocation").status_code == 404

    units = [f"u{i}" for i in range(600)]
    given = client.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    rewards = [{"assignment": a["id"], "reward": float(a["arm"] == "B")} for a in given]
    client.post(f"{BASE}/rewards:batch", {"rewards": rewards})
    found = client.get(f"{BASE}/recommendation", params={"level": 0.9, "anytime": True}).json()
    convert(found, Recommendation)
    assert (found["arm"], found["level"], found["anytime"]) == ("B", 0.9, True)
    assert client.get(f"{BASE}/health").json()["status"] == "ok"
    assert client.get(f"{BASE}/drift", params={"periods": 2}).json()["names"] == ["A", "B", "C"]
    shares = client.get(f"{BASE}/allocation").json()["weights"]
    assert sum(shares.values()) == pytest.approx(1)
    replay = client.get(f"{BASE}/replay").json()
    assert (replay["agrees"], replay["assignments"]) == (True, 600)
    text = client.get(f"{BASE}/export")
    assert text.headers["content-type"].startswith("text/csv")
    assert len(text.text.strip().splitlines()) == 601
    table = client.get(f"{BASE}/export", params={"format": "parquet"})
    assert pyarrow.parquet.read_table(BytesIO(table.content)).num_rows == 600
    for action, state in (
        ("pause", "paused"),
        ("resume", "running"),
        ("stop", "stopped"),
        ("archive", "archived"),
    ):
        if action == "archive":  # after a stop that was a mistake
            why = {"reason": "a mistake"}
            assert client.post(f"{BASE}/reopen", why).json()["state"] == "running"
            assert client.post(f"{BASE}/reopen", why).status_code == 409
            assert client.post(f"{BASE}/stop").json()["state"] == "stopped"
        assert client.post(f"{BASE}/{action}").json()["state"] == state
    assert client.post(f"{BASE}/start").status_code == 409


def test_experiments_are_listed_page_by_page(shop: InProcess) -> None:
    for i in range(4):
        shop.post("/v1/experiments", SHOP | {"name": f"t{i}"})
    names, cursor = list[str](), 0
    while cursor is not None:
        answer = shop.get("/v1/experiments", params={"limit": 2, "cursor": cursor}).json()
        assert len(answer["experiments"]) <= 2
        names += [one["name"] for one in answer["experiments"]]
        cursor = answer["next"]
    assert names == ["shop", "t0", "t1", "t2", "t3"]
    assert shop.get("/v1/experiments", params={"limit": 0}).status_code == 422


def test_batches_answer_in_order_with_errors_in_place(shop: InProcess) -> None:
    units = ["a", "", "b", "a", "x" * 513, "nul\0", 3, None, {"id": 3}]
    answers = shop.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    assert [answer["unit"] for answer in answers] == units
    assert [answer.get("new") for answer in answers] == [True, None, True, False, *5 * [None]]
    assert {answer["error"]["status"] for answer in answers if "error" in answer} == {422}
    expected: list[tuple[Any, Any]] = [
        ({"assignment": answers[0]["id"], "reward": 1}, "stored"),
        ({"unit": "b", "reward": 0}, "stored"),
        ({"unit": "nobody", "reward": 0}, 404),
        ({"assignment": "b", "reward": 0}, 404),
        ({"unit": "a", "reward": 0}, 409),
        ({"unit": "a", "reward": 1}, "repeated"),
        ({"id": answers[0]["id"], "reward": 1}, 422),
        ("a", 422),
    ]
    rewards = [reward for reward, _ in expected]
    told = shop.post(f"{BASE}/rewards:batch", {"rewards": rewards}).json()["rewards"]
    outcomes = [entry.get("status") or entry["error"]["status"] for entry in told]
    assert outcomes == [outcome for _, outcome in expected]
    assert sum(shop.get(BASE).json()["assigned"].values()) == 2


def test_windows_close_by_themselves() -> None:
    with in_process() as client:
        client.post("/v1/experiments", SHOP | {"budget": 20, "reward_window": 0.2})
        units = [f"u{i}" for i in range(20)]
        client.post(f"{BASE}/assignments:batch", {"units": units})
        until(lambda: client.get(BASE).json()["observed"])
        late = client.post(f"{BASE}/rewards", {"unit": "u1", "reward": 1})
        assert late.json()["type"] == "urn:steadyarm:problem:reward-too-late"


def test_two_thousand_variants_that_share_nothing(client: InProcess) -> None:
    arms = [f"variant {k}" for k in range(2000)]
    assert client.post("/v1/experiments", SHOP | {"arms": arms}).status_code == 201
    assert client.get(BASE).json()["totals"]["variants"] == 2000


def test_corrections_count_at_once_and_say_who(client: InProcess) -> None:
    token, record = new_token("ada", "admin")
    client.app.state.service.storage.tokens.add(record)
    client.app.state.service.guard.reload()
    client._client.headers["authorization"] = f"Bearer {token}"
    client.post("/v1/experiments", SHOP)
    units = [f"u{i}" for i in range(10)]
    given = client.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    rewards = [{"unit": unit, "reward": 1} for unit in units[:8]]
    client.post(f"{BASE}/rewards:batch", {"rewards": rewards})
    path = f"{BASE}/corrections"
    done = client.post(path, {"kind": "void", "assignment": given[0]["id"], "reason": WHY})
    assert (done.status_code, done.json()["assignments"]) == (201, 1)
    assert client.post(path, {"kind": "exclude", "unit": "u2", "reason": WHY}).is_success
    totals = client.get(BASE).json()["totals"]
    assert (totals["assigned"], totals["rewarded"], totals["excluded"]) == (10, 6, 1)
    assert client.post(path, {"kind": "erase", "unit": "u3"}).is_success
    told = client.get(path).json()["corrections"]
    actions = ["reward.voided", "visits.excluded", "unit.erased"]
    assert [(entry["author"], entry["action"]) for entry in told] == [("ada", a) for a in actions]
    assert told[1]["detail"] == {"assignments": 1, "reason": WHY, "what": "a unit"}
    replayed = client.get(f"{BASE}/replay").json()
    assert (replayed["agrees"], replayed["corrections"]) == (True, 3)
    audit = client.get("/v1/audit").json()["entries"]
    assert [entry["action"] for entry in audit][:2] == ["token.created", "experiment.created"]
    rest = client.get("/v1/audit", params={"after": audit[-3]["id"], "most": 1}).json()["entries"]
    assert rest == audit[-2:-1]
    own = client.get("/v1/audit", params={"experiment": "shop"}).json()["entries"]
    assert own == audit[1:]
    for body, said in (
        ({"kind": "void"}, "To void, give assignment or unit"),
        ({"kind": "void", "unit": "u0", "reason": ""}, "the reason is ''"),
        ({"kind": "exclude", "since": "2026-01-01"}, "unit, or since and until"),
        ({"kind": "exclude", "entry": "77"}, "there is no key 'entry'"),
        ({"kind": "delete", "unit": "u0"}, "kind is 'delete'; expected void"),
    ):
        refused = client.post(path, {"reason": WHY} | body)
        assert refused.status_code == 422
        assert said in refused.json()["detail"]
