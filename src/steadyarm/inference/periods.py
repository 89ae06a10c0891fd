"""Estimates of a test period by period, and a test of whether they are all the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.variance import gathered, list_freedom
from steadyarm.validation import whole_number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_PIECES = 5  # in a period, to estimate a variance from their differences


@dataclass(frozen=True, eq=False)
class Periods:
    """Scores of a test in P periods, (n, P, ...); a period without rounds has units 0.

    Attributes
    ----------
    labels : names of the periods
    rounds : (n, P)
    theta : (n, P, r) mean score
    covariance : (n, P, r, r) of the mean score
    units : (n, P) independent parts that the covariance was estimated from
    method : "lists" (rewards of the same arm compared, blocks of whole numbers), "rounds" (scores
        of single rounds) or "pieces" (score sums of pieces, blocks with random lists)
    index : (n, J) the period of each piece
    """

    labels: tuple[str, ...]
    rounds: Integers
    theta: Floats
    covariance: Floats
    units: Integers
    method: str
    index: Integers


@dataclass(frozen=True, eq=False)
class Allocations:
    """What the allocations of the P periods say of variances before any reward is seen.

    Attributes
    ----------
    inverse : (n, P, r, r) A(λ)⁻¹ averaged over the rounds of the period: the covariance of its mean
        score is this over its rounds, if the noise of every arm has variance 1
    scores : (n, P, K, r) A(λ)⁻¹x of every arm
    plays : (n, P, K) expected plays
    freedom : (n, P, K) degrees of freedom of the variance of each arm's rewards
    """

    inverse: Floats
    scores: Floats
    plays: Floats
    freedom: Floats


@dataclass(frozen=True, eq=False)
class Variation:
    """A test of whether something is the same in all periods, of n tests and m questions.

    Attributes
    ----------
    p_value : (n, m) probability of so much variation if nothing moves; 1 if there is one period
    statistic : (n, m) weighted sum of squares over its expectation
    freedom : (n, m, 2) degrees of freedom of both
    """

    p_value: Floats
    statistic: Floats
    freedom: Floats


def group_pieces(evidence: Evidence, periods: int | Sequence[Hashable] = 4) -> Periods:
    """The pieces of a test in periods.

    Parameters
    ----------
    periods : into how many equal shares of the rounds (as far as pieces allow), or the label of
        each piece, such as its date or its weekday; pieces with equal labels are taken together
    """
    index, labels = _index(evidence, periods)
    P = len(labels)
    rounds = gathered(evidence.rounds, index, P)
    pieces = gathered((evidence.rounds > 0).astype(np.int64), index, P)
    N = np.maximum(rounds, 1)[:, :, None]
    theta = gathered(evidence.scores, index, P) / N
    if evidence.within is not None:
        spread, units = gathered(evidence.within, index, P), rounds
        if evidence.weights is not None:
            freedom = list_freedom(evidence, index)
            units = np.minimum(1 + freedom.astype(np.int64), rounds)
        return Periods(labels, rounds, theta, spread / N[..., None] ** 2, units, "lists", index)
    if evidence.block > 1 and (pieces[rounds > 0] >= LEAST_PIECES).all():
        unknown = np.zeros((*theta.shape, theta.shape[2]))
        return by_pieces(evidence, Periods(labels, rounds, theta, unknown, pieces, "", index))
    squares = gathered(evidence.squares, index, P)
    spread = squares / N[..., None] - theta[..., :, None] * theta[..., None, :]
    spread /= np.maximum(N[..., None] - 1, 1)
    if evidence.block > 1:
        spread *= evidence.block / (evidence.block - 1)  # Hoeffding: blocks vary at most so much
    return Periods(labels, rounds, theta, spread, rounds, "rounds", index)


def by_pieces(evidence: Evidence, periods: Periods) -> Periods:
    """The same periods, with covariances from how much the score sums of their pieces differ.

    A period of fewer than five pieces has units 0: nothing can be said of it.
    """
    pieces = gathered((evidence.rounds > 0).astype(np.int64), periods.index, len(periods.labels))
    N = np.maximum(periods.rounds, 1)
    growth = pieces / np.maximum(pieces - 1, 1) / N**2
    spread = _scatter(evidence, periods.theta, periods.index) * growth[:, :, None, None]
    units = np.where(pieces >= LEAST_PIECES, pieces, 0)
    return replace(periods, covariance=spread, units=units, method="pieces")


def allocations_of(evidence: Evidence, periods: Periods) -> Allocations | None:
    """The allocations of the periods; None if the evidence keeps none."""
    if evidence.weights is None:
        return None
    among = evidence.arms if evidence.whole is None else evidence.whole
    X = among.coordinates_of(evidence.columns)
    n, P, r = periods.theta.shape
    inverse, rows = np.zeros((n, P, r, r)), np.arange(n)
    N = evidence.rounds
    for j in range(N.shape[1]):
        played = N[:, j] > 0
        if played.any():
            A = np.where(played[:, None], evidence.weights[:, j], 1.0)[:, None, :] * X.T @ X
            share = N[:, j] / np.maximum(periods.rounds[rows, periods.index[:, j]], 1)
            inverse[rows, periods.index[:, j]] += share[:, None, None] * np.linalg.inv(A)
    plays = N[:, :, None] * evidence.weights
    freedom = np.where(plays > 0, np.maximum(plays - 1, np.minimum(plays, 1.0)), 0.0)
    return Allocations(
        inverse,
        (inverse @ X.T).swapaxes(2, 3),
        gathered(plays, periods.index, P),
        gathered(freedom, periods.index, P),
    )


def variation(
    periods: Periods, directions: Floats, allocations: Allocations | None = None
) -> Variation:
    """Test whether the parameter's components along `directions` (m, q, r) are constant.

    These are m questions of q components each. The statistic is the sum over periods of squared
    distances from the common value, in a metric that no reward enters: the precision of the
    periods if the noise of all arms were alike, or the rounds where allocations are not given.
    It is compared with its expectation under the estimated covariances, which need not be alike,
    nor inverted: the F approximation of Box (1954) and Brunner, Dette and Munk (1997). If the
    noise is normal and alike this is the F test of the analysis of variance.
    """
    q, used = directions.shape[1], (periods.units > 1)[:, :, None]
    flat = directions.reshape(-1, directions.shape[2])
    shape = (*periods.rounds.shape, *directions.shape[:2])
    means = (periods.theta @ flat.T).reshape(shape)
    S = _along(directions, periods.covariance)
    N = np.maximum(periods.rounds, 1)[:, :, None, None, None]
    unit = np.eye(q) if allocations is None else _along(directions, allocations.inverse)
    W = np.asarray(np.linalg.pinv(unit / N, rcond=1e-10, hermitian=True), dtype=np.float64)
    W *= used[..., None, None]
    whole = np.asarray(np.linalg.pinv(W.sum(axis=1), rcond=1e-10, hermitian=True)[:, None])
    common = whole @ (W @ means[..., None]).sum(axis=1, keepdims=True)
    apart = means[..., None] - common
    Q = (apart.swapaxes(3, 4) @ W @ apart)[..., 0, 0].sum(axis=1)
    # The statistic is z'Mz of the stacked means z, M = diag(W) - W whole W'.
    WS = W @ S
    own = WS - W @ whole @ WS  # M S within a period
    parts, squares = _trace(own), _trace(own @ own)
    between = (whole @ (WS @ W).sum(axis=1, keepdims=True))[:, 0]
    ours = whole @ WS @ W
    everything = _trace(between @ between) - _trace(ours @ ours).sum(axis=1) + squares.sum(axis=1)
    if allocations is None or periods.method == "pieces":
        f = np.maximum(periods.units - 1, 1)[:, :, None]
        noise, bias = squares / f, (squares + parts**2) / f
    else:
        M = W - W @ whole @ W
        noise = parts**2 * _uncertainty(directions, M, allocations)
        bias = 2 * noise
    rank = np.broadcast_to(q * np.maximum(used.sum(axis=1) - 1.0, 0.0), Q.shape)
    T, noise, bias = parts.sum(axis=1), noise.sum(axis=1), bias.sum(axis=1)
    return Variation(*box_test(Q, T, everything, noise, bias, rank))


def box_test(
    Q: Floats, T: Floats, squares: Floats, noise: Floats, bias: Floats, rank: Floats
) -> tuple[Floats, Floats, Floats]:
    """p-value, statistic and degrees of freedom (..., 2) of a quadratic form z'Mz, any shape.

    Box's approximation: z'Mz over tr(MS) is F with tr(MS)²/tr((MS)²) and as many degrees of freedom
    as the estimate of tr(MS) has. Where nothing varies the p-value is 1.

    Parameters
    ----------
    Q : the form
    T : tr(MS), its expectation, S the estimated covariance of z
    squares : tr((MS)²)
    noise : half the variance of T
    bias : by how much `squares` is too large on average because S is estimated
    rank : of M
    """
    known = (T > 0) & (rank > 0)
    T, most = np.where(known, T, 1.0), np.maximum(rank, 1.0)
    first = np.clip(T**2 / np.maximum(squares - bias, T**2 / most), 1.0, most)
    second = np.maximum(T**2 / np.maximum(noise, 1e-12 * T**2), 1.0)
    statistic = np.where(known, Q / T, 0.0)
    p_value = np.where(known, fdtrc(first, second, np.maximum(statistic, 0.0)), 1.0)
    return p_value, statistic, np.stack([first, second], axis=-1)


def _along(directions: Floats, covariance: Floats) -> Floats:
    """(n, P, m, q, q) the covariance of the components along directions (m, q, r)."""
    m, q, r = directions.shape
    half = (directions.reshape(-1, r) @ covariance).reshape(*covariance.shape[:2], m, q, r)
    return np.asarray(half @ directions.swapaxes(1, 2))


def _uncertainty(directions: Floats, M: Floats, allocations: Allocations) -> Floats:
    """(n, P, m) one over the degrees of freedom of a period's part, by Satterthwaite's rule.

    The part is a sum over arms of their variances; its shares are those of noise that is alike.
    """
    out = np.empty(M.shape[:3])
    freedom = np.where(allocations.freedom > 0, allocations.freedom, 1.0)
    for i, along in enumerate(directions):
        u = allocations.scores @ along.T
        weight = allocations.plays * ((u @ M[:, :, i]) * u).sum(axis=3)
        total = weight.sum(axis=2, keepdims=True)
        share = weight / np.where(total > 0, total, 1.0)
        out[:, :, i] = (share**2 / freedom).sum(axis=2)
    return out


def _trace(matrices: Floats) -> Floats:
    return np.asarray(np.trace(matrices, axis1=-2, axis2=-1))


def _index(
    evidence: Evidence, periods: int | Sequence[Hashable]
) -> tuple[Integers, tuple[str, ...]]:
    """(n, J) the period of each piece, and the periods' labels."""
    n, J = evidence.rounds.shape
    if isinstance(periods, (int, np.integer, bool, float)):
        P = whole_number(periods, "periods", least=1)
        ends = np.cumsum(evidence.rounds, axis=1)
        middle = ends - evidence.rounds / 2
        share = np.minimum((middle * P / np.maximum(ends[:, -1:], 1)).astype(np.int64), P - 1)
        # Pieces may be longer than a share: leave out empty ones, and say where the others end.
        filled = np.unique(share)
        labels = tuple(f"{i / P:.0%} to {(i + 1) / P:.0%}" for i in filled)
        if n == 1:
            cuts = np.array([ends[0, share[0] == i].max() for i in filled]) / max(ends[0, -1], 1)
            starts = [0.0, *cuts[:-1]]
            labels = tuple(f"{a:.0%} to {b:.0%}" for a, b in zip(starts, cuts, strict=True))
        return np.searchsorted(filled, share), labels
    if isinstance(periods, str):
        raise InvalidInputError.of(
            "periods", periods, f"a number of equal shares, or one label for each of the {J} pieces"
        )
    if len(periods) != J:
        raise InvalidInputError(
            f"periods has {len(periods)} labels, but the evidence has {J} pieces; give one label "
            "for each piece, or the number of equal shares."
        )
    places = {label: place for place, label in enumerate(dict.fromkeys(periods))}
    index = np.array([places[label] for label in periods], dtype=np.int64)
    return np.tile(index, (n, 1)), tuple(str(label) for label in places)


def _scatter(evidence: Evidence, theta: Floats, index: Integers) -> Floats:
    """(n, P, r, r) sum over a period's pieces of their distance from its mean times itself."""
    n, P, r = theta.shape
    out, rows = np.zeros((n, P, r, r)), np.arange(n)
    for j in range(index.shape[1]):
        apart = evidence.scores[:, j] - evidence.rounds[:, j, None] * theta[rows, index[:, j]]
        out[rows, index[:, j]] += apart[:, :, None] * apart[:, None, :]
    return out
