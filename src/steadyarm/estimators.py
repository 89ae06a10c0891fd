"""Estimates of the average parameter from segment statistics: inverse propensity, least squares.

All work on (n, ...) batches, row by row in compiled loops, so that a trial's result does not
depend, not even in its last bit, on which other trials are in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.decompositions import symmetric_eigen
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import cholesky, cholesky_solve, information, quadratic_forms
from steadyarm.segments import Segment, SegmentStats

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNKNOWN = 1e6  # variances of a reward that an arm without any is taken to have
TINY = 1e-300
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
    m = segment.reference
    if m is None:
        return _weighed_squares(X, segment, squares)
    v = arm_values(X, m)
    surprises = squares - 2 * v * stats.sums + stats.counts * v**2
    out = _weighed_squares(X, segment, surprises)
    c = _weighed(X, segment, stats.sums - stats.counts * v)
    mixed = m[:, :, None] * c[:, None, :]
    level = segment.rounds[:, None, None] * m[:, :, None] * m[:, None, :]
    return np.asarray(out + mixed + mixed.swapaxes(1, 2) + level)


def _weighed_squares(X: Floats, segment: Segment, squares: Floats) -> Floats:
    """(n, r, r) the sum over arms of squares_k times A(λ)⁻¹x_k with itself."""
    n, r = segment.trials, X.shape[1]
    if is_one_hot(X) and (segment.weights > 0).all():
        out, root = np.zeros((n, r, r)), np.sqrt(segment.weights)
        solved = 1.0 / root / root  # with the bits that Cholesky's factors give
        np.einsum("nkk->nk", out)[:] = squares * solved * solved
        return out
    out = np.empty((n, r, r))
    _check_span(_ips_squares_kernel(X, segment.weights, squares, out))
    return out


def fill_missing(
    pieces: Sequence[tuple[Floats, Segment, SegmentStats, Integers]],
) -> list[tuple[Segment, SegmentStats]]:
    """Consecutive segments over all of their assigned rounds, missing rewards filled in by arm.

    Right if rewards go missing by chance, whatever they would have been. The rewards of an arm in
    a segment stand for all of its rounds there: each weighs by the inverse of the share that was
    observed. Where a segment has no reward of an arm, the nearest segments before and after that
    have one stand in for it, weighed by their distance, so that a trend leaves no bias. Of an arm
    without any reward nothing is known: it counts like the worst of the others, with a variance
    that leaves everything possible; in a single segment, as the reference says. Squares grow so
    that variances computed from them fit: a reward that stands for M rounds counts M times.

    Parameters
    ----------
    pieces : in the order they were played: (m, r) coordinates of the segment's arms, the segment,
        its statistics, and (n, m) the rounds without a reward beside the `counts` with one

    Examples
    --------
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([4]))
    >>> stats = SegmentStats(np.array([[2, 1]]), np.array([[1.0, 1.0]]), np.array([[1.0, 1.0]]))
    >>> (filled,) = fill_missing([(np.eye(2), segment, stats, np.array([[0, 1]]))])
    >>> ips(np.eye(2), *filled) / 4
    array([[0.5, 1. ]])
    """
    if not any(missing.any() for *_, missing in pieces):
        return [
            (replace(segment, rounds=stats.counts.sum(axis=1)), stats)
            for _, segment, stats, _ in pieces
        ]
    columns = _columns_of([segment for _, segment, _, _ in pieces])
    rewarded, sums, squares, missing, reference = _side_by_side(pieces, columns)
    assigned, known = rewarded + missing, rewarded > 0
    mean = sums / np.maximum(rewarded, 1)
    noise = _noise(rewarded, squares, mean)
    worst = _worst(rewarded, sums)
    before, after, share = _neighbours(known, assigned.sum(axis=2))
    left, right = np.take_along_axis(mean, before, 0), np.take_along_axis(mean, after, 0)
    found = known.any(axis=0)
    alone = (len(pieces) == 1) & ~np.isnan(reference)
    nothing = np.where(alone, reference, worst)
    mean = np.where(known, mean, np.where(found, share * left + (1 - share) * right, nothing))
    borrowed = np.where(known | ~found, 0, assigned)
    stands_for = assigned.astype(np.float64)
    for place, part in ((before, share), (after, 1 - share)):
        extra = np.zeros_like(stands_for)
        np.add.at(extra, (place, *np.indices(place.shape)[1:]), borrowed * part)
        stands_for += extra
    each = (stands_for + assigned) / np.maximum(rewarded, 1)
    own = np.where(known, assigned**2 / np.maximum(rewarded, 1), assigned**2)
    lent = borrowed * (
        share * np.take_along_axis(each, before, 0)
        + (1 - share) * np.take_along_axis(each, after, 0)
    )
    variance = noise * np.where(known | ~found, own, lent)
    most = UNKNOWN * np.maximum(noise, np.maximum(mean**2, TINY))
    variance = np.where(known | found | alone, variance, most * assigned**2)
    out = []
    for j, (_, segment, stats, lost) in enumerate(pieces):
        assert stats.squares is not None
        at = _places(columns, segment)
        partial, N, middle = lost > 0, assigned[j][:, at], mean[j][:, at]
        # In whole blocks the sample variance of N rewards is multiplied by N / (N - 1) later.
        shrunk = np.where((N > 1) & (segment.order != "iid"), (N - 1) / np.maximum(N, 1), 1.0)
        spread = shrunk * variance[j][:, at]
        filled = SegmentStats(
            N,
            np.where(partial, N * middle, stats.sums),
            np.where(partial, N * middle**2 + spread, stats.squares),
        )
        out.append((replace(segment, rounds=N.sum(axis=1)), filled))
    return out


def rewards_so_far(
    X: Floats, segment: Segment, stats: SegmentStats, theta: Floats
) -> tuple[Segment, SegmentStats]:
    """A segment whose rewards are still coming, as a policy may read it to choose an allocation.

    It is read as if it had only the rounds that count in `stats`, and each arm its share of them
    by the segment's weights: the mean of an arm's rewards so far stands for all of them. So a
    segment weighs by what is known of it, and an arm of which fewer rewards have come than of
    others loses nothing by that. An arm without any is taken to differ from the others as `theta`
    says. Since each arm has exactly its share, a reference would change nothing and is left out.

    Parameters
    ----------
    X : (m, r) coordinates of the segment's arms
    theta : (n, r) what has been estimated before

    Examples
    --------
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([8]))
    >>> stats = SegmentStats(np.array([[3, 1]]), np.array([[1.5, 1.0]]), np.array([[1.5, 1.0]]))
    >>> known = rewards_so_far(np.eye(2), segment, stats, np.zeros((1, 2)))
    >>> known[0].rounds, ips(np.eye(2), *known) / known[0].rounds
    (array([4]), array([[0.5, 1. ]]))
    """
    assert stats.squares is not None
    rounds = stats.counts.sum(axis=1)
    sums, squares = np.empty_like(stats.sums), np.empty_like(stats.squares)
    _so_far_kernel(
        segment.weights,
        stats.counts.astype(np.float64),
        stats.sums,
        stats.squares,
        arm_values(X, theta),
        sums,
        squares,
    )
    counts = np.rint(segment.weights * rounds[:, None]).astype(np.int64)
    known = replace(segment.in_blocks(), rounds=rounds, reference=None)
    return known, SegmentStats(counts, sums, squares)


def _columns_of(segments: Sequence[Segment]) -> Integers | None:
    """All arms that some segment has a column for; None if every segment has all arms."""
    if all(segment.arms is None for segment in segments):
        return None
    return np.unique(np.concatenate([_arms_of(segment) for segment in segments]))


def _arms_of(segment: Segment) -> Integers:
    return np.arange(segment.columns) if segment.arms is None else segment.arms


def _places(columns: Integers | None, segment: Segment) -> Integers | slice:
    """Where the segment's columns are among all."""
    return slice(None) if columns is None else np.searchsorted(columns, _arms_of(segment))


