"""Descriptions as TOML: any text survives, and the command line makes the same experiment."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.environments.families import arms_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import create_from_description, description_of
from steadyarm.live.settings import Settings
from steadyarm.policies import POLICIES
from steadyarm.wording import toml_of

SCALARS = st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


@given(st.text(), st.dictionaries(st.text().filter(lambda key: key != "name"), VALUES))
def test_whatever_is_written_is_read_again(name: str, description: dict[str, Any]) -> None:
    assert tomllib.loads(toml_of({"name": name, **description})) == {"name": name} | description


def test_what_toml_cannot_say_is_refused_and_what_is_usual_left_out() -> None:
    assert toml_of({"name": "x", "seed": None}) == 'name = "x"\n'
    with pytest.raises(InvalidInputError, match="None cannot be written as TOML"):
        toml_of({"control": {"A": None}})


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_described(name: str) -> None:
    arms = sa.ArmSet.factorial({"head <b>": ["a", "b"], "image": ["1", "2", "3"]})
    settings = Settings(arms, POLICIES[name](), 100, seed=1, missing="drop")
    description = description_of(settings)
    assert create_from_description("x", description, "memory").settings.policy == settings.policy


LARGE = {
    "factorial": sa.ArmSet.factorial({f"slot {i}": ["off", "on, not off"] for i in range(16)}),
    "alone": sa.ArmSet.factorial({f"{i}": list("abcdefgh") for i in range(5)}, 1, constant=False),
    "bundles": sa.ArmSet.bundles([f"item {i}" for i in range(24)], 4),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_sets_are_described_by_their_recipe(kind: str) -> None:
    arms = LARGE[kind]
    assert arms.large
    share = {arms.names[3]: 0.1}
    given: dict[str, Any] = {"control": share, "missing": "drop"}
    settings = Settings(arms, sa.Uniform(), 10, seed=1, **given)
    text = toml_of(description_of(settings))
    assert len(text) < 2_000
    read = tomllib.loads(text)
    assert read["control"] == share
    assert arms_from_settings(read["arms"]) == arms
