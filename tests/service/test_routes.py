"""Every route does what the contract says, and its answers fit the documented models."""

from __future__ import annotations

import sys
from io import BytesIO
from typing import Any

import pytest
from msgspec import convert

from steadyarm.storages import open_storage
from steadyarm.wire.responses import CreatedExperiment, Recommendation
from tests.service.clients import SHOP, InProcess, in_process

BASE = "/v1/experiments/shop"


def test_an_experiment_is_created_once_shown_and_listed(client: InProcess) -> None:
    created = client.post("/v1/experiments", SHOP)
    assert created.status_code == 201
    convert(created.json(), CreatedExperiment)
    assert created.json()["created"].endswith("Z")
    again = client.post("/v1/experiments", SHOP)
    assert (again.status_code, again.json()["type"]) == (
        409,
        "urn:steadyarm:problem:experiment-exists",
    )
    assert client.post("/v1/experiments", SHOP | {"load_if_exists": True}).status_code == 200
    other = client.post("/v1/experiments", SHOP | {"load_if_exists": True, "budget": 7})
    assert other.status_code == 409
    assert client.get(BASE).json() | {"warnings": []} == created.json()
    (listed,) = client.get("/v1/experiments").json()["experiments"]
    assert {key: value for key, value in listed.items() if key != "created"} == {
        "name": "shop",
        "state": "running",
        "budget": 1000,
        "policy": "Steady",
        "arms": 3,
    }


def test_a_unit_keeps_its_variant_and_its_reward(shop: InProcess) -> None:
    first = shop.post(f"{BASE}/assignments", {"unit": "u1"})
    assert first.status_code == 201
    fields = {"id", "unit", "arm", "probability", "created", "new", "value", "in_test"}
    assert set(first.json()) == fields
    again = shop.post(f"{BASE}/assignments", {"unit": "u1"})
    assert first.json()["new"]
    assert (again.status_code, again.json()) == (200, first.json() | {"new": False})
    told = {"assignment": first.json()["id"], "reward": 1.0}
    answers = [shop.post(f"{BASE}/rewards", told) for _ in range(2)]
    assert [a.status_code for a in answers] == [201, 200]
    assert [a.json()["status"] for a in answers] == ["stored", "repeated"]
    assert shop.post(f"{BASE}/rewards", {"unit": "u1", "reward": 1}).json()["status"] == "repeated"
    conflict = shop.post(f"{BASE}/rewards", {"unit": "u1", "reward": 0})
    assert conflict.json()["type"] == "urn:steadyarm:problem:reward-conflict"


def test_batches_answer_in_order_with_errors_in_place(shop: InProcess) -> None:
    units = ["a", "", "b", "a", "x" * 513, "nul\0", 3, None, {"id": 3}]
    answers = shop.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    assert [answer["unit"] for answer in answers] == units
    assert [answer.get("new") for answer in answers] == [True, None, True, False, *5 * [None]]
    assert {answer["error"]["status"] for answer in answers if "error" in answer} == {422}
    assert answers[6]["error"]["detail"].startswith("the unit is 3; expected a text")
    odd = shop.post(f"{BASE}/assignments:batch", {"units": [3]}).json()["assignments"]
    assert odd[0]["unit"] == 3
    rewards: list[Any] = [
        {"assignment": answers[0]["id"], "reward": 1},
        {"unit": "b", "reward": 0},
        {"unit": "nobody", "reward": 0},
        {"assignment": "b", "reward": 0},
        {"unit": "a", "reward": 0},
        {"unit": "a", "reward": 1},
        {"id": answers[0]["id"], "reward": 1},
        "a",
    ]
    told = shop.post(f"{BASE}/rewards:batch", {"rewards": rewards}).json()["rewards"]
    assert [entry.get("status") or entry["error"]["status"] for entry in told] == [
        "stored",
        "stored",
        404,
        404,
        409,
        "repeated",
        422,
        422,
    ]
    assert sum(shop.get(BASE).json()["assigned"].values()) == 2