def _side_by_side(
    pieces: Sequence[tuple[Floats, Segment, SegmentStats, Integers]], columns: Integers | None
) -> tuple[Integers, Floats, Floats, Integers, Floats]:
    """(J, n, U) counts, sums, squares, missing rounds, and the references' values or nan."""
    J, n = len(pieces), pieces[0][1].trials
    shape = J, n, pieces[0][1].columns if columns is None else columns.size
    rewarded, missing = np.zeros((2, *shape), dtype=np.int64)
    sums, squares = np.zeros((2, *shape))
    reference = np.full(shape, np.nan)
    for j, (X, segment, stats, lost) in enumerate(pieces):
        at = _places(columns, segment)
        rewarded[j][:, at], sums[j][:, at], missing[j][:, at] = stats.counts, stats.sums, lost
        squares[j][:, at] = stats.squares
        if segment.reference is not None:
            reference[j][:, at] = arm_values(X, segment.reference)
    return rewarded, sums, squares, missing, reference


def _worst(rewarded: Integers, sums: Floats) -> Floats:
    """(n, 1) the least mean of an arm over all segments, among those with a reward."""
    count = rewarded.sum(axis=0)
    means = np.where(count > 0, sums.sum(axis=0) / np.maximum(count, 1), np.inf)
    least = means.min(axis=1, keepdims=True)
    return np.where(np.isfinite(least), least, 0.0)


