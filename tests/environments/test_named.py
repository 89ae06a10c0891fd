"""Worlds by name are those of the functions; bad settings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.environments import CovariateEnvironment, soare_oscillating
from steadyarm.environments.families import WORLDS, arms_from_settings, world_from_settings

ARMS = {"one_hot": ["A", "B"]}


def test_a_named_world_is_the_functions() -> None:
    named = world_from_settings({"name": "soare-oscillating", "scale": 2, "budget": 50})
    assert isinstance(named, sa.Environment)
    assert np.array_equal(named.means, soare_oscillating(scale=2, budget=50).means)


def test_a_named_world_may_have_a_covariate() -> None:
    known = world_from_settings({"name": "soare_stationary", "budget": 50, "correlation": 0.7})
    assert isinstance(known, CovariateEnvironment)
    assert (known.correlation, known.budget) == (0.7, 50)


def test_tables_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "means.csv"
    np.savetxt(path, [[0.1, 0.2], [0.3, 0.9]], delimiter=",")
    world = world_from_settings({"name": "table", "means": str(path), "noise": "bernoulli"}, ARMS)
    assert isinstance(world, sa.Environment)
    assert np.allclose(world.means, [[0.1, 0.2], [0.3, 0.9]])
    assert isinstance(world.noise, sa.BernoulliReward)


def test_every_arm_set_can_be_described() -> None:
    assert arms_from_settings({"features": [[1, 0], [0, 1]], "names": ["a", "b"]}).names[0] == "a"
    assert arms_from_settings({"bundles": list("abcd"), "size": 2}).size == 6


@pytest.mark.parametrize(
    ("settings", "arms", "message"),
    [
        ({"name": "mars"}, None, f"no world 'mars'; the worlds are {', '.join(WORLDS)}"),
        ({"name": "trend"}, None, "needs arms"),
        ({"name": "trend"}, ARMS, "missing a required argument: 'first'"),
        ({"name": "soare_stationary"}, ARMS, "has its own arms"),
        ({"name": "soare_stationary", "size": 3}, None, "there is no setting 'size'; it takes"),
        ({"name": "soare_stationary", "correlation": 2}, None, "a number from -1 to 1"),
        ({"name": "soare_stationary", "corelation": 0.5}, None, "did you mean correlation"),
        ({"name": "soare_stationary", "noise": "pink"}, None, "no noise 'pink'"),
        ({"name": "soare_stationary", "noise": {"kind": "bounded", "sd": 1}}, None, "'sd'"),
        ({"name": "table"}, ARMS, "either means or thetas"),
        ({"name": "table", "means": "none.csv"}, ARMS, "none.csv cannot be read|not found"),
        ({"name": "trend"}, {"one_hot": ["A", "B"], "bundles": []}, "exactly one of"),
    ],
)
def test_bad_settings_are_refused_with_a_reason(
    settings: dict[str, Any], arms: Any, message: str
) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        world_from_settings(settings, arms)
