"""Values: variants as data, from settings to assignments."""

import json
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.arms.recipes import BundleNames, FactorialNames
from steadyarm.live.settings import Settings, values_of

FACTORS = {"headline": ["short", "long"], "image": ["dog", "cat, or none"]}
PRICES = {"A": {"price": 9, "tags": ["new"]}, "B": {"price": 12.5, "tags": []}}


def settings(arms: sa.ArmSet, **more: Any) -> Settings:
    return Settings(arms, sa.Steady(), 100, seed=1, missing="drop", **more)


def test_derived_values_say_what_names_say() -> None:
    factorial = settings(sa.ArmSet.factorial(FACTORS)).variant_values
    assert factorial[1] == {"headline": "short", "image": "cat, or none"}
    bundles = settings(sa.ArmSet.bundles(["a", "b", "c", "d"], 2)).variant_values
    assert list(bundles) == [[x, y] for x, y in ("ab", "ac", "ad", "bc", "bd", "cd")]
    assert list(settings(sa.ArmSet.one_hot(["A", "B"])).variant_values) == ["A", "B"]
    # neither all bundles of three items nor the combinations of factors
    for names in (["a + b", "a + c"], ["a=1, b=2", "a=1, b=3", "a=2, b=2"]):
        assert list(values_of(names)) == names


def test_values_of_large_sets_follow_from_the_index() -> None:
    factors = {f"f{i}": ("no", "yes") for i in range(16)}
    names = FactorialNames(factors)
    values = values_of(names)
    assert len(values) == len(names) == 2**16
    for k in (0, 1, 77, 2**16 - 1):
        assert ", ".join(f"{f}={level}" for f, level in values[k].items()) == names[k]
    assert values[3:5] == (values[3], values[4])
    assert values_of(BundleNames(("a", "b", "c"), 2))[2] == ["b", "c"]


@pytest.mark.parametrize("given", [PRICES, list(PRICES.values()), tuple(PRICES.values())])
def test_values_are_given_by_name_or_in_order(given: Any) -> None:
    found = settings(sa.ArmSet.one_hot(["A", "B"]), values=given)
    assert found.values == PRICES
    assert Settings.from_dict(json.loads(json.dumps(found.to_dict()))).values == PRICES