def _noise(rewarded: Integers, squares: Floats, mean: Floats) -> Floats:
    """(n, U) variance of a reward, from segments and from neighbouring segments' means.

    Both see little of a drift. An arm with a single reward is taken for one like the others.
    """
    spread = np.maximum(squares - rewarded * mean**2, 0.0).sum(axis=0)
    free = np.maximum(rewarded - 1, 0).sum(axis=0)
    last_mean, last_rewarded = mean[0], rewarded[0]
    for now_mean, now_rewarded in zip(mean[1:], rewarded[1:], strict=True):
        both = (now_rewarded > 0) & (last_rewarded > 0)
        scale = 1 / np.maximum(now_rewarded, 1) + 1 / np.maximum(last_rewarded, 1)
        spread = spread + np.where(both, (now_mean - last_mean) ** 2 / scale, 0.0)
        free = free + both
        last_mean = np.where(now_rewarded > 0, now_mean, last_mean)
        last_rewarded = np.where(now_rewarded > 0, now_rewarded, last_rewarded)
    others = spread.sum(axis=1, keepdims=True) / np.maximum(free.sum(axis=1, keepdims=True), 1)
    return np.asarray(np.where(free > 0, spread / np.maximum(free, 1), others))


def _neighbours(
    known: NDArray[np.bool_], rounds: Integers
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """(J, n, U) the nearest segments before and after with a reward, and the weight of the first.

    rounds : (J, n) of the segments, by which distances are measured
    """
    J = len(known)
    place = np.arange(J)[:, None, None]
    before = np.maximum.accumulate(np.where(known, place, -1), axis=0)
    after = np.minimum.accumulate(np.where(known, place, J)[::-1], axis=0)[::-1]
    first, last = before < 0, after == J
    before, after = np.where(first, after, before) % J, np.where(last, before, after) % J
    middle = (np.cumsum(rounds, axis=0) - rounds / 2)[:, :, None] * np.ones(known.shape)
    start, end = np.take_along_axis(middle, before, 0), np.take_along_axis(middle, after, 0)
    apart = end - start
    share = np.where(apart > 0, (end - middle) / np.where(apart > 0, apart, 1.0), 1.0)
    return before, after, share


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
        variances = quadratic_forms(X, covariance)
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
    """The sum over k of sums_k x_k, into v (r,)."""
    v[:] = 0.0
    for k in range(X.shape[0]):
        if sums[k] != 0.0:
            for i in range(X.shape[1]):
                v[i] += sums[k] * X[k, i]


@kernel
def _so_far_kernel(
    weights: Floats,
    counts: Floats,
    sums: Floats,
    squares: Floats,
    expected: Floats,
    new_sums: Floats,
    new_squares: Floats,
) -> None:
    """Sums and squares (n, m) as if arms had their weights' share of all counts (n, m).

    expected : (n, m) values of the arms, up to a level that all share
    """
    n, m = weights.shape
    for i in range(n):
        rounds, level, known = 0.0, 0.0, 0.0
        for k in range(m):
            rounds += counts[i, k]
            if counts[i, k] > 0.0:
                level += weights[i, k] * (sums[i, k] / counts[i, k] - expected[i, k])
                known += weights[i, k]
        if known > 0.0:
            level /= known
        for k in range(m):
            share = weights[i, k] * rounds
            if counts[i, k] > 0.0:
                new_sums[i, k] = share * (sums[i, k] / counts[i, k])
                new_squares[i, k] = share * (squares[i, k] / counts[i, k])
            else:
                mean = expected[i, k] + level
                new_sums[i, k] = share * mean
                new_squares[i, k] = share * mean * mean


@kernel
def _ips_kernel(X: Floats, weights: Floats, sums: Floats, out: Floats) -> int:
    """Fill out (n, r); the first trial whose A is singular, or -1."""
    A = np.empty((X.shape[1], X.shape[1]))
    for i in range(out.shape[0]):
        new = i == 0
        for k in range(X.shape[0]):
            new = new or weights[i, k] != weights[i - 1, k]
        if new:  # else A is that of the trial before
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
                for a in range(r):
                    solved[a] = X[k, a]
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
        for a in range(r):
            for b in range(r):
                V[a, b] = gram[i, a, b]
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
    """Values x'G⁺x of arms X (K, r) into out (u, K); nan where GG⁺x misses x by over `most`."""
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
