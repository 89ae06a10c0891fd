"""Estimates of the average parameter from segment statistics: inverse propensity, least squares.

All work on (n, ...) batches, row by row in compiled loops, so that a trial's result does not
depend, not even in its last bit, on which other trials are in the batch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.designs.dense_kernels import cholesky, cholesky_solve, information
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import symmetric_eigen
from steadyarm.segments import Segment, SegmentStats

__all__ = [
    "arm_values",
    "fill_missing",
    "ips",
    "ips_squares",
    "is_one_hot",
    "least_squares",
    "least_squares_errors",
    "standard_errors",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RANK_TOLERANCE = 1e-10  # eigenvalues of X'NX below this share of the largest are taken as zero


def ips(X: Floats, segment: Segment, stats: SegmentStats) -> Floats:
    """Sum over the segment's rounds of the scores A(λ)⁻¹ x_t r_t, the terms of the paper's θ̂.

    If the segment has a reference m, scores are m + A(λ)⁻¹ x_t (r_t - x_t'm).

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
    m = segment.reference
    if m is None:
        return _weighed(X, segment, stats.sums)
    surprise = stats.sums - stats.counts * arm_values(X, m)
    return _weighed(X, segment, surprise) + segment.rounds[:, None] * m


def _weighed(X: Floats, segment: Segment, sums: Floats) -> Floats:
    """A(λ)⁻¹ times the sum over arms of x_k sums_k."""
    if is_one_hot(X) and (segment.weights > 0).all():
        return np.asarray(sums / segment.weights)
    out = np.empty((segment.trials, X.shape[1]))
    _check_span(_ips_kernel(X, segment.weights, sums, out))
    return out


def ips_squares(X: Floats, segment: Segment, stats: SegmentStats, squares: Floats) -> Floats:
    """Sum over the segment's rounds of s s', s its scores, from sums of squared rewards.

    With S the sum over all T rounds and θ̂ the mean score, (S - T θ̂ θ̂')/(T (T - 1)) estimates the
    covariance of θ̂. If the parameter drifts it is too large on average, never too small, because
    the spread of the parameter over time is counted in.
    """
    n, r = segment.trials, X.shape[1]
    out = np.empty((n, r, r))
    m = segment.reference
    if m is None:
        _check_span(_ips_squares_kernel(X, segment.weights, squares, out))
        return out
    v = arm_values(X, m)
    surprises = squares - 2 * v * stats.sums + stats.counts * v**2
    _check_span(_ips_squares_kernel(X, segment.weights, surprises, out))
    c = _weighed(X, segment, stats.sums - stats.counts * v)
    mixed = m[:, :, None] * c[:, None, :]
    level = segment.rounds[:, None, None] * m[:, :, None] * m[:, None, :]
    return np.asarray(out + mixed + mixed.swapaxes(1, 2) + level)


def fill_missing(
    X: Floats, segment: Segment, stats: SegmentStats, missing: Integers
) -> tuple[Segment, SegmentStats]:
    """The segment over all rounds handed out, missing rewards filled in arm by arm.

    A missing reward counts as the mean of the same arm's rewards in the segment, so that an arm
    which loses more of its rewards by chance is not taken for worse; the squares grow as the
    variance does. An arm without any reward counts as the reference says, or not at all.

    Parameters
    ----------
    missing : (n, K) rounds without a reward, beside the `stats.counts` with one

    Examples
    --------
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([4]))
    >>> stats = SegmentStats(np.array([[2, 1]]), np.array([[1.0, 1.0]]), np.array([[1.0, 1.0]]))
    >>> ips(np.eye(2), *fill_missing(np.eye(2), segment, stats, np.array([[0, 1]]))) / 4
    array([[0.5, 1. ]])
    """
    assert stats.squares is not None
    told, known = stats.counts, stats.counts > 0
    mean = stats.sums / np.maximum(told, 1)
    if segment.reference is not None:
        mean = np.where(known, mean, arm_values(X, segment.reference))
        known = np.ones_like(known)
    counts = np.where(known, told + missing, 0)
    scatter = np.maximum(stats.squares - told * mean**2, 0.0)
    growth = (counts / np.maximum(told, 1)) ** 2
    partial = np.asarray(missing.sum(axis=1) > 0)[:, None]
    return replace(segment, rounds=counts.sum(axis=1)), SegmentStats(
        counts,
        np.where(partial, counts * mean, stats.sums),
        np.where(partial, counts * mean**2 + growth * scatter, stats.squares),
    )


def least_squares(X: Floats, stats: SegmentStats) -> tuple[Floats, Floats | None]:
    """Least-squares parameter (n, r), and the noise variance (n,) if squares were recorded.

    Where the arms played do not span the space the shortest solution is taken. The variance
    assumes that nothing drifted; with no more rounds than parameters it is unknown, nan.

    Examples
    --------
    >>> stats = SegmentStats(np.array([[2, 2]]), np.array([[1.0, 3.0]]))
    >>> least_squares(np.eye(2), stats)[0]
    array([[0.5, 1.5]])
    """
    _, inverse, ranks, index = _inverse_grams(X, stats.counts)
    theta = np.empty((len(stats.counts), X.shape[1]))
    _solve_kernel(X, inverse, index, stats.sums, theta)
    if stats.squares is None:
        return theta, None
    freedom = stats.counts.sum(axis=1) - ranks[index]
    fitted = (arm_values(X, theta) * stats.sums).sum(axis=1)
    residual = np.maximum(stats.squares.sum(axis=1) - fitted, 0.0)
    return theta, np.where(freedom > 0, residual / np.maximum(freedom, 1), np.nan)


def least_squares_errors(X: Floats, counts: Integers, variance: Floats) -> Floats:
    """(n, K) standard errors of least-squares values; nan for arms that the plays say nothing of.

    Parameters
    ----------
    counts : (n, K) plays that the estimate rests on
    variance : (n,) of the noise
    """
    gram, inverse, _, index = _inverse_grams(X, counts)
    known = np.empty((len(gram), len(X)))
    _known_kernel(X, gram, inverse, 1e-6 * float(np.abs(X).max()), known)
    return np.asarray(np.sqrt(variance[:, None] * np.maximum(known, 0.0)[index]))


def arm_values(X: Floats, theta: Floats) -> Floats:
    """(n, K) values x'θ of every arm for every trial's parameter (n, r)."""
    out = np.empty((len(theta), len(X)))
    _values_kernel(X, theta, out)
    return out


def standard_errors(X: Floats, covariance: Floats) -> Floats:
    """(n, K) standard errors of x'θ from the covariance (n, r, r) of θ."""
    with np.errstate(invalid="ignore", over="ignore"):  # unknown variances may be infinite
        variances = np.empty((len(covariance), len(X)))
        _forms_kernel(X, covariance, variances)
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)))


