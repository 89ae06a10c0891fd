"""The service with very many variants: answers tell of few, and nothing walks over all of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from msgspec import convert

import steadyarm as sa
from steadyarm.arms.recipes import FactorialNames
from steadyarm.policies import POLICIES
from steadyarm.service import batching
from steadyarm.storages import open_storage
from steadyarm.wire.responses import CreatedExperiment, ExperimentAnswer, ExperimentList
from steadyarm.wire.results import Allocation
from tests.live.few import Few
from tests.service.clients import InProcess, in_process

BASE = "/v1/experiments/page"
SLOTS = {f"slot {i}": ["off", "on"] for i in range(16)}
PAGE: dict[str, Any] = {
    "name": "page",
    "arms": {"factorial": SLOTS},
    "policy": {"name": "Few", "most": 600},
    "budget": 4000,
    "seed": 1,
    "missing": "drop",
}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "Few", Few)


@pytest.fixture
def page(client: InProcess) -> InProcess:
    """The client; it has an experiment of 65,536 variants called page."""
    created = client.post("/v1/experiments", PAGE)
    assert created.status_code == 201, created.text
    convert(created.json(), CreatedExperiment)
    assert len(created.content) < 3_000
    return client


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which arms had their names made."""
    made: list[int] = []
    original = FactorialNames.name

    def counting(self: FactorialNames, k: int) -> str:
        made.append(k)
        return original(self, k)

    monkeypatch.setattr(FactorialNames, "name", counting)
    # On a busy machine the units would be looked up, and their variants named, a second time.
    monkeypatch.setattr(batching, "LATE", 60.0)
    return made


def play(client: InProcess, count: int, first: int = 0) -> list[dict[str, Any]]:
    units = [f"u{first + i}" for i in range(count)]
    found = client.post(f"{BASE}/assignments:batch", {"units": units}).json()["assignments"]
    rewards = [{"assignment": one["id"], "reward": i % 2} for i, one in enumerate(found[:-10])]
    client.post(f"{BASE}/rewards:batch", {"rewards": rewards})
    return list(found)


def test_a_request_makes_the_names_it_tells(page: InProcess, named: list[int]) -> None:
    page.post(f"{BASE}/assignments", {"unit": "first"})
    named.clear()
    for i in range(20):
        answer = page.post(f"{BASE}/assignments", {"unit": f"u{i}"}).json()
        page.post(f"{BASE}/rewards", {"assignment": answer["id"], "reward": 1})
    assert len(named) == 20
    play(page, 500, first=1000)
    assert len(named) == 520
    named.clear()
    page.get(BASE)
    page.get("/v1/experiments")
    page.get(f"{BASE}/allocation")
    assert len(named) <= 500 + 500 + 600


def test_counts_are_of_those_handed_out_most(page: InProcess) -> None:
    given = [one for part in range(4) for one in play(page, 500, 500 * part)]
    answer = page.get(BASE).json()
    convert(answer, ExperimentAnswer)
    names = {one["arm"] for one in given}
    assert len(names) > 500
    arms = sa.ArmSet.factorial(SLOTS)
    for key in ("assigned", "rewarded", "indices"):
        assert len(answer[key]) == 500
        assert answer[key].keys() <= names
    for name, index in answer["indices"].items():
        assert arms.names[index] == name
        assert answer["assigned"][name] == sum(one["arm"] == name for one in given)
    left = min(answer["assigned"].values())
    rest = names - answer["assigned"].keys()
    assert all(sum(one["arm"] == name for one in given) <= left for name in rest)
    totals = {"variants": 65536, "handed_out": len(names), "assigned": 2000, "rewarded": 1960}
    assert answer["totals"] == totals | {"excluded": 0}
    assert answer["settings"]["arms"] == {
        "factorial": [[name, levels] for name, levels in SLOTS.items()],
        "interactions": 2,
        "constant": True,
    }
    listed = page.get("/v1/experiments").json()
    convert(listed, ExperimentList)
    assert listed["experiments"][0]["arms"] == 65536


def test_the_allocation_tells_the_largest_shares(page: InProcess) -> None:
    play(page, 20)
    answer = page.get(f"{BASE}/allocation").json()
    convert(answer, Allocation)
    assert (len(answer["weights"]), answer["played"]) == (500, 600)
    shares = list(answer["weights"].values())
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(600 / (600 * 601 / 2))


def test_small_sets_are_told_of_in_full(shop: InProcess) -> None:
    answer = shop.get("/v1/experiments/shop").json()
    assert answer["indices"] is None
    none = dict.fromkeys(("handed_out", "assigned", "rewarded", "excluded"), 0)
    assert answer["totals"] == {"variants": 3} | none
    assert shop.get("/v1/experiments/shop/allocation").json()["played"] == 3


def test_shares_for_all_of_very_many_are_refused(client: InProcess) -> None:
    answer = client.post("/v1/experiments", PAGE | {"min_share": 0.001})
    assert answer.status_code == 422
    assert "name those that are to have it" in answer.json()["detail"]


def test_bundles_are_created_too(client: InProcess) -> None:
    items = [f"item {i}" for i in range(24)]
    bundles = PAGE | {"arms": {"bundles": items, "size": 4, "interactions": 2}}
    created = client.post("/v1/experiments", bundles)
    assert created.status_code == 201
    convert(created.json(), CreatedExperiment)
    told = {"bundles": items, "size": 4, "interactions": 2}
    assert created.json()["settings"]["arms"] == told
    assert created.json()["totals"]["variants"] == 10_626
    answer = client.post(f"{BASE}/assignments", {"unit": "u"}).json()
    assert answer["arm"].count(" + ") == 3


def test_a_large_table_is_not_repeated() -> None:
    X = np.random.default_rng(1).standard_normal((5000, 60))
    storage = open_storage("memory")
    sa.create_experiment(
        "page", sa.ArmSet.from_features(X), Few(), 100, storage, seed=1, missing="drop"
    )
    with in_process(storage) as client:
        answer = client.get(BASE)
        convert(answer.json(), ExperimentAnswer)
        assert answer.json()["settings"]["arms"]["count"] == 5000
        assert len(answer.content) < 3_000
        assert client.post(f"{BASE}/assignments", {"unit": "u"}).json()["arm"].startswith("arm ")


def test_two_thousand_variants_that_share_nothing_are_created_in_two_seconds(
    client: InProcess,
) -> None:
    many = {"name": "many", "arms": [f"variant {k}" for k in range(2000)], "budget": 100_000}
    began = time.process_time()  # not the clock: a busy machine is no defect
    created = client.post("/v1/experiments", many | {"seed": 1, "missing": "drop"})
    assert created.status_code == 201
    assert time.process_time() - began < 2.0
