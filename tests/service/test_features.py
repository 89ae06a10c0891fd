"""Every setting and every fact of a unit, from a request over the storage to the answers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from tests.service.clients import SHOP, InProcess

BASE = "/v1/experiments/shop"
SLOTS = {f"slot {i}": ["off", "on"] for i in range(16)}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"covariates": ["a", "a"]}, "covariates"),
        ({"attributes": {"device": ["mobile"]}}, "attributes"),
        ({"values": {"A": 1}}, "values"),
        ({"values": [1, 2, 3, 4]}, "values"),
        ({"values": ["x" * 20_000, "", ""]}, "values"),
        ({"values": 3}, "values"),
        ({"arms": {"factorial": SLOTS}, "min_share": 0.001}, "min_share"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    settings: dict[str, Any], field: str, client: InProcess
) -> None:
    refused = client.post("/v1/experiments", SHOP | settings)
    assert (refused.status_code, refused.json()["field"]) == (422, field)


@pytest.fixture
def known(client: InProcess) -> InProcess:
    """A shop that knows of its visitors their device and what they spent before."""
    more = {"covariates": ["spend", "expected"], "attributes": {"device": ["mobile", "desktop"]}}
    assert client.post("/v1/experiments", SHOP | {"budget": 240} | more).status_code == 201
    return client


@pytest.mark.parametrize(
    "facts",
    [
        {"covariates": {"color": 1.0}},
        {"covariates": {"spend": "41"}},
        {"covariates": {"spend": 1e200}},
        {"covariates": {"expected": 1.0}, "expected": 1.0},
        {"expected": "much"},
        {"attributes": {"color": "red"}},
        {"attributes": {"device": 3}},
    ],
)
def test_wrong_facts_of_a_unit_are_refused(facts: dict[str, Any], known: InProcess) -> None:
    refused = known.post(f"{BASE}/assignments", {"unit": "u1"} | facts)
    assert refused.status_code == 422
    assert refused.json()["field"] in facts
    name, value = next(iter(facts.items()))
    many = {"units": ["u1", "u2"], name: [value]}
    if name != "expected":
        assert "equally many" in known.post(f"{BASE}/assignments:batch", many).json()["detail"]
    assert known.get(BASE).json()["totals"]["assigned"] == 0


def test_facts_of_units_reach_results(known: InProcess) -> None:
    rng = np.random.default_rng(1)
    for start in range(0, 240, 40):
        units = [f"u{start + i}" for i in range(40)]
        spend = rng.normal(40.0, 10.0, 40).tolist()
        body = {
            "units": units,
            "covariates": [{"spend": each} for each in spend],
            "attributes": [{"device": ("mobile", "desktop")[i % 2]} for i in range(40)],
        }
        asked = known.post(f"{BASE}/assignments:batch", body).json()["assignments"]
        rewards = [
            {"unit": one["unit"], "reward": 0.1 * z + float(one["arm"] == "B") + rng.normal() / 4}
            for one, z in zip(asked, spend, strict=True)
        ]
        assert known.post(f"{BASE}/rewards:batch", {"rewards": rewards}).is_success
    found = known.get(f"{BASE}/recommendation").json()
    levels = known.get(f"{BASE}/breakdowns/device", params={"level": 0.9}).json()
    test = sa.load_experiment("shop", known.app.state.service.storage)
    verdict = test.recommend()
    assert verdict.raw is not None
    assert [arm["raw"] for arm in found["arms"]] == verdict.raw.tolist()
    assert [arm["estimate"] for arm in found["arms"]] == verdict.estimates.tolist()
    assert verdict.variance_kept is not None
    assert found["variance_kept"] == verdict.variance_kept < 0.3
    assert [level["visits"] for level in levels["levels"]] == [120, 120, 0]
    same = test.recommend(0.9, by="device").of("mobile")
    assert same.estimates is not None
    assert [arm["estimate"] for arm in levels["levels"][0]["arms"]] == same.estimates.tolist()
    assert known.get(f"{BASE}/breakdowns/color").status_code == 404
    assert test.replay().agrees


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
