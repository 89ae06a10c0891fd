"""Values of variants over HTTP: in settings, in single and batched assignments, and refused."""

from __future__ import annotations

from tests.service.clients import SHOP, InProcess

BASE = "/v1/experiments/shop"

PRICES = {"A": {"price": 9}, "B": {"price": 12, "tags": ["new", None]}}


def test_assignments_return_values(client: InProcess) -> None:
    made = client.post("/v1/experiments", SHOP | {"arms": ["A", "B"], "values": PRICES})
    assert made.status_code == 201
    assert made.json()["settings"]["values"] == PRICES
    one = client.post(f"{BASE}/assignments", {"unit": "u1"}).json()
    assert one["value"] == PRICES[one["arm"]]
    many = client.post(f"{BASE}/assignments:batch", {"units": ["u1", "u2", "u3"]}).json()
    assert all(each["value"] == PRICES[each["arm"]] for each in many["assignments"])


def test_derived_values_and_a_list(client: InProcess) -> None:
    arms = {"factorial": {"headline": ["short", "long"], "image": ["dog", "cat"]}}
    made = client.post("/v1/experiments", SHOP | {"arms": arms})
    assert made.json()["settings"]["values"] is None
    one = client.post(f"{BASE}/assignments", {"unit": "u1"}).json()
    headline, image = one["value"]["headline"], one["value"]["image"]
    assert one["arm"] == f"headline={headline}, image={image}"
    other = SHOP | {"name": "other", "arms": ["A", "B"], "values": ["#f00", "#0f0"]}
    assert client.post("/v1/experiments", other).json()["settings"]["values"]["B"] == "#0f0"


def test_bad_values_are_refused(client: InProcess) -> None:
    for values in ({"A": 1}, [1, 2, 3], {"A": 1, "B": 2, "C": 3}, {"A": 1, "B": "x" * 20_000}):
        refused = client.post("/v1/experiments", SHOP | {"arms": ["A", "B"], "values": values})
        assert (refused.status_code, refused.json()["field"]) == (422, "values"), values
    odd = client.post("/v1/experiments", SHOP | {"arms": ["A", "B"], "values": 3})
    assert odd.status_code == 422
