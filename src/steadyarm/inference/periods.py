"""Estimates of a test period by period, and a test of whether they are all the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.variance import gathered, list_freedom
from steadyarm.validation import whole_number

__all__ = ["Periods", "Variation", "group_pieces", "variation", "variations"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

POOLED = 0.5  # share of a period's variance taken from all periods, in case it was zero by luck
LEAST_PIECES = 5  # in a period, whose differences tell a variance


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
    """

    labels: tuple[str, ...]
    rounds: Integers
    theta: Floats
    covariance: Floats
    units: Integers
    method: str


@dataclass(frozen=True, eq=False)
class Variation:
    """A test of whether something is the same in all periods, of n tests.

    Attributes
    ----------
    p_value : (n,) probability of so much variation if nothing moves; 1 if there is one period
    statistic : (n,) Welch and Johansen's F
    freedom : (n, 2) its degrees of freedom
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
        return Periods(labels, rounds, theta, spread / N[..., None] ** 2, units, "lists")
    if evidence.block > 1 and (pieces[rounds > 0] >= LEAST_PIECES).all():
        spread = _scatter(evidence, theta, index)
        spread *= (pieces / np.maximum(pieces - 1, 1))[:, :, None, None]
        return Periods(labels, rounds, theta, spread / N[..., None] ** 2, pieces, "pieces")
    squares = gathered(evidence.squares, index, P)
    spread = squares / N[..., None] - theta[..., :, None] * theta[..., None, :]
    spread /= np.maximum(N[..., None] - 1, 1)
    if evidence.block > 1:
        spread *= evidence.block / (evidence.block - 1)  # Hoeffding: blocks vary at most so much
    return Periods(labels, rounds, theta, spread, rounds, "rounds")


def variation(periods: Periods, directions: Floats) -> Variation:
    """Test whether the parameter's components along `directions` (q, r) are constant.

    Welch's test in Johansen's form for several dimensions: periods may differ in variance, as
    they do under adaptive policies, and small numbers of parts are allowed for.
    """
    q = len(directions)
    means = np.einsum("qr,npr->npq", directions, periods.theta)
    spread = directions @ periods.covariance @ directions.T
    used = periods.units > 1
    rounds = np.where(used, periods.rounds, 0)
    N = np.maximum(rounds, 1)[:, :, None, None]
    total = np.maximum(rounds.sum(axis=1), 1)[:, None, None, None]
    pooled = (np.where(used[..., None, None], N**2 * spread, 0.0)).sum(axis=1, keepdims=True)
    spread = (1 - POOLED) * spread + POOLED * pooled / total / N
    precision = np.linalg.pinv(spread, rcond=1e-10, hermitian=True) * used[..., None, None]
    whole = np.linalg.pinv(precision.sum(axis=1), rcond=1e-10, hermitian=True)
    common = np.einsum("nqs,npst,npt->nq", whole, precision, means)
    apart = means - common[:, None]
    Q = np.einsum("npq,npqs,nps->n", apart, precision, apart)
    rest = np.eye(q) - whole[:, None] @ precision
    traces = np.einsum("npqs,npsq->np", rest, rest) + np.einsum("npqq->np", rest) ** 2
    A = np.where(used, traces / np.maximum(periods.units - 1, 1), 0.0).sum(axis=1) / 2
    return _johansen(Q, A, q * np.maximum(used.sum(axis=1) - 1, 0).astype(np.float64))


def variations(periods: Periods, directions: Floats) -> Variation:
    """`variation` along each of q directions by itself, at once: arrays are (n, q)."""
    means = periods.theta @ directions.T
    spread = np.maximum(((directions @ periods.covariance) * directions).sum(axis=-1), 0.0)
    used = (periods.units > 1)[:, :, None]
    rounds = np.where(used, periods.rounds[:, :, None], 0)
    N, total = np.maximum(rounds, 1), np.maximum(rounds.sum(axis=1, keepdims=True), 1)
    pooled = np.where(used, N**2 * spread, 0.0).sum(axis=1, keepdims=True)
    spread = (1 - POOLED) * spread + POOLED * pooled / total / N
    precision = np.where(used & (spread > 0), 1 / np.where(spread > 0, spread, 1.0), 0.0)
    whole = precision.sum(axis=1, keepdims=True)
    share = precision / np.where(whole > 0, whole, 1.0)
    apart = means - (share * means).sum(axis=1, keepdims=True)
    Q = (precision * apart**2).sum(axis=1)
    freedom = np.maximum(periods.units - 1, 1)[:, :, None]
    A = np.where(used, (1 - share) ** 2 / freedom, 0.0).sum(axis=1)
    h = np.maximum(used.sum(axis=1) - 1, 0).astype(np.float64)
    return _johansen(Q, A, np.broadcast_to(h, Q.shape))


def _johansen(Q: Floats, A: Floats, h: Floats) -> Variation:
    """From the weighted sum of squares, the correction for few parts, and q (P - 1)."""
    safe, A = np.maximum(h, 1.0), np.maximum(A, 1e-12)
    scale = np.maximum(safe + 2 * A - 6 * A / (safe + 2), 1e-12)
    second = safe * (safe + 2) / (3 * A)
    statistic = Q / scale
    p_value = np.where(h > 0, scipy.stats.f.sf(statistic, safe, second), 1.0)
    return Variation(p_value, statistic, np.stack([h, second], axis=-1))


def _index(
    evidence: Evidence, periods: int | Sequence[Hashable]
) -> tuple[Integers, tuple[str, ...]]:
    """(n, J) the period of each piece, and the periods' labels."""
    n, J = evidence.rounds.shape
    if isinstance(periods, (int, np.integer, bool, float)):
        P = whole_number(periods, "periods", least=1)
        ends = np.cumsum(evidence.rounds, axis=1)
        middle = ends - evidence.rounds / 2
        slot = np.minimum((middle * P / np.maximum(ends[:, -1:], 1)).astype(np.int64), P - 1)
        # Pieces may be longer than a share: leave out empty ones, and say where the others end.
        filled = np.unique(slot)
        labels = tuple(f"{i / P:.0%} to {(i + 1) / P:.0%}" for i in filled)
        if n == 1:
            cuts = np.array([ends[0, slot[0] == i].max() for i in filled]) / max(ends[0, -1], 1)
            starts = [0.0, *cuts[:-1]]
            labels = tuple(f"{a:.0%} to {b:.0%}" for a, b in zip(starts, cuts, strict=True))
        return np.searchsorted(filled, slot), labels
    if isinstance(periods, str):
        raise InvalidInputError(
            f"periods is {periods!r}; expected a number of equal shares, or one label for each "
            f"of the {J} pieces."
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
