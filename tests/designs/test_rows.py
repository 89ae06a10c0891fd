"""Rows made from their index are the rows of the explicit arm sets."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import BundleRows, FactorialRows
from steadyarm.arms.rows import DenseRows
from steadyarm.designs.pooled_g import leverages, span_of
from steadyarm.errors import InvalidInputError


def factorial_arms(levels: Sequence[int], interactions: int, constant: bool) -> ArmSet:
    factors = {f"f{f}": [f"level {v}" for v in range(count)] for f, count in enumerate(levels)}
    return ArmSet.factorial(factors, interactions=interactions, constant=constant)


def bundle_arms(rows: BundleRows) -> ArmSet:
    names = [f"item {i}" for i in range(rows.items)]
    return ArmSet.bundles(names, rows.size, interactions=rows.interactions)


@st.composite
def bundles(draw: st.DrawFn) -> BundleRows:
    items = draw(st.integers(2, 8))
    return BundleRows(items, draw(st.integers(1, items - 1)), draw(st.integers(1, 4)))


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4), st.integers(1, 5), st.booleans())
def test_factorial_rows_are_the_features(
    levels: list[int], interactions: int, constant: bool
) -> None:
    arms = factorial_arms(levels, interactions, constant)
    rows = FactorialRows(levels, interactions, constant)
    assert rows.shape == arms.features.shape
    np.testing.assert_array_equal(rows.block(0, arms.size), arms.features)


@given(bundles())
def test_bundle_rows_are_independent_features_that_span_the_others(rows: BundleRows) -> None:
    arms = bundle_arms(rows)
    assert rows.shape == (arms.size, arms.rank)
    block = rows.block(0, arms.size)
    np.testing.assert_array_equal(block, arms.features[:, rows.columns])
    assert np.linalg.matrix_rank(block) == arms.rank


@given(bundles(), st.data())
def test_any_rows_can_be_taken_in_any_order(rows: BundleRows, data: st.DataObject) -> None:
    K = rows.shape[0]
    every = rows.block(0, K)
    indices = np.array(data.draw(st.lists(st.integers(0, K - 1))), dtype=np.int64)
    np.testing.assert_array_equal(rows.take(indices), every[indices])
    start = data.draw(st.integers(0, K - 1))
    stop = data.draw(st.integers(start, K))
    np.testing.assert_array_equal(rows.block(start, stop), every[start:stop])


@pytest.mark.parametrize("shrink", [1.0, 1e-3, 1e-6, 1e-9])
def test_span_finds_small_directions_and_leaves_out_dependent_ones(shrink: float) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 6))
    X[:, 5] = X[:, 0] + shrink * X[:, 5]  # nearly dependent
    dependent = np.column_stack([X, X[:, 1] - 2 * X[:, 2], np.zeros(3000), 1e6 * X[:, 3]])
    to = span_of(DenseRows(dependent))
    assert to.shape == (9, 6)
    coordinates = dependent @ to
    # coordinates along a direction of relative size s carry rounding errors of eps / s
    rounding = 100 * np.finfo(float).eps / shrink
    np.testing.assert_allclose(coordinates.T @ coordinates / 3000, np.eye(6), atol=rounding)


def test_leverages_are_those_of_the_definition() -> None:
    X = np.random.default_rng(2).normal(size=(9000, 40))
    rows = DenseRows(X)
    expected = np.einsum("ij,ij->i", X @ np.linalg.inv(X.T @ X / 9000), X)
    to = span_of(rows)
    np.testing.assert_allclose(leverages(rows, to), expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FactorialRows([]), "no factors"),
        (lambda: FactorialRows([2, 1]), "number of levels is 1"),
        (lambda: FactorialRows([2] * 40), "1,099,511,627,776 combinations"),
        (lambda: FactorialRows([2, 2], interactions=0), "interactions is 0"),
        (lambda: BundleRows(5, 5), "does not have all"),
        (lambda: BundleRows(60, 30), "at most"),
        (lambda: DenseRows(np.zeros(3)), "one row per arm"),
        (lambda: DenseRows(np.zeros((2, 2), dtype=np.int64)), "floating-point"),
        (lambda: FactorialRows([2, 2]).take(np.array([4])), "0 to 3"),
        (lambda: span_of(DenseRows(np.full((3, 2), np.nan))), "not finite"),
        (lambda: span_of(DenseRows(np.zeros((3, 2)))), "all rows are zero"),
    ],
)
def test_errors(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError, match=message):
        make()
