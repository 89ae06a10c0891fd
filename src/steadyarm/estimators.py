"""Estimates of the average parameter from segment statistics: inverse propensity, least squares.

All work on (n, ...) batches, row by row in compiled loops, so that a trial's result does not
depend, not even in its last bit, on which other trials are in the batch.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from steadyarm.segments import Segment, SegmentStats

__all__ = ["arm_values", "ips", "ips_scatter", "least_squares", "standard_errors"]

Floats = NDArray[np.float64]

RANK_TOLERANCE = 1e-10  # eigenvalues of X'NX below this share of the largest are taken as zero


def ips(X: Floats, segment: Segment, stats: SegmentStats) -> Floats:
    """Sum over the segment's rounds of A(λ)⁻¹ x_t r_t, the terms of the paper's θ̂.

    Parameters
    ----------
    X : (K, r) coordinates of the arms

    Returns
    -------
    (n, r); the sum over all segments, divided by the rounds played, is unbiased for the
    time-averaged parameter whatever the sequence of parameters (Algorithm 1, last line).

    Examples
    --------
    >>> X = np.eye(2)
    >>> segment = Segment(np.array([[0.25, 0.75]]), np.array([4]))
    >>> stats = SegmentStats(np.array([[1, 3]]), np.array([[2.0, 3.0]]))
    >>> ips(X, segment, stats) / 4
    array([[2., 1.]])
    """
    out = np.empty((segment.trials, X.shape[1]))
    _ips_kernel(X, segment.weights, stats.sums, out)
    return out


def ips_scatter(
    X: Floats, segment: Segment, squares: Floats, scores: Floats, played: NDArray[np.int64]
) -> Floats:
    """Sum over the segment of (score - mean score)(score - mean score)', score = A(λ)⁻¹ x_t r_t.

    Its sum over segments estimates the covariance of the sum of the scores. If rewards drift
    within the segment it is too large on average, never too small, because the spread of the
    mean over time is counted in.

    Parameters
    ----------
    squares : (n, K) sums of squared rewards
    scores : (n, r) what `ips` returned for the segment
    played : (n,) rounds in the segment
    """
    n, r = scores.shape
    out = np.empty((n, r, r))
    _ips_scatter_kernel(X, segment.weights, squares, scores, played, out)
    return out


def least_squares(X: Floats, stats: SegmentStats) -> tuple[Floats, Floats | None]:
    """Least-squares parameter (n, r), and its covariance (n, r, r) if squares were recorded.

    Where the arms played do not span the space the shortest solution is taken. The covariance
    assumes that nothing drifted; with no more rounds than parameters it is unknown, nan.

    Examples
    --------
    >>> stats = SegmentStats(np.array([[2, 2]]), np.array([[1.0, 3.0]]))
    >>> least_squares(np.eye(2), stats)[0]
    array([[0.5, 1.5]])
    """
    counts, index = np.unique(stats.counts, axis=0, return_inverse=True)
    gram = np.empty((len(counts), X.shape[1], X.shape[1]))
    _gram_kernel(X, counts, gram)
    inverse: Floats = np.asarray(np.linalg.pinv(gram, rcond=RANK_TOLERANCE, hermitian=True))
    index = index.ravel()
    theta = np.empty((len(stats.counts), X.shape[1]))
    _solve_kernel(X, inverse, index, stats.sums, theta)
    if stats.squares is None:
        return theta, None
    ranks = np.linalg.matrix_rank(gram, rtol=RANK_TOLERANCE, hermitian=True)[index]
    freedom = stats.counts.sum(axis=1) - ranks
    fitted = np.einsum("nr,nk,kr->n", theta, stats.sums, X)
    residual = np.maximum(stats.squares.sum(axis=1) - fitted, 0.0)
    variance = np.where(freedom > 0, residual / np.maximum(freedom, 1), np.nan)
    return theta, variance[:, None, None] * inverse[index]


def arm_values(X: Floats, theta: Floats) -> Floats:
    """(n, K) values x'θ of every arm for every trial's parameter (n, r)."""
    out = np.empty((len(theta), len(X)))
    _values_kernel(X, theta, out)
    return out


def standard_errors(X: Floats, covariance: Floats) -> Floats:
    """(n, K) standard errors of x'θ from the covariance (n, r, r) of θ."""
    out = np.empty((len(covariance), len(X)))
    _errors_kernel(X, covariance, out)
    return out


