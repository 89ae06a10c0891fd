"""Every route does what the contract says, and its answers fit the documented models."""

from __future__ import annotations

import sys
import time
from io import BytesIO
from typing import Any

import pytest
from msgspec import convert

from steadyarm.storages import open_storage
from steadyarm.wire.responses import CreatedExperiment, Recommendation
from tests.service.clients import SHOP, InProcess, in_process

BASE = "/v1/experiments/shop"
SLOTS = {f"slot {i}": ["off", "on"] for i in range(16)}


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


def test_answers_about_many_variants_tell_of_few(client: InProcess) -> None:
    many = {"arms": {"factorial": SLOTS}, "policy": "steady", "reward_range": [0, 1]}
    assert client.post("/v1/experiments", SHOP | many | {"budget": 4000}).status_code == 201
    body = {"units": [f"u{i}" for i in range(1000)]}
    given = client.post(f"{BASE}/assignments:batch", body).json()["assignments"]
    answer = client.get(BASE).json()
    assert answer["totals"]["variants"] == 65_536
    assert answer["totals"]["assigned"] == 1000
    for name, count in answer["assigned"].items():
        assert count == sum(one["arm"] == name for one in given)
    assert len(answer["assigned"]) <= 500
    assert len(client.get(f"{BASE}/allocation").json()["weights"]) <= 500
    assert client.get("/v1/experiments").json()["experiments"][0]["arms"] == 65_536


def test_two_thousand_variants_that_share_nothing_are_created_in_two_seconds(
    client: InProcess,
) -> None:
    many = {"name": "many", "arms": [f"variant {k}" for k in range(2000)], "budget": 100_000}
    began = time.process_time()  # not the clock: a busy machine is no defect
    created = client.post("/v1/experiments", many | {"seed": 1, "missing": "drop"})
    assert created.status_code == 201
    assert time.process_time() - began < 2.0


def spend(client: InProcess, **more: object) -> None:
    """An experiment whose three visits have been assigned."""
    client.post("/v1/experiments", SHOP | {"budget": 3, "control": "A"} | more)
    client.post(f"{BASE}/assignments:batch", {"units": ["u0", "u1", "u2"]})


def test_a_spent_test_goes_on_showing_something(client: InProcess) -> None:
    spend(client)
    shown = client.post(f"{BASE}/assignments", {"unit": "late"})
    assert shown.status_code == 200
    told = shown.json()
    assert told.pop("created")
    assert told == {
        **{"id": "", "unit": "late", "arm": "A", "probability": None},
        **{"new": False, "value": "A", "in_test": False},
    }
    many = client.post(f"{BASE}/assignments:batch", {"units": ["u1", "later"]}).json()
    assert [one["in_test"] for one in many["assignments"]] == [True, False]
    for target in ({"unit": "late"}, {"assignment": ""}):
        told = client.post(f"{BASE}/rewards", target | {"reward": 1.0})
        assert (told.status_code, told.json()) == (200, {"status": "outside"})
    rewards = [{"unit": "later", "reward": 1.0}, {"unit": "u1", "reward": 1.0}]
    answers = client.post(f"{BASE}/rewards:batch", {"rewards": rewards}).json()["rewards"]
    assert answers == [{"status": "outside"}, {"status": "stored"}]
    outside = client.get(BASE).json()["outside"]
    assert (outside["default"], outside["roll_outs"]) == ("A", [])


def test_roll_out(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"control": "A"})
    client.post(f"{BASE}/assignments", {"unit": "u0"})
    running = client.post(f"{BASE}/roll-out", {"variant": "B"})
    assert (running.status_code, running.json()["type"][-11:]) == (409, "wrong-state")
    body = {"variant": "B", "share": 0.5, "stop": True, "reason": "it is better"}
    done = client.post(f"{BASE}/roll-out", body)
    assert done.status_code == 200
    assert done.json()["state"] == "stopped"
    rolled = done.json()["roll_out"]
    assert (rolled["variant"], rolled["share"]) == ("B", 0.5)
    lower = client.post(f"{BASE}/roll-out", {"share": 0.1})
    assert (lower.status_code, lower.json()["field"]) == (422, "share")
    assert client.post(f"{BASE}/roll-out", {"share": 1.5}).status_code == 422
    assert client.post(f"{BASE}/roll-out", {}).json()["roll_out"]["share"] == 1.0
    for unit in ("u0", "new"):
        shown = client.post(f"{BASE}/assignments", {"unit": unit}).json()
        assert (shown["arm"], shown["in_test"], shown["id"]) == ("B", False, "")
    back = client.post(f"{BASE}/roll-out", {"share": 0, "change": True}).json()
    assert back["outside"]["roll_outs"] == [back["roll_out"]]
    shown = client.post(f"{BASE}/assignments", {"unit": "u0"}).json()
    assert shown["in_test"]
    entries = client.get("/v1/audit?experiment=shop").json()["entries"]
    actions = [entry["action"] for entry in entries]
    assert actions.count("experiment.rolled_out") == 3
