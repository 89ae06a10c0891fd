"""Attributes of units through a client: one, many, from leased positions, and results by level."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.client import Client, RemoteExperiment

DEVICES = {"device": ["mobile", "desktop"]}


@pytest.fixture
def remote(client: Client, name: str) -> RemoteExperiment:
    """A test of a service, whose visitors have devices."""
    return client.create(name, ["A", "B"], budget=200, missing="drop", seed=1, attributes=DEVICES)


def counts(test: sa.Experiment) -> dict[str, int]:
    """How many visits have each level."""
    found: dict[str, int] = {}
    for part in test.storage.series(test.key):
        if "*" not in part.series:
            found[part.series] = found.get(part.series, 0) + sum(part.rewarded)
    return found


def test_attributes_of_one_and_of_many(
    remote: RemoteExperiment, stored: Callable[[str], sa.Experiment]
) -> None:
    assert remote.attributes == {"device": ("mobile", "desktop")}
    remote.ask("u1", {"device": "mobile"})
    with pytest.raises(sa.InvalidInputError, match="no attribute"):
        remote.ask("u2", {"color": "red"})
    answers = remote.ask_many(["u3", "u4", "u5"], [{"device": "tv"}, {"color": "red"}, None])
    assert isinstance(answers[1], sa.InvalidInputError)
    with pytest.raises(sa.InvalidInputError, match="give as many"):
        remote.ask_many(["u6"], [])
    assert counts(stored(remote.name)) == {"device=mobile": 1, "device=other": 1}


def test_results_by_level_are_those_of_the_experiment(
    remote: RemoteExperiment, stored: Callable[[str], sa.Experiment]
) -> None:
    units = [f"u{i}" for i in range(200)]
    answers = remote.ask_many(units, [{"device": ("mobile", "desktop")[i % 2]} for i in range(200)])
    remote.tell_many(
        [
            (one, i % 5 + 2.0 * (one.name == "B"))
            for i, one in enumerate(answers)
            if not isinstance(one, sa.SteadyArmError)
        ]
    )
    found, same = remote.recommend(by="device"), stored(remote.name).recommend(by="device")
    assert str(found) == str(same)
    assert found.interaction == same.interaction
    for one, other in zip(found.levels, same.levels, strict=True):
        assert one.obstacle == other.obstacle
        if one.estimates is not None:
            assert np.array_equal(one.lift_intervals, other.lift_intervals)  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidInputError, match="the attributes are device"):
        remote.recommend(by="color")