@njit(cache=True, nogil=True)
def _cholesky(A: Floats) -> None:
    """Lower Cholesky factor of the (r, r) matrix A, in place; the upper part is left as it was."""
    r = A.shape[0]
    for j in range(r):
        for p in range(j):
            A[j, j] -= A[j, p] * A[j, p]
        A[j, j] = np.sqrt(A[j, j])
        for i in range(j + 1, r):
            for p in range(j):
                A[i, j] -= A[i, p] * A[j, p]
            A[i, j] /= A[j, j]


@njit(cache=True, nogil=True)
def _cholesky_solve(L: Floats, b: Floats) -> None:
    """Solve L L' x = b in place of b."""
    r = L.shape[0]
    for i in range(r):
        for p in range(i):
            b[i] -= L[i, p] * b[p]
        b[i] /= L[i, i]
    for i in range(r - 1, -1, -1):
        for p in range(i + 1, r):
            b[i] -= L[p, i] * b[p]
        b[i] /= L[i, i]


@njit(cache=True, nogil=True)
def _weighted_gram(X: Floats, weights: Floats, A: Floats) -> None:
    """A = sum_k weights_k x_k x_k', (r, r), lower part and diagonal."""
    A[:] = 0.0
    for k in range(X.shape[0]):
        if weights[k] != 0.0:
            for i in range(X.shape[1]):
                scaled = weights[k] * X[k, i]
                if scaled != 0.0:
                    for j in range(i + 1):
                        A[i, j] += scaled * X[k, j]


@njit(cache=True, nogil=True)
def _combine(X: Floats, sums: Floats, v: Floats) -> None:
    """V = sum_k sums_k x_k."""
    v[:] = 0.0
    for k in range(X.shape[0]):
        if sums[k] != 0.0:
            for i in range(X.shape[1]):
                v[i] += sums[k] * X[k, i]


@njit(cache=True, nogil=True)
def _ips_kernel(X: Floats, weights: Floats, sums: Floats, out: Floats) -> None:
    A = np.empty((X.shape[1], X.shape[1]))
    for i in range(out.shape[0]):
        _weighted_gram(X, weights[i], A)
        _cholesky(A)
        _combine(X, sums[i], out[i])
        _cholesky_solve(A, out[i])


@njit(cache=True, nogil=True)
def _ips_scatter_kernel(
    X: Floats,
    weights: Floats,
    squares: Floats,
    scores: Floats,
    played: NDArray[np.int64],
    out: Floats,
) -> None:
    K, r = X.shape
    A = np.empty((r, r))
    solved = np.empty(r)
    for i in range(out.shape[0]):
        _weighted_gram(X, weights[i], A)
        _cholesky(A)
        out[i] = 0.0
        for k in range(K):
            if squares[i, k] != 0.0:
                solved[:] = X[k]
                _cholesky_solve(A, solved)
                for a in range(r):
                    for b in range(r):
                        out[i, a, b] += squares[i, k] * solved[a] * solved[b]
        if played[i] > 0:
            for a in range(r):
                for b in range(r):
                    out[i, a, b] -= scores[i, a] * scores[i, b] / played[i]


@njit(cache=True, nogil=True)
def _gram_kernel(X: Floats, counts: NDArray[np.int64], out: Floats) -> None:
    for i in range(out.shape[0]):
        _weighted_gram(X, counts[i].astype(np.float64), out[i])
        for a in range(X.shape[1]):
            for b in range(a):
                out[i, b, a] = out[i, a, b]


@njit(cache=True, nogil=True)
def _solve_kernel(
    X: Floats, inverse: Floats, index: NDArray[np.int64], sums: Floats, out: Floats
) -> None:
    v = np.empty(X.shape[1])
    for i in range(out.shape[0]):
        _combine(X, sums[i], v)
        for a in range(X.shape[1]):
            total = 0.0
            for b in range(X.shape[1]):
                total += inverse[index[i], a, b] * v[b]
            out[i, a] = total


@njit(cache=True, nogil=True)
def _values_kernel(X: Floats, theta: Floats, out: Floats) -> None:
    for i in range(out.shape[0]):
        for k in range(X.shape[0]):
            total = 0.0
            for a in range(X.shape[1]):
                total += X[k, a] * theta[i, a]
            out[i, k] = total


@njit(cache=True, nogil=True)
def _errors_kernel(X: Floats, covariance: Floats, out: Floats) -> None:
    r = X.shape[1]
    for i in range(out.shape[0]):
        for k in range(X.shape[0]):
            total = 0.0
            for a in range(r):
                for b in range(r):
                    if X[k, a] != 0.0 and X[k, b] != 0.0:
                        total += X[k, a] * covariance[i, a, b] * X[k, b]
            out[i, k] = np.sqrt(total) if not total < 0.0 else 0.0
