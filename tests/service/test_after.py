"""After the test, over HTTP: something is always shown, and roll-outs are an operator's."""

from __future__ import annotations

from tests.service.clients import SHOP, InProcess

BASE = "/v1/experiments/shop"


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


def test_a_stopped_test_with_refuse_says_why(client: InProcess) -> None:
    spend(client, after="refuse")
    assert client.get(BASE).json()["settings"]["after"] == "refuse"
    assert client.post(f"{BASE}/assignments", {"unit": "late"}).status_code == 409
    client.post(f"{BASE}/stop")
    refused = client.post(f"{BASE}/assignments", {"unit": "late"})
    assert refused.status_code == 409
    assert "was stopped on" in refused.json()["detail"]


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
