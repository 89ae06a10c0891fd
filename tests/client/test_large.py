"""The client with very many variants: it knows their numbers without a list of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins
from msgspec.json import decode, encode

import steadyarm as sa
from steadyarm.client import Client
from steadyarm.live.lifecycle import settings_from_description
from steadyarm.wire.responses import (
    AssignmentAnswer,
    ExperimentAnswer,
    Lease,
    Leases,
    SettingsAnswer,
)
from tests.client.servers import Scripted
from tests.live.few import LARGE, Few, reward_of
from tests.live.worlds import create


class Bridge:
    """What the service does with some requests, on an experiment with a policy of our own."""

    def __init__(self, live: sa.Experiment) -> None:
        self.live, self.asked = live, list[tuple[str, Any]]()

    def __call__(self, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        self.asked.append((path, body))
        live = self.live
        if path.endswith("/assignments"):
            found = live.ask(body["unit"])
            return 201, {}, to_builtins(AssignmentAnswer.of(found))
        if path.endswith("/leases"):
            leases = live.lease(body["positions"], body["seconds"])
            return 201, {}, to_builtins(Leases([Lease.of(lease) for lease in leases]))
        return 200, {}, to_builtins(ExperimentAnswer.of(live))


@pytest.fixture
def live() -> sa.Experiment:
    return create(name="page", arms=LARGE, policy=Few(most=800), budget=8000)


@pytest.fixture
def bridge(live: sa.Experiment) -> Iterator[tuple[Bridge, Client]]:
    bridge = Bridge(live)
    with Scripted(bridge) as server, Client(server.url) as client:
        yield bridge, client


def test_assignments_have_their_numbers(bridge: tuple[Bridge, Client]) -> None:
    page = bridge[1].experiment("page")
    for i in range(5):
        answer = page.ask(f"u{i}")
        assert LARGE.names[answer.arm] == answer.name
    assert sum(path.endswith("/page") for path, _ in bridge[0].asked) == 1  # learned once


def test_status_has_totals_of_all(live: sa.Experiment, bridge: tuple[Bridge, Client]) -> None:
    for i in range(1500):
        answer = live.ask(f"u{i}")
        if i % 3:
            live.tell(answer, reward_of(answer.arm, i))
    here, there = live.status(), bridge[1].experiment("page").status()
    assert here.arms is not None
    assert there.arms is not None
    assert len(here.arms) > len(there.arms) == 500
    assert (
        (there.total_assigned, there.total_rewarded)
        == (here.total_assigned, here.total_rewarded)
        == (1500, 1000)
    )
    assert there.others[0] == 1500 - sum(there.assigned) > 0
    counts = dict(zip(here.arms, zip(here.assigned, here.rewarded, strict=True), strict=True))
    for arm, *numbers in zip(there.arms, there.assigned, there.rewarded, strict=True):
        assert counts[arm] == tuple(numbers)


def test_status_of_few_variants_is_as_ever() -> None:
    small = create()
    small.tell(small.ask("u"), 1.0)
    sent = encode(ExperimentAnswer.of(small))
    assert decode(sent, type=ExperimentAnswer).to_status() == small.status()


def test_large_sets_are_sent_as_their_recipe(bridge: tuple[Bridge, Client]) -> None:
    bundles = sa.ArmSet.bundles([f"i{k}" for k in range(24)], 4)
    for arms in (LARGE, bundles, sa.ArmSet.one_hot(["A", "B"])):
        bridge[1].create("page", arms, budget=10, missing="drop")
        _, body = bridge[0].asked[-1]
        assert len(json.dumps(body)) < 1_000
        described = {"arms": body["arms"], "budget": 10, "missing": "drop"}
        assert settings_from_description(described).arms == arms


def test_leases_are_read_and_played(live: sa.Experiment) -> None:
    (lease,) = live.lease(50)
    away = decode(encode(Lease.of(lease)), type=Lease).to_lease()
    found = [away.assignment(p, f"u{p}", 0) for p in range(away.start, away.stop)]
    assert [LARGE.names[one.arm] for one in found] == [one.name for one in found]
    assert away.segment.arms is not None
    assert lease.segment.arms is not None
    assert np.array_equal(away.segment.arms, lease.segment.arms)


def test_the_default_arm_is_looked_for_among_all(
    live: sa.Experiment, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = Bridge(live)
    with Scripted(bridge) as server:
        for arm, warned in ((LARGE.names[5000], False), ("s0=up", True)):
            with Client(server.url, default_arm=arm) as client:
                client.experiment("page").ask("u")
            assert ("is no variant of the experiment" in caplog.text) == warned


def test_names_that_only_the_service_has() -> None:
    X = np.random.default_rng(1).standard_normal((5000, 60))
    table = create(arms=sa.ArmSet.from_features(X), policy=Few(), budget=100)
    assert SettingsAnswer.of(table.settings).names == ()
    assert SettingsAnswer.of(create().settings).names == ("A", "B", "C")