def is_one_hot(X: Floats) -> bool:
    """Whether arms share nothing: each has a coordinate of its own."""
    return X.shape[0] == X.shape[1] and np.array_equal(X, np.eye(len(X)))


def _check_span(failed: int) -> None:
    if failed >= 0:
        raise InvalidInputError(
            f"the allocation of trial {failed} leaves directions of the arms' span unplayed, so "
            "inverse-propensity estimates do not exist; mix in a G-optimal design."
        )


def _inverse_grams(X: Floats, counts: Integers) -> tuple[Floats, Floats, Integers, Integers]:
    """Distinct X'NX, their pseudo-inverses (u, r, r) and ranks (u,), and which each trial has."""
    distinct, index = np.unique(counts, axis=0, return_inverse=True)
    gram = np.empty((len(distinct), X.shape[1], X.shape[1]))
    _gram_kernel(X, distinct.astype(np.float64), gram)
    inverse, ranks = np.empty_like(gram), np.empty(len(gram), dtype=np.int64)
    if not _pseudo_inverses(gram, RANK_TOLERANCE, inverse, ranks):
        raise InvalidInputError("the features of the arms are too large to be squared; scale them.")
    return gram, inverse, ranks, index.ravel().astype(np.int64)


@kernel
def _combine(X: Floats, sums: Floats, v: Floats) -> None:
    """V = sum_k sums_k x_k."""
    v[:] = 0.0
    for k in range(X.shape[0]):
        if sums[k] != 0.0:
            for i in range(X.shape[1]):
                v[i] += sums[k] * X[k, i]


