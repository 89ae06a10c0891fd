"""The span of many arms is that of few; twins are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.arms.rows import DenseRows, span_of, twin_in

Floats = NDArray[np.float64]


def tables(seed: int, K: int, d: int, rank: int, scale: float) -> Floats:
    """Mostly zeros, the last columns sums of the first `rank`, in scales that differ."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(K, rank)) * (rng.random((K, rank)) < 0.4)
    X[0, 0] = 1.0
    more = X @ rng.integers(-1, 2, size=(rank, d - rank))
    sizes = scale ** rng.integers(-1, 2, size=d)
    return np.hstack([X, more]) * sizes


@settings(max_examples=60)
@given(st.data())
def test_many_arms_have_the_span_that_few_have(data: st.DataObject) -> None:
    K, d = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 9))
    rank = data.draw(st.integers(1, d))
    scale = data.draw(st.sampled_from([1.0, 10.0, 1e4]))
    X = tables(data.draw(st.integers(0, 10**6)), K, d, rank, scale)
    few = span_of(DenseRows(X), stored=True)
    theta = np.random.default_rng(1).normal(size=d)
    for many in (few, span_of(DenseRows(X), stored=False)):
        assert many.rows.shape == few.rows.shape
        r = many.rows.shape[1]
        coordinates = many.rows.block(0, K)
        basis = np.eye(d) if many.basis is None else many.basis
        dual = np.eye(d) if many.dual is None else many.dual
        near = 1e-9 * np.abs(X).max(axis=0) + 1e-14
        assert (np.abs(coordinates @ basis.T - X) <= near).all()
        assert np.allclose(X @ dual, coordinates, atol=1e-9)
        assert np.allclose(dual.T @ basis, np.eye(r), atol=1e-9)
        assert np.allclose(coordinates @ (basis.T @ theta), X @ theta, atol=1e-9 * scale)
        taken = many.rows.take(np.array([K - 1, 0]))
        assert np.allclose(taken, coordinates[[K - 1, 0]], atol=1e-12)


@pytest.mark.parametrize("small", [1e-6, 1e-9])
def test_directions_that_drown_in_squares_are_found(small: float) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.random((2, 300)) < 0.3) * rng.integers(1, 4, size=(2, 300))
    X = np.column_stack([a, a + small * b]).astype(float)
    truth = np.linalg.svd(X, compute_uv=False)
    assert (truth[1] / truth[0]) ** 2 < 1e-10  # lost in products of columns
    for stored in (True, False):
        span = span_of(DenseRows(X), stored)
        assert span.rows.shape == (300, 2)
        assert span.basis is not None
        assert np.allclose(span.rows.block(0, 300) @ span.basis.T, X, rtol=1e-12)
        assert np.linalg.cond(span.rows.block(0, 300)) < 1.01


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 60))
def test_twins_are_found(seed: int, K: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(K, 4)).astype(float) * (rng.random((K, 4)) < 0.7)
    seen: dict[tuple[float, ...], int] = {}
    truth = None
    for k, row in enumerate(map(tuple, (X + 0.0).tolist())):
        if row in seen:
            truth = (seen[row], k)
            break
        seen[row] = k
    assert twin_in(DenseRows(X)) == truth


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("levels", [[7], [2, 2], [3, 4], [2, 3, 5], [11, 12], [30, 2]])
def test_factorial_sets_are_their_own_span(levels: list[int], constant: bool) -> None:
    factors = {f"f{i}": [str(k) for k in range(L)] for i, L in enumerate(levels)}
    arms = sa.ArmSet.factorial(factors, interactions=2, constant=constant)
    assert arms.plain
    assert span_of(DenseRows(arms.features)).basis is None
