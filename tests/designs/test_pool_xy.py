"""XY designs of subsets by steps on a pool: proofs over all arms, arms that come in, structure."""

import numpy as np
import pytest
from numpy.typing import NDArray

from steadyarm.arms.rows import BundleRows, DenseRows, FactorialRows, Rows
from steadyarm.designs import farthest, multiplicative_weights
from steadyarm.designs.multiplicative_weights import PoolField
from steadyarm.designs.optimal import solve_pairs, whiten
from steadyarm.designs.passes import forms, leverages, quick_forms
from steadyarm.designs.pooled_xy import LargeXYDesign, solve_xy
from tests.designs.reference import achieved_value, all_pairs

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

SETS: list[Rows] = [
    BundleRows(14, 4, interactions=1),
    FactorialRows([3] * 6, interactions=1),
    DenseRows(np.random.default_rng(0).normal(size=(1500, 6))),
]


@pytest.fixture
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most arms are not in play at first."""
    monkeypatch.setattr(multiplicative_weights, "LEAST_FIRST", 20)
    monkeypatch.setattr(multiplicative_weights, "LEAST_MORE", 30)
    monkeypatch.setattr(multiplicative_weights, "MOST_ARMS", 200)


def in_front(rows: Rows, size: int, seed: int) -> Indices:
    K, columns = rows.shape
    means = rows.block(0, K) @ np.random.default_rng(seed).normal(size=columns)
    return np.sort(np.argsort(-means, kind="stable")[:size]).astype(np.int64)


def check(rows: Rows, among: Indices, answer: LargeXYDesign) -> None:
    """The value and the lower bound against all pairs and the solver for small sets."""
    X = rows.block(0, rows.shape[0])
    weights = answer.design().weights
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(answer.indices) > 0).all()
    worst = achieved_value(X, all_pairs(X[among]), weights)
    assert worst <= answer.value * (1 + 1e-6)
    if answer.exact:
        assert worst == pytest.approx(answer.value, rel=1e-6)
    small = solve_pairs(whiten(X)[0], among, 1e-6)
    assert answer.lower_bound <= small.value * (1 + 1e-6)
    assert small.lower_bound <= answer.value * (1 + 1e-6)


@pytest.mark.parametrize("rows", SETS, ids=["bundles", "three levels", "dense"])
@pytest.mark.parametrize("size", [2, 15, 120])
def test_the_bound_holds_over_arms_that_are_not_in_play(
    small_pools: None, rows: Rows, size: int
) -> None:
    among = in_front(rows, size, seed=size)
    answer = multiplicative_weights.some_of_rows(rows, among, 0.2, None, None, 60)
    check(rows, among, answer)
    assert answer.gap <= 0.2
    assert answer.indices.size <= 400 < rows.shape[0]


@pytest.mark.parametrize("rounds", [1, 3])
def test_stopped_early_the_answer_is_proven_all_the_same(small_pools: None, rounds: int) -> None:
    rows, among = SETS[0], in_front(SETS[0], 60, seed=1)
    answer = multiplicative_weights.some_of_rows(rows, among, 0.03, None, None, rounds)
    check(rows, among, answer)
    assert answer.gap > 0.03


def test_a_start_that_does_not_span_is_completed() -> None:
    rows = SETS[2]
    among = in_front(rows, 30, seed=2)
    answer = solve_xy(rows, 0.2, among=among, start=([3, 4], [0.5, 0.5]))
    check(rows, among, answer)
    assert answer.gap <= 0.2


def test_columns_may_depend_and_arms_compared_may_be_the_same() -> None:
    X = np.random.default_rng(3).normal(size=(300, 4))
    rows = DenseRows(np.vstack([X, X[:50]]) @ np.random.default_rng(4).normal(size=(4, 7)))
    among = np.r_[0:10, 300:310]
    answer = solve_xy(rows, 0.2, among=among)
    check(DenseRows(np.vstack([X, X[:50]])), among, answer)
    assert answer.gap <= 0.2
    assert solve_xy(rows, 0.2, among=[5, 305]).value == 0.0


def test_without_effort_the_value_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(5).normal(size=(600, 12))
    X /= np.linalg.norm(X, axis=1)[:, None]
    monkeypatch.setattr(farthest, "BLOCK", 50)
    answer = solve_xy(DenseRows(X), 0.2, among=np.arange(200), effort=0.0)
    check(DenseRows(X), np.arange(200), answer)
    assert not answer.exact
    assert answer.pair_gap <= 0.2 < answer.gap


def test_arms_that_help_more_come_in() -> None:
    X = np.random.default_rng(6).normal(size=(500, 3))
    field = PoolField(DenseRows(X), np.eye(3), np.arange(5), np.arange(10))
    M = np.diag([1.0, 2.0, 0.0])
    truth = np.einsum("ij,jk,ik->i", X, M, X)
    assert truth.max() <= field.largest(M) <= truth.max() * (1 + 1e-6)
    assert field.missed[0] == truth.argmax()
    kept = np.arange(10) < 4
    assert field.come_in(8, kept, seed=0) == 8
    assert field.arms.size == np.unique(field.arms).size == 12
    assert truth.argmax() in field.arms
    np.testing.assert_allclose(field.forms(M), truth[field.arms], rtol=1e-5, atol=1e-6)
    lam = np.random.default_rng(7).random(12)
    some = X[field.arms]
    np.testing.assert_allclose(field.moment(lam), (some.T * lam) @ some, rtol=1e-12)


@pytest.mark.parametrize(("items", "size"), [(2, 1), (5, 1), (5, 4), (9, 3), (9, 6)])
def test_forms_of_bundles_are_those_of_their_rows(items: int, size: int) -> None:
    rows, rng = BundleRows(items, size, interactions=1), np.random.default_rng(items)
    X, M, v = rows.block(0, rows.shape[0]), rng.normal(size=(items, items)), rng.normal(size=items)
    truth = np.einsum("ij,jk,ik->i", X, M, X)
    np.testing.assert_allclose(forms(rows, M, v), truth + X @ v, atol=1e-13)
    quick = quick_forms(rows, M)
    assert quick is not None
    np.testing.assert_allclose(quick, truth, atol=1e-13)
    np.testing.assert_allclose(leverages(rows, M), leverages(DenseRows(X), M), atol=1e-12)


def test_other_sets_have_no_quick_forms() -> None:
    assert quick_forms(BundleRows(6, 3), np.eye(15)) is None
    assert quick_forms(DenseRows(np.eye(2)), np.eye(2)) is None