def test_results_are_told_once_there_are_rewards(shop: InProcess) -> None:
    for path in ("recommendation", "health", "drift"):
        early = shop.get(f"{BASE}/{path}")
        assert (early.status_code, early.json()["type"]) == (
            409,
            "urn:steadyarm:problem:rewards-pending",
        )
    assert shop.get(f"{BASE}/allocation").status_code == 404
    units = [f"u{i}" for i in range(600)]
    given = shop.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    rewards = [{"assignment": a["id"], "reward": float(a["arm"] == "B")} for a in given]
    shop.post(f"{BASE}/rewards:batch", {"rewards": rewards})
    found = shop.get(f"{BASE}/recommendation", params={"level": 0.9, "anytime": True}).json()
    convert(found, Recommendation)
    assert (found["arm"], found["level"], found["anytime"]) == ("B", 0.9, True)
    assert shop.get(f"{BASE}/health").json()["status"] == "ok"
    assert shop.get(f"{BASE}/drift", params={"periods": 2}).json()["names"] == ["A", "B", "C"]
    shares = shop.get(f"{BASE}/allocation").json()["weights"]
    assert sum(shares.values()) == pytest.approx(1)
    replay = shop.get(f"{BASE}/replay").json()
    assert (replay["agrees"], replay["assignments"]) == (True, 600)


def test_a_verdict_before_enough_visits_asks_for_visits(shop: InProcess) -> None:
    shop.post(f"{BASE}/assignments", {"unit": "visitor 1"})
    shop.post(f"{BASE}/rewards", {"unit": "visitor 1", "reward": 1})
    for path in ("recommendation", "drift"):
        early = shop.get(f"{BASE}/{path}")
        told = early.json()
        assert (early.status_code, told["type"]) == (409, "urn:steadyarm:problem:visits-pending")
        assert told["title"] == "Visits must come first"
        assert told["detail"].endswith(" visits; 1 has been assigned.")
        assert told["hint"].startswith("Assign more visits first")


def test_exports_hold_every_assignment(shop: InProcess) -> None:
    import pyarrow.parquet

    units = [f"u{i}" for i in range(50)]
    shop.post(f"{BASE}/assignments:batch", {"units": units})
    text = shop.get(f"{BASE}/export")
    assert text.headers["content-type"].startswith("text/csv")
    assert len(text.text.strip().splitlines()) == 51
    table = shop.get(f"{BASE}/export", params={"format": "parquet"})
    assert pyarrow.parquet.read_table(BytesIO(table.content)).num_rows == 50
    assert shop.get(f"{BASE}/export", params={"format": "xls"}).status_code == 422


def test_a_table_that_the_server_cannot_write_is_told(
    shop: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = shop.get(f"{BASE}/export", params={"format": "parquet"})
    assert answer.status_code == 501
    assert answer.json()["type"] == "urn:steadyarm:problem:not-installed"
    assert "steadyarm[analyze]" in answer.json()["detail"]
    assert "format=csv" in answer.json()["hint"]


def test_states_are_moved_through(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"start": False})
    refused = client.post(f"{BASE}/assignments", {"unit": "u"})
    assert refused.json()["type"] == "urn:steadyarm:problem:wrong-state"
    for action, state in (
        ("start", "running"),
        ("pause", "paused"),
        ("resume", "running"),
        ("stop", "stopped"),
        ("archive", "archived"),
    ):
        assert client.post(f"{BASE}/{action}").json()["state"] == state
    assert client.post(f"{BASE}/start").status_code == 409


def test_a_spent_budget_is_told_and_old_units_are_served(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"budget": 3, "after": "refuse"})
    units = [f"u{i}" for i in range(5)]
    answers = client.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    kinds = [answer.get("error", {}).get("type", "").rpartition(":")[2] for answer in answers]
    assert kinds == ["", "", "", "budget-spent", "budget-spent"]
    assert client.post(f"{BASE}/assignments", {"unit": "u9"}).status_code == 409
    assert client.post(f"{BASE}/assignments", {"unit": "u0"}).status_code == 200


def test_without_sticky_units_every_request_is_drawn_anew(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"sticky": "none"})
    answers = [client.post(f"{BASE}/assignments", {}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] != answers[1].json()["id"]


def test_windows_close_by_themselves() -> None:
    import time

    with in_process() as client:
        client.post("/v1/experiments", SHOP | {"budget": 20, "reward_window": 0.2})
        units = [f"u{i}" for i in range(20)]
        client.post(f"{BASE}/assignments:batch", {"units": units})
        for _ in range(60):
            if client.get(BASE).json()["observed"]:
                break
            time.sleep(0.1)
        assert client.get(BASE).json()["observed"] >= 1
        late = client.post(f"{BASE}/rewards", {"unit": "u1", "reward": 1})
        assert late.json()["type"] == "urn:steadyarm:problem:reward-too-late"


def test_what_others_create_in_the_storage_is_found(tmp_path: Any) -> None:
    import steadyarm as sa

    url = f"sqlite:///{tmp_path}/both.db"
    with in_process(open_storage(url)) as client:
        assert client.get(BASE).status_code == 404
        with sa.create_experiment("shop", ["A", "B"], sa.Steady(), 10, url, missing="drop"):
            assert client.get(BASE).status_code == 200
