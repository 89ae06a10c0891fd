"""Arm sets: features, ranks and spans as on paper, and what is refused."""

from __future__ import annotations

import json
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import steadyarm as sa


def test_two_level_factorial_gives_exactly_the_papers_features() -> None:
    arms = sa.ArmSet.factorial({f"s{j}": ["a", "b"] for j in range(4)}, interactions=2)
    w = np.array(list(product([-1, 1], repeat=4)))
    pairs = [w[:, i] * w[:, j] for i, j in combinations(range(4), 2)]
    assert np.array_equal(arms.features, np.column_stack([np.ones(16), w, *pairs]))
    assert arms.rank == 11


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4), st.integers(1, 4))
def test_factorial_spans_every_effect_up_to_the_order(levels: list[int], order: int) -> None:
    order = min(order, len(levels))
    factors = {f"f{j}": [str(i) for i in range(count)] for j, count in enumerate(levels)}
    arms = sa.ArmSet.factorial(factors, interactions=order)
    effects = 1 + sum(
        int(np.prod([count - 1 for count in subset]))
        for size in range(1, order + 1)
        for subset in combinations(levels, size)
    )
    assert arms.size == int(np.prod(levels))
    assert arms.rank == arms.dimension == len(arms.feature_names) == effects


def test_bundles_have_the_rank_of_their_pairs() -> None:
    arms = sa.ArmSet.bundles([f"i{j}" for j in range(7)], size=3, interactions=2)
    assert arms.size == comb(7, 3)
    assert arms.dimension == 1 + 7 + comb(7, 2)
    assert arms.rank == comb(7, 2)  # item and constant columns are sums of pair columns
    assert (arms.features[:, 1:8].sum(axis=1) == 3).all()


def test_features_of_full_rank_are_kept_as_they_are() -> None:
    X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    assert np.array_equal(sa.ArmSet.from_features(X).coordinates, X)


