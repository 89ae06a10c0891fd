"""G-optimal designs of many arms: the proof holds, and the small solver agrees."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import BundleRows, FactorialRows
from steadyarm.arms.rows import DenseRows
from steadyarm.designs import Design, Status, g_optimal
from steadyarm.designs.optimal import large_g
from steadyarm.designs.pooled_g import pooled_g
from steadyarm.designs.solvers import solve_g, whiten
from tests.designs.test_rows import factorial_arms

TOL = 1e-6

Floats = NDArray[np.float64]


def random_arms(kind: str, K: int, d: int, seed: int) -> Floats:
    rng = np.random.default_rng([11, seed])
    X = rng.normal(size=(K, d))
    if kind == "sphere":
        X /= np.linalg.norm(X, axis=1)[:, None]
    if kind == "simplex":
        X = rng.dirichlet(np.full(d, 0.5), size=K)
    if kind == "heavy-tailed":
        X = rng.standard_t(2, size=(K, d))
    if kind == "binary":
        X = rng.integers(0, 2, size=(K, d)).astype(np.float64)
    if kind == "repeated directions":
        X = X[rng.integers(0, K // 10, size=K)] * rng.choice([1.0, 1.0 + 1e-9, 0.5], (K, 1))
    if kind == "columns of many scales":
        X *= 10.0 ** rng.integers(-6, 6, size=d)
    if kind == "one rare direction":
        X[:, -1] = 0.0
        X[K // 2, -1] = 1e-3
    if kind == "dependent columns":
        X = X @ rng.normal(size=(d, d + 5))
    return X


KINDS = (
    "gaussian",
    "sphere",
    "simplex",
    "heavy-tailed",
    "binary",
    "repeated directions",
    "columns of many scales",
    "one rare direction",
    "dependent columns",
)


def check_proof(X: Floats, answer: Design, tol: float) -> None:
    """Everything the answer says, from its definition, by other means."""
    rank = np.linalg.matrix_rank(X / np.maximum(np.abs(X).max(axis=0), 1e-300))
    assert answer.status is Status.OPTIMAL
    assert answer.lower_bound == rank
    assert answer.shares.min() > 0.0
    assert answer.shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(answer.support) > 0).all()
    left = np.linalg.svd(X / np.maximum(np.abs(X).max(axis=0), 1e-300), full_matrices=False)[0]
    left = left[:, :rank]
    chosen = left[answer.support]
    P = np.linalg.inv((chosen.T * answer.shares) @ chosen)
    value = np.einsum("ij,ij->i", left @ P, left).max()
    assert answer.value == pytest.approx(value, rel=1e-7)
    assert -1e-9 <= answer.gap <= tol


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("K", "d"), [(300, 4), (3000, 12)])
def test_small_solver_agrees(kind: str, K: int, d: int) -> None:
    X = random_arms(kind, K, d, seed=K)
    answer = pooled_g(DenseRows(X), TOL)
    check_proof(X, answer, TOL)
    scaled = X / np.maximum(np.abs(X).max(axis=0), 1e-300)
    left, singular, _ = np.linalg.svd(scaled, full_matrices=False)
    small = solve_g(whiten(left[:, singular > 1e-9 * singular[0]])[0], TOL)
    assert small.lower_bound == answer.lower_bound
    assert answer.value <= small.value * (1 + TOL)
    assert small.value <= answer.value * (1 + TOL)


@dataclass
class Part:
    """Some rows of others, and how many at most were asked for at once."""

    rows: FactorialRows | BundleRows
    kept: NDArray[np.int64]
    most: int = field(default=0)

    @property
    def shape(self) -> tuple[int, int]:
        return self.kept.size, self.rows.shape[1]

    def block(self, start: int, stop: int) -> Floats:
        return self.take(np.arange(start, stop))

    def take(self, indices: NDArray[np.int64]) -> Floats:
        self.most = max(self.most, indices.size)
        return self.rows.take(self.kept[indices])


@pytest.mark.parametrize("rows", [FactorialRows([2] * 10), FactorialRows([3, 4, 3, 2, 3], 2)])
def test_implicit_factorial_sets_agree_with_explicit_ones(rows: FactorialRows) -> None:
    arms = factorial_arms(rows.levels, rows.interactions, rows.constant)
    whole = large_g(rows, TOL)
    assert whole.gap == pytest.approx(0.0, abs=1e-12)  # equal weights, by symmetry
    kept = np.flatnonzero(np.random.default_rng(3).random(arms.size) < 0.7)
    implicit = pooled_g(Part(rows, kept), TOL)
    explicit = pooled_g(DenseRows(arms.features[kept]), TOL)
    check_proof(arms.features[kept], implicit, TOL)
    np.testing.assert_array_equal(implicit.support, explicit.support)
    np.testing.assert_allclose(implicit.shares, explicit.shares, atol=1e-12)


def test_implicit_rows_are_never_made_all_at_once() -> None:
    part = Part(FactorialRows([2] * 15), np.arange(3, 2**15))
    answer = pooled_g(part, 0.02)
    assert answer.gap <= 0.02
    assert part.most < part.kept.size / 4


def test_g_optimal_takes_many_arms() -> None:
    X = random_arms("gaussian", 15_000, 20, seed=13)
    arms = ArmSet.from_features(X)
    design = g_optimal(arms)
    assert design.status is Status.OPTIMAL
    assert design.gap <= 1e-6
    among = np.arange(1, 15_000)
    of_some = g_optimal(arms, among=among)
    assert of_some.gap <= 1e-6
    assert of_some.weights[0] == 0.0
    assert of_some.weights.sum() == pytest.approx(1.0, abs=1e-12)
