"""Covariates of units over HTTP: declared, sent with assignments, and shown beside results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import steadyarm as sa
from tests.service.clients import SHOP, InProcess, in_process

BASE = "/v1/experiments/shop"


@pytest.fixture
def client() -> Iterator[InProcess]:
    """A service with a shop of a small budget, which knows what its visitors spent before."""
    with in_process() as client:
        names = ["spend", "expected"]
        made = client.post("/v1/experiments", SHOP | {"budget": 240, "covariates": names})
        assert made.status_code == 201
        yield client


def stored(client: InProcess) -> list[dict[str, float]]:
    """What is stored of each unit."""
    test = sa.load_experiment("shop", client.app.state.service.storage)
    rows = test.storage.log(test.key)
    return [{event.metric: event.value for event in row.events} for row in rows]


def test_settings_say_which_covariates_there_are(client: InProcess) -> None:
    settings = client.get(BASE).json()["settings"]
    assert settings["covariates"] == ["spend", "expected"]
    assert settings["metrics"] == []
    refused = client.post("/v1/experiments", SHOP | {"name": "o", "covariates": ["a", "a"]})
    assert (refused.status_code, refused.json()["field"]) == (422, "covariates")


def test_covariates_are_kept_with_assignments(client: InProcess) -> None:
    path = f"{BASE}/assignments"
    client.post(path, {"unit": "u1", "covariates": {"spend": 41.0}, "expected": 3.2})
    client.post(path, {"unit": "u2", "covariates": {"spend": None}})
    many = {
        "units": ["u3", "u4", "u5"],
        "covariates": [{"spend": 7}, {"color": 1.0}, None],
        "expected": [None, None, 2.5],
    }
    answers = client.post(f"{path}:batch", many).json()["assignments"]
    assert ["error" in answer for answer in answers] == [False, True, False]
    assert stored(client) == [
        {"spend": 41.0, "expected": 3.2, "known?": 1.0},
        {},
        {"spend": 7.0, "known?": 1.0},
        {"expected": 2.5, "known?": 1.0},
    ]


def test_bad_covariates_are_refused(client: InProcess) -> None:
    path = f"{BASE}/assignments"
    for body in (
        {"covariates": {"color": 1.0}},
        {"covariates": {"spend": "41"}},
        {"covariates": {"spend": 1e200}},
        {"covariates": {"expected": 1.0}, "expected": 1.0},
        {"expected": "much"},
    ):
        refused = client.post(path, {"unit": "u1"} | body)
        assert refused.status_code == 422, body
        assert refused.json()["field"] in ("covariates", "expected")
    short = client.post(f"{path}:batch", {"units": ["u4"], "covariates": []})
    assert short.status_code == 422
    assert "equally many" in short.json()["detail"]
    assert stored(client) == []


def test_results_have_raw_estimates_beside(client: InProcess) -> None:
    rng = np.random.default_rng(1)
    for start in range(0, 240, 40):
        units = [f"u{start + i}" for i in range(40)]
        spend = rng.normal(40.0, 10.0, 40).tolist()
        known = {"units": units, "covariates": [{"spend": each} for each in spend]}
        asked = client.post(f"{BASE}/assignments:batch", known).json()["assignments"]
        rewards = [
            {"unit": one["unit"], "reward": 0.1 * z + float(one["arm"] == "B") + rng.normal() / 4}
            for one, z in zip(asked, spend, strict=True)
        ]
        assert client.post(f"{BASE}/rewards:batch", {"rewards": rewards}).is_success
    found = client.get(f"{BASE}/recommendation").json()
    test = sa.load_experiment("shop", client.app.state.service.storage)
    verdict = test.recommend()
    assert verdict.raw is not None
    assert [arm["raw"] for arm in found["arms"]] == verdict.raw.tolist()
    assert [arm["estimate"] for arm in found["arms"]] == verdict.estimates.tolist()
    assert found["variance_kept"] == verdict.variance_kept
    assert found["variance_kept"] < 0.3
    assert test.replay().agrees
