"""XY designs of many arms against the small solver, cvxpy and certificates computed anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.rows import BundleRows, DenseRows, FactorialRows
from steadyarm.designs import xy_optimal
from steadyarm.designs.design import Status
from steadyarm.designs.pooled_xy import LargeXYDesign, improve, solve_xy, warm_point
from steadyarm.errors import InvalidInputError
from tests.designs.armsets import random_arm_set, random_points
from tests.designs.reference import achieved_value, all_pairs, optimal_value

Floats = NDArray[np.float64]
TWO, THREE = ["1", "2"], ["1", "2", "3"]


def checked(X: Floats, tol: float, most_rounds: int = 60) -> LargeXYDesign:
    """The answer, after its weights and its worst pair were computed again from scratch."""
    answer = solve_xy(DenseRows(X), tol, most_rounds=most_rounds)
    weights = answer.design().weights
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (answer.weights > 0).all()
    assert (np.diff(answer.indices) > 0).all()
    worst = achieved_value(X, all_pairs(X), weights)
    pair = achieved_value(X, np.array([X[answer.pair[0]] - X[answer.pair[1]]]), weights)
    assert pair == pytest.approx(answer.pair_value, rel=1e-6)
    assert worst <= answer.value * (1 + 1e-6)
    if answer.exact:
        assert worst == pytest.approx(answer.value, rel=1e-6)
    return answer


@pytest.mark.parametrize("seed", range(0, 200, 7))
def test_agrees_with_the_small_solver(seed: int) -> None:
    kind, arms = random_arm_set(seed)
    tol = 1e-4
    answer, small = checked(arms.coordinates, tol), xy_optimal(arms)
    rounding = 1e-6 if kind != "near-collinear" else 1e-4
    assert answer.status is Status.OPTIMAL, (kind, arms)
    assert answer.gap <= tol
    assert answer.exact
    assert answer.lower_bound <= small.value * (1 + rounding)
    assert small.lower_bound <= answer.value * (1 + rounding)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["gaussian", "sphere", "constant", "grid"]),
    st.integers(20, 300),
    st.integers(2, 8),
    st.integers(0, 10_000),
)
def test_bounds_enclose_those_of_the_small_solver(kind: str, K: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_points(kind, K, d, rng)
    answer, small = checked(X, 1e-3), xy_optimal(ArmSet.from_features(X))
    assert answer.gap <= 1e-3
    assert answer.lower_bound <= small.value * (1 + 1e-6)
    assert small.lower_bound <= answer.value * (1 + 1e-6)


@pytest.mark.parametrize(("K", "d"), [(8, 3), (25, 3), (15, 5)])
def test_the_lower_bound_is_below_the_optimum_of_cvxpy(K: int, d: int) -> None:
    X = np.random.default_rng(K).normal(size=(K, d))
    optimum = optimal_value(X, all_pairs(X))
    for tol in (1e-1, 1e-2, 1e-4):
        answer = checked(X, tol)
        assert answer.lower_bound <= optimum * (1 + 1e-6)
        assert optimum <= answer.value * (1 + 1e-6)
        assert answer.value <= optimum * (1 + tol + 1e-6)


def test_a_rough_answer_still_has_a_proof() -> None:
    X = np.random.default_rng(0).normal(size=(1000, 12))
    small = solve_xy(DenseRows(X), 1e-4)
    answer = checked(X, 1e-4, most_rounds=1)
    assert answer.status is Status.STEP_LIMIT
    assert answer.gap > 0.01
    assert answer.lower_bound <= small.value
    assert small.lower_bound <= answer.value


def test_without_effort_the_value_is_an_upper_bound() -> None:
    X = np.random.default_rng(1).normal(size=(2500, 10))
    X /= np.linalg.norm(X, axis=1)[:, None]
    proven = solve_xy(DenseRows(X), 1e-2)
    answer = solve_xy(DenseRows(X), 1e-2, effort=0.0)
    assert proven.exact
    assert not answer.exact
    assert answer.status is Status.STEP_LIMIT
    assert answer.pair_value < answer.value
    assert answer.pair_gap <= 1e-2 < answer.gap
    assert answer.lower_bound <= proven.value
    assert proven.lower_bound <= answer.value


@pytest.mark.parametrize(
    ("rows", "arms"),
    [
        (
            FactorialRows([2, 3, 2], interactions=2),
            ArmSet.factorial({"a": TWO, "b": THREE, "c": TWO}, interactions=2),
        ),
        (
            FactorialRows([3, 2, 2], interactions=1, constant=False),
            ArmSet.factorial({"a": THREE, "b": TWO, "c": TWO}, 1, constant=False),
        ),
        (BundleRows(6, 3, 2), ArmSet.bundles(list("abcdef"), 3, 2)),
        (BundleRows(7, 2, 1), ArmSet.bundles(list("abcdefg"), 2, 1)),
    ],
)
def test_equal_weights_are_optimal_where_all_arms_are_alike(
    rows: FactorialRows | BundleRows, arms: ArmSet
) -> None:
    answer, small = solve_xy(rows), xy_optimal(arms)
    assert answer.exact
    assert answer.gap == 0
    assert answer.value == pytest.approx(small.value, rel=2e-6)
    X = arms.coordinates
    worst = achieved_value(X, all_pairs(X), answer.design().weights)
    assert worst == pytest.approx(answer.value, rel=1e-9)


def test_the_general_way_finds_the_same_for_a_factorial_set() -> None:
    rows = FactorialRows([2] * 7, interactions=2)
    general = solve_xy(DenseRows(rows.block(0, 128)), 1e-3)
    assert general.exact
    assert general.lower_bound <= solve_xy(rows).value <= general.value * (1 + 1e-9)


def test_few_of_many_arms_carry_the_design() -> None:
    K, d = 20_000, 10
    answer = solve_xy(DenseRows(np.random.default_rng(2).normal(size=(K, d))))
    assert answer.gap <= 1e-3
    assert answer.exact
    assert answer.indices.size <= 2 * d * (d + 1)
    assert answer.passes < 0.2 * K / (2 * d)  # of the passes that all pairs take once


def test_dependent_columns_do_no_harm() -> None:
    X = np.random.default_rng(3).normal(size=(200, 4))
    wide = np.hstack([X, X @ np.ones((4, 2))])
    answer, plain = solve_xy(DenseRows(wide)), solve_xy(DenseRows(X))
    assert answer.gap <= 1e-3
    assert answer.lower_bound <= plain.value
    assert plain.lower_bound <= answer.value


def test_equal_rows_leave_nothing_to_compare() -> None:
    answer = solve_xy(DenseRows(np.ones((5, 2))))
    assert answer.value == answer.gap == 0.0
    assert answer.design().weights.sum() == 1.0


def test_what_cannot_be_is_refused() -> None:
    rows = DenseRows(np.eye(3))
    with pytest.raises(InvalidInputError, match="tol"):
        solve_xy(rows, tol=-1.0)
    with pytest.raises(InvalidInputError, match="most_rounds"):
        solve_xy(rows, most_rounds=0)


def test_the_steps_reach_a_close_gap_from_a_cold_start() -> None:
    X = np.random.default_rng(4).normal(size=(40, 5))
    Z = all_pairs(X)
    start = warm_point(X, Z, np.full(40, 1 / 40), np.full(len(Z), np.nan), 1.0, 1.0)
    solved = improve(X, Z, start, 1e-7, 60)
    assert solved.value <= solved.lower_bound * (1 + 1e-7)
    assert achieved_value(X, Z, solved.weights) == pytest.approx(solved.value, rel=1e-9)
    largest = np.square(X @ solved.proof).sum(axis=1).max()
    assert solved.strength / largest == pytest.approx(solved.lower_bound, rel=1e-9)
