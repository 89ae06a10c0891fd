"""Covariates of units through a client: one, many, from leased positions, and in verdicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.client import Client, RemoteExperiment


@pytest.fixture
def remote(client: Client, name: str) -> RemoteExperiment:
    """A test of a service that knows what its visitors spent before."""
    names = ["spend", "expected"]
    return client.create(name, ["A", "B"], budget=200, missing="drop", seed=1, covariates=names)


def values(test: sa.Experiment) -> dict[str, dict[str, float]]:
    """What is stored of each unit."""
    rows = test.storage.log(test.key)
    return {
        row.unit: {e.metric: e.value for e in row.events if e.metric != "known?"} for row in rows
    }


def test_covariates_of_one_and_of_many(
    remote: RemoteExperiment, stored: Callable[[str], sa.Experiment]
) -> None:
    assert remote.covariates == ("spend", "expected")
    remote.ask("u1", covariates={"spend": 41.0}, expected=3.2)
    with pytest.raises(sa.InvalidInputError, match="no covariate"):
        remote.ask("u2", covariates={"color": 1.0})
    answers = remote.ask_many(["u3", "u4", "u5"], None, [{"spend": 7.0}, {"color": 1.0}, None])
    assert isinstance(answers[1], sa.InvalidInputError)
    with pytest.raises(sa.InvalidInputError, match="give as many"):
        remote.ask_many(["u6"], None, [])
    remote.ask_many(["u7", "u8"], covariates=[{"spend": 1.0}, None], expected=[2.0, 3.0])
    with pytest.raises(sa.InvalidInputError, match="give as many"):
        remote.ask_many(["u9"], expected=[])
    found = values(stored(remote.name))
    assert found == {
        "u1": {"spend": 41.0, "expected": 3.2},
        "u3": {"spend": 7.0},
        "u5": {},
        "u7": {"spend": 1.0, "expected": 2.0},
        "u8": {"expected": 3.0},
    }


def test_verdicts_are_those_of_the_experiment(
    remote: RemoteExperiment, stored: Callable[[str], sa.Experiment]
) -> None:
    rng = np.random.default_rng(2)
    for start in range(0, 200, 50):
        spend = rng.normal(40.0, 10.0, 50).tolist()
        units = [f"u{start + i}" for i in range(50)]
        answers = remote.ask_many(units, covariates=[{"spend": each} for each in spend])
        remote.tell_many(
            [
                (one, 0.1 * z + rng.normal() / 4)
                for one, z in zip(answers, spend, strict=True)
                if not isinstance(one, sa.SteadyArmError)
            ]
        )
    found, same = remote.recommend(), stored(remote.name).recommend()
    assert found.raw is not None
    assert same.raw is not None
    assert np.array_equal(found.raw, same.raw)
    assert found.variance_kept == same.variance_kept is not None