@kernel
def _ips_kernel(X: Floats, weights: Floats, sums: Floats, out: Floats) -> int:
    """Fill out (n, r); the first trial whose A is singular, or -1."""
    A = np.empty((X.shape[1], X.shape[1]))
    for i in range(out.shape[0]):
        information(X, weights[i], A)
        if not cholesky(A, 0.0):
            return i
        _combine(X, sums[i], out[i])
        cholesky_solve(A, out[i])
    return -1


@kernel
def _ips_squares_kernel(X: Floats, weights: Floats, squares: Floats, out: Floats) -> int:
    """Fill out (n, r, r); the first trial whose A is singular, or -1."""
    K, r = X.shape
    A = np.empty((r, r))
    solved = np.empty(r)
    for i in range(out.shape[0]):
        information(X, weights[i], A)
        if not cholesky(A, 0.0):
            return i
        out[i] = 0.0
        for k in range(K):
            if squares[i, k] != 0.0:
                solved[:] = X[k]
                cholesky_solve(A, solved)
                for a in range(r):
                    for b in range(r):
                        out[i, a, b] += squares[i, k] * solved[a] * solved[b]
    return -1


@kernel
def _gram_kernel(X: Floats, counts: Floats, out: Floats) -> None:
    for i in range(out.shape[0]):
        information(X, counts[i], out[i])
        for a in range(X.shape[1]):
            for b in range(a):
                out[i, b, a] = out[i, a, b]


@kernel
def _pseudo_inverses(gram: Floats, tolerance: float, inverse: Floats, ranks: Integers) -> bool:
    """Pseudo-inverses of gram (u, r, r) into inverse and their ranks (u,); False if there is none.

    Eigenvalues up to `tolerance` times the largest in size are taken as zero.
    """
    u, r, _ = gram.shape
    V, values = np.empty((r, r)), np.empty(r)
    for i in range(u):
        V[:] = gram[i]
        if not symmetric_eigen(V, values):
            return False
        largest = max(abs(values[0]), abs(values[r - 1]))
        inverse[i] = 0.0
        ranks[i] = 0
        for k in range(r):
            if abs(values[k]) > tolerance * largest:
                ranks[i] += 1
                for a in range(r):
                    t = V[k, a] / values[k]
                    for b in range(r):
                        inverse[i, a, b] += t * V[k, b]
    return True


@kernel
def _known_kernel(X: Floats, gram: Floats, inverse: Floats, most: float, out: Floats) -> None:
    """X'G⁺x of arms X (K, r) into out (u, K); nan where GG⁺x misses x by more than `most`."""
    r = X.shape[1]
    y = np.empty(r)
    for i in range(out.shape[0]):
        for k in range(X.shape[0]):
            total = 0.0
            for a in range(r):
                t = 0.0
                for b in range(r):
                    t += inverse[i, a, b] * X[k, b]
                y[a] = t
                total += X[k, a] * t
            for a in range(r):
                t = 0.0
                for b in range(r):
                    t += gram[i, a, b] * y[b]
                if abs(X[k, a] - t) > most:
                    total = np.nan
            out[i, k] = total


@kernel
def _forms_kernel(X: Floats, M: Floats, out: Floats) -> None:
    """X'Mx of arms X (K, r) for each of M (n, r, r), into out (n, K)."""
    for i in range(out.shape[0]):
        for k in range(X.shape[0]):
            total = 0.0
            for a in range(X.shape[1]):
                t = 0.0
                for b in range(X.shape[1]):
                    t += M[i, a, b] * X[k, b]
                total += X[k, a] * t
            out[i, k] = total


@kernel
def _solve_kernel(X: Floats, inverse: Floats, index: Integers, sums: Floats, out: Floats) -> None:
    v = np.empty(X.shape[1])
    for i in range(out.shape[0]):
        _combine(X, sums[i], v)
        for a in range(X.shape[1]):
            total = 0.0
            for b in range(X.shape[1]):
                total += inverse[index[i], a, b] * v[b]
            out[i, a] = total


@kernel
def _values_kernel(X: Floats, theta: Floats, out: Floats) -> None:
    for i in range(out.shape[0]):
        for k in range(X.shape[0]):
            total = 0.0
            for a in range(X.shape[1]):
                total += X[k, a] * theta[i, a]
            out[i, k] = total
