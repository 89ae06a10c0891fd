"""Estimates of the average parameter from segment statistics: inverse propensity, least squares.

All work on batches of n trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.kernels import grams, quadratic_forms
from steadyarm.segments import Segment, SegmentStats

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNKNOWN = 1e6  # variances of a reward that an arm without any is taken to have
TINY = 1e-300
SINGULAR = 1e-15  # share of a diagonal element of A(λ) below which its pivot is rounding
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
        return _weigh(X, segment, stats.sums)
    surprise = stats.sums - stats.counts * (m @ X.T)
    return _weigh(X, segment, surprise) + segment.rounds[:, None] * m


def _weigh(X: Floats, segment: Segment, sums: Floats) -> Floats:
    """A(λ)⁻¹ times the sum over arms of x_k sums_k."""
    if is_one_hot(X) and (segment.weights > 0).all():
        return np.asarray(sums / segment.weights)
    return np.asarray(np.linalg.solve(_information(X, segment), (sums @ X)[..., None])[..., 0])


def _information(X: Floats, segment: Segment) -> Floats:
    """(n, r, r) A(λ) of each trial, (1, r, r) if all have the same; it must be regular."""
    weights = segment.weights
    A = grams(X, weights[:1] if (weights == weights[0]).all() else weights)
    try:
        pivots = np.square(np.diagonal(np.linalg.cholesky(A), axis1=1, axis2=2))
        regular = bool((pivots > SINGULAR * np.diagonal(A, axis1=1, axis2=2)).all())
    except np.linalg.LinAlgError:
        regular = False
    if not regular:
        singular = np.linalg.matrix_rank(A, hermitian=True).argmin(keepdims=True)
        raise InvalidInputError(
            f"the allocation of trial {singular[0]} leaves directions of the arms' span unplayed, "
            "so inverse-propensity estimates do not exist; mix in a G-optimal design."
        )
    return A


def ips_squares(X: Floats, segment: Segment, stats: SegmentStats, squares: Floats) -> Floats:
    """Sum over the segment's rounds of s s', s its scores, from sums of squared rewards.

    With S the sum over all T rounds and θ̂ the mean score, (S - T θ̂ θ̂')/(T (T - 1)) estimates the
    covariance of θ̂. If the parameter drifts it is too large on average, never too small, because
    the spread of the parameter over time is counted in.
    """
    m = segment.reference
    if m is None:
        return _weigh_squares(X, segment, squares)
    v = m @ X.T
    surprises = squares - 2 * v * stats.sums + stats.counts * v**2
    out = _weigh_squares(X, segment, surprises)
    c = _weigh(X, segment, stats.sums - stats.counts * v)
    mixed = m[:, :, None] * c[:, None, :]
    level = segment.rounds[:, None, None] * m[:, :, None] * m[:, None, :]
    return np.asarray(out + mixed + mixed.swapaxes(1, 2) + level)


def _weigh_squares(X: Floats, segment: Segment, squares: Floats) -> Floats:
    """(n, r, r) the sum over arms of squares_k times A(λ)⁻¹x_k with itself."""
    n, r = segment.trials, X.shape[1]
    if is_one_hot(X) and (segment.weights > 0).all():
        out = np.zeros((n, r, r))
        np.einsum("nkk->nk", out)[:] = squares / np.square(segment.weights)
        return out
    solved = np.linalg.solve(_information(X, segment), X.T)
    return np.asarray((solved * squares[:, None, :]) @ solved.swapaxes(1, 2))


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
    seen, expected = stats.counts > 0, theta @ X.T
    often = np.maximum(stats.counts, 1)
    known = np.where(seen, segment.weights, 0.0)
    level = (known * (stats.sums / often - expected)).sum(axis=1, keepdims=True)
    level /= np.maximum(known.sum(axis=1, keepdims=True), TINY)
    mean = np.where(seen, stats.sums / often, expected + level)
    share = segment.weights * rounds[:, None]
    sums, squares = share * mean, share * np.where(seen, stats.squares / often, mean * mean)
    counts = np.rint(segment.weights * rounds[:, None]).astype(np.int64)
    so_far = replace(segment.in_blocks(), rounds=rounds, reference=None)
    return so_far, SegmentStats(counts, sums, squares)


def _columns_of(segments: Sequence[Segment]) -> Integers | None:
    """All arms that some segment has a column for; None if every segment has all arms."""
    if all(segment.arms is None for segment in segments):
        return None
    return np.unique(np.concatenate([_arms_of(segment) for segment in segments]))


def _arms_of(segment: Segment) -> Integers:
    return np.arange(segment.columns) if segment.arms is None else segment.arms


def _places(columns: Integers | None, segment: Segment) -> Integers | slice:
    """The positions of the segment's columns among all columns."""
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
            reference[j][:, at] = segment.reference @ X.T
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
    theta = np.einsum("nab,nb->na", inverse[index], stats.sums @ X)
    if stats.squares is None:
        return theta, None
    freedom = stats.counts.sum(axis=1) - ranks[index]
    fitted = ((theta @ X.T) * stats.sums).sum(axis=1)
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
    shown = gram @ inverse @ X.T
    values = np.where(
        (np.abs(shown - X.T) <= 1e-6 * np.abs(X).max()).all(axis=1),
        quadratic_forms(X, inverse),
        np.nan,
    )
    return np.asarray(np.sqrt(variance[:, None] * values[index]))


def is_one_hot(X: Floats) -> bool:
    """Whether arms share nothing: each has a coordinate of its own."""
    return X.shape[0] == X.shape[1] and np.array_equal(X, np.eye(len(X)))


def _inverse_grams(X: Floats, counts: Integers) -> tuple[Floats, Floats, Integers, Integers]:
    """Distinct X'NX, their pseudo-inverses (u, r, r) and ranks (u,), and which each trial has."""
    distinct, index = np.unique(counts, axis=0, return_inverse=True)
    gram = grams(X, distinct.astype(np.float64))
    if not np.isfinite(gram).all():
        raise InvalidInputError("the features of the arms are too large to be squared; scale them.")
    inverse: Floats = np.asarray(
        np.linalg.pinv(gram, RANK_TOLERANCE, hermitian=True), dtype=np.float64
    )
    ranks = np.linalg.matrix_rank(gram, rtol=RANK_TOLERANCE, hermitian=True)
    return gram, inverse, np.asarray(ranks, dtype=np.int64), index.ravel().astype(np.int64)
