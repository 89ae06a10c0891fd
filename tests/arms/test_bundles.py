"""Items are found in sets of bundles, and averages over bundles are those of all of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.live.effects import bundles_in, with_and_without

SHAPES = [
    (2, 1, 1), (4, 1, 3), (4, 3, 1), (6, 2, 1), (6, 2, 2), (5, 4, 2), (5, 3, 2), (6, 3, 3),
    (7, 3, 2), (8, 5, 4), (20, 5, 1), (16, 6, 2),
]  # fmt: skip  # a table reads better so
LARGE = [(20, 5, 1), (16, 6, 2)]


@pytest.mark.parametrize(("n", "size", "interactions"), SHAPES)
def test_averages_are_those_of_all_bundles(n: int, size: int, interactions: int) -> None:
    items = tuple(f"i{k}" for k in range(n))
    arms = sa.ArmSet.bundles(items, size, interactions)
    assert arms.large == ((n, size, interactions) in LARGE)
    recipe = bundles_in(arms)
    assert recipe is not None
    assert (recipe.items, recipe.size) == (items, size)
    included, left_out = with_and_without(arms, recipe)
    X = arms.coordinates
    for i in range(n):
        inside = np.array([i in bundle for bundle in combinations(range(n), size)])
        np.testing.assert_allclose(included[i], X[inside].mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(left_out[i], X[~inside].mean(axis=0), atol=1e-12)


@given(
    st.lists(st.text("ab+: ", min_size=1, max_size=5), min_size=2, max_size=6, unique=True),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_items_are_found_whatever_signs_they_have(
    items: list[str], size: int, interactions: int
) -> None:
    try:
        arms = sa.ArmSet.bundles(items, size, interactions)
    except sa.InvalidInputError:  # too few items, or names that are there twice
        return
    for same in (arms, sa.ArmSet.from_dict(arms.to_dict())):
        recipe = bundles_in(same)
        assert recipe is not None
        assert (recipe.items, recipe.size) == (tuple(items), size)


def test_other_sets_are_no_bundles() -> None:
    bundles = sa.ArmSet.bundles(["a", "b", "c", "d"], size=2)
    turned = bundles.features.copy()
    turned[:, -1] = turned[:, -2]
    others = [
        sa.ArmSet.one_hot(bundles.names),
        sa.ArmSet.factorial({"a": ["x", "y"], "b": ["x", "y"]}),
        sa.ArmSet.factorial({f"s{i}": ["off", "on"] for i in range(13)}),
        sa.ArmSet.from_features(bundles.features, feature_names=bundles.feature_names),
        sa.ArmSet.from_features(bundles.features, bundles.names),
        sa.ArmSet.from_features(turned, bundles.names, bundles.feature_names),
        bundles.subset([0, 1, 2, 4, 5]),
    ]
    assert [bundles_in(arms) for arms in others] == [None] * len(others)
