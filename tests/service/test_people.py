"""Attributes of units over HTTP: declared, sent with assignments, and results by level."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import steadyarm as sa
from tests.service.clients import SHOP, InProcess, in_process

BASE = "/v1/experiments/shop"
DEVICES = {"device": ["mobile", "desktop"]}


@pytest.fixture
def client() -> Iterator[InProcess]:
    """A service with a shop of a small budget, whose visitors have devices."""
    with in_process() as client:
        made = client.post("/v1/experiments", SHOP | {"budget": 300, "attributes": DEVICES})
        assert made.status_code == 201
        yield client


def test_settings_say_which_attributes_there_are(client: InProcess) -> None:
    settings = client.get(BASE).json()["settings"]
    assert settings["attributes"] == DEVICES
    assert settings["metrics"] == []
    wrong = SHOP | {"name": "other", "attributes": {"device": ["mobile"]}}
    refused = client.post("/v1/experiments", wrong)
    assert (refused.status_code, refused.json()["field"]) == (422, "attributes")


def test_bad_attributes_are_refused_for_their_unit(client: InProcess) -> None:
    path = f"{BASE}/assignments"
    for given, field in (({"color": "red"}, "attributes"), ({"device": 3}, "attributes")):
        refused = client.post(path, {"unit": "u1", "attributes": given})
        assert (refused.status_code, refused.json()["field"]) == (422, field)
    many = {"units": ["u1", "u2", "u3"], "attributes": [{"device": "tv"}, {"color": "red"}, None]}
    answers = client.post(f"{path}:batch", many).json()["assignments"]
    assert ["error" in answer for answer in answers] == [False, True, False]
    assert client.get(BASE).json()["totals"]["assigned"] == 2
    short = client.post(f"{path}:batch", {"units": ["u4"], "attributes": []})
    assert short.status_code == 422
    assert "equally many" in short.json()["detail"]


def test_results_by_level(client: InProcess) -> None:
    path = f"{BASE}/breakdowns/device"
    assert client.get(path).status_code == 409
    assert client.get(f"{BASE}/breakdowns/color").status_code == 404
    units = [f"u{i}" for i in range(300)]
    levels = [{"device": ("mobile", "desktop")[i % 2]} for i in range(300)]
    asked = client.post(f"{BASE}/assignments:batch", {"units": units, "attributes": levels}).json()
    rewards = [
        {"unit": one["unit"], "reward": float(i % 2 == 0 and one["arm"] == "B") + i % 7 / 7}
        for i, one in enumerate(asked["assignments"])
    ]
    assert client.post(f"{BASE}/rewards:batch", {"rewards": rewards}).is_success
    found = client.get(path, params={"level": 0.9}).json()
    assert [one["visits"] for one in found["levels"]] == [150, 150, 0]
    assert found["levels"][2] | {"obstacle": ""} == {
        **{"name": "other", "visits": 0, "obstacle": "", "arms": []}
    }
    assert (found["level"], found["exploratory"]) == (0.9, True)
    assert found["interaction"] < 0.01
    test = sa.load_experiment("shop", client.app.state.service.storage)
    same = test.recommend(0.9, by="device").of("mobile")
    assert same.estimates is not None
    assert [arm["estimate"] for arm in found["levels"][0]["arms"]] == same.estimates.tolist()