def test_arm_sets_are_immutable_and_copy_what_they_are_given() -> None:
    X = np.eye(3)
    arms = sa.ArmSet.from_features(X)
    X[0, 0] = 9.0
    assert arms.features[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        arms.features[0, 0] = 2.0
    with pytest.raises(AttributeError):
        arms.names = ("a",)  # type: ignore[misc]  # the point of the test


def test_equal_content_makes_equal_arm_sets() -> None:
    arms = sa.ArmSet.one_hot(["a", "b"])
    same = sa.ArmSet.from_dict(arms.to_dict())
    assert arms == same
    assert hash(arms) == hash(same)
    assert arms != sa.ArmSet.one_hot(["a", "c"])
    assert arms != sa.ArmSet.from_features([[1, 0], [0, 2]], names=["a", "b"])
    # The border between arm names and feature names counts.
    X = [[1.0], [2.0]]
    one = sa.ArmSet.from_features(X, ["a", "b"], ["c"])
    assert one != sa.ArmSet.from_features(X, ["b", "a"], ["c"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sa.ArmSet.from_features([[1.0, 2.0]]), "there is 1 arm"),
        (lambda: sa.ArmSet.from_features([1.0, 2.0]), r"1 axes \(shape \(2,\)\)"),
        (lambda: sa.ArmSet.from_features([[1.0], [2.0, 3.0]]), "not a table of numbers"),
        (lambda: sa.ArmSet.from_features([["x"], ["y"]]), "not a table of numbers"),
        (lambda: sa.ArmSet.from_features([[1.0], [np.nan]]), "row 1, column 0 is nan"),
        (lambda: sa.ArmSet.from_features([[1.0], [np.inf]]), "row 1, column 0 is inf"),
        (lambda: sa.ArmSet.from_features(np.zeros((2, 0))), "no features"),
        (lambda: sa.ArmSet.from_features(np.zeros((2, 2))), "all features are zero"),
        (lambda: sa.ArmSet.from_features([[1], [2], [1]]), r"arms 0 \('arm 0'\) and 2"),
        (lambda: sa.ArmSet.from_features([[0.0], [-0.0], [1.0]]), "arms 0 .* and 1 .*identical"),
        (lambda: sa.ArmSet.from_features([[1], [2]], names=["a"]), "1 arm names for 2 rows"),
        (lambda: sa.ArmSet.from_features([[1], [2]], names=["a", "a"]), "'a' is listed twice"),
        (lambda: sa.ArmSet.from_features([[1], [2]], names=["a", ""]), "one line and not empty"),
        (lambda: sa.ArmSet.one_hot(["a", "b\n"]), "in one line"),
        (lambda: sa.ArmSet.one_hot("AB"), "names is 'AB'; expected a list"),
        (lambda: sa.ArmSet.one_hot(["A"]), "there is 1 arm"),
        (lambda: sa.ArmSet.factorial({}), "no factors"),
        (lambda: sa.ArmSet.factorial({"a": ["x"]}), "factor 'a' has 1 level"),
        (lambda: sa.ArmSet.factorial({"a": "xy"}), "levels of factor 'a' is 'xy'"),
        (lambda: sa.ArmSet.factorial({"a": ["x", "x"]}), "'x' is listed twice"),
        (lambda: sa.ArmSet.factorial({"a": ["x", "y"]}, interactions=0), "interactions is 0"),
        (lambda: sa.ArmSet.factorial({"a": ["x", "y"]}, interactions=1.5), "interactions is 1.5"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.ArmSet.factorial(["a"]), "expected a mapping"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.ArmSet.one_hot(1), "names is 1"),
        (lambda: sa.ArmSet.bundles("wxyz", size=2), "items is 'wxyz'"),
        (lambda: sa.ArmSet.bundles(["a", "b", "c"], size=2.0), "size is 2.0"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.ArmSet.factorial({f"f{j}": ["0", "1"] for j in range(25)}), "33,554,432"),
        (lambda: sa.ArmSet.bundles(["a", "b"], size=2), "size is 2 for 2 items"),
        (lambda: sa.ArmSet.bundles([f"i{j}" for j in range(60)], size=6), "50,063,860 bundles"),
        (lambda: sa.ArmSet.one_hot(["A", "B"]).index("C"), "no arm 'C'; the arms are 'A', 'B'"),
    ],
)
def test_bad_arms_are_refused_with_a_reason(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(sa.InvalidInputError, match=message):
        build()


def test_features_of_very_different_scale_become_well_conditioned() -> None:
    years = np.column_stack([np.ones(10), np.arange(2000.0, 2010.0)])
    for X in (years, np.column_stack([years, 1e12 * years[:, 1] ** 2]), 1e-200 * years):
        arms = sa.ArmSet.from_features(X)
        assert arms.rank == np.linalg.matrix_rank(X / np.abs(X).max(axis=0))
        assert np.linalg.cond(arms.coordinates) < 1e3
        assert np.allclose(arms.coordinates @ arms.basis.T, X, rtol=1e-9)
        assert np.allclose(arms.features @ arms.dual, arms.coordinates, atol=1e-6)
        theta = np.arange(1.0, arms.rank + 1)
        assert np.allclose(X @ arms.parameters(theta), arms.coordinates @ theta, rtol=1e-6)


def test_a_huge_constant_beside_small_features_is_no_trouble() -> None:
    arms = sa.ArmSet.from_features([[1.7e18, 0, 1], [1.7e18, 1, 0], [1.7e18, 1, 1]])
    assert arms.rank == 3


def dependent(K: int) -> NDArray[np.float64]:
    """Features of which one repeats others and one is a thousand times as large."""
    X = np.random.default_rng(1).random((K, 4))
    return np.column_stack([X, 1e6 * X[:, 0] + 2e6, X.sum(axis=1)])


@pytest.mark.parametrize("K", [9, 50_000])  # stored coordinates, and rows times the dual
def test_coordinates_are_part_of_what_is_written(K: int) -> None:
    arms = sa.ArmSet.from_features(dependent(K))
    data = json.loads(json.dumps(arms.to_dict()))
    assert ("coordinates" in data["span"]) == (K == 9)
    data["span"]["basis"] = (-np.array(data["span"]["basis"])).tolist()
    data["span"]["dual"] = (-np.array(data["span"]["dual"])).tolist()
    if K == 9:
        data["span"]["coordinates"] = (-np.array(data["span"]["coordinates"])).tolist()
    turned = sa.ArmSet.from_dict(data)  # as if another version had derived them
    assert turned == arms
    assert np.array_equal(turned.coordinates, -arms.coordinates)
    assert turned.coordinates_fingerprint != arms.coordinates_fingerprint
    same = sa.ArmSet.from_dict(turned.to_dict())
    assert np.array_equal(same.coordinates, turned.coordinates)
    assert same.coordinates_fingerprint == turned.coordinates_fingerprint


def test_coordinates_that_were_not_written_are_derived() -> None:
    arms = sa.ArmSet.from_features(dependent(9))
    data = arms.to_dict()
    del data["span"]
    assert np.array_equal(sa.ArmSet.from_dict(data).coordinates, arms.coordinates)


def test_features_that_are_the_coordinates_stay_so() -> None:
    arms = sa.ArmSet.one_hot(["A", "B"])
    assert arms.to_dict()["span"] is None
    assert sa.ArmSet.from_dict(arms.to_dict()).plain


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("basis", [[1.0]], "expected \\(6, rank\\)"),
        ("coordinates", [[1.0]], "expected \\(9, 5\\)"),
        ("coordinates", [[1.0] * 5] * 9, "do not belong to their features"),
        ("dual", "text", "cannot be read"),
    ],
)
def test_damaged_coordinates_are_refused(part: str, value: object, message: str) -> None:
    data = sa.ArmSet.from_features(dependent(9)).to_dict()
    data["span"][part] = value
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.ArmSet.from_dict(data)


def test_a_session_goes_on_in_the_coordinates_it_began_with() -> None:
    """A design that was remembered for other coordinates of the same arms is not taken."""
    arms = sa.ArmSet.from_features(dependent(9))
    data = arms.to_dict()
    for name in ("basis", "dual", "coordinates"):
        data["span"][name] = (-np.array(data["span"][name])).tolist()
    session = sa.Session(sa.P1RAGE(), sa.ArmSet.from_dict(data), budget=60, seed=2)
    again = sa.Session.from_json(session.to_json())
    assert np.array_equal(again.arms.coordinates, -arms.coordinates)
