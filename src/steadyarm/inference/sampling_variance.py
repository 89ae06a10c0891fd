"""Balance: counts against what they should be, and how surprising the difference is.

Counts minus expectations are sums of martingale differences whatever the policy did, so their
squared length, measured by the summed covariances, is chi-squared in large samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import LoggedSegment
from steadyarm.segments import Segment

# Balance: counts against what they should be, and how surprising the difference is.


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NORMAL = 10.0  # variance of a count from which on it is taken as normal
RARE = 0.1  # share of the error probability spent on arms with less
NEGLIGIBLE = 1e-9  # variance of a count that cannot vary
WHOLE = 1e-6  # block * weight this near to a whole number is one


@dataclass(frozen=True, eq=False)
class Balance:
    """Counts summed over a test, and what they should be.

    Attributes
    ----------
    observed, expected : (n, K)
    covariance : (n, K, K) of observed minus expected
    draws, hits : (n,) and (n, K): each arm's difference is that of so many independent yes-or-no
        draws, with so many expected to be yes, or varies less
    """

    observed: Floats
    expected: Floats
    covariance: Floats
    draws: Floats
    hits: Floats

    def __add__(self, other: Balance) -> Balance:
        return Balance(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[Floats, ...]:
        """What sums over segments add up."""
        return self.observed, self.expected, self.covariance, self.draws, self.hits

    @property
    def residuals(self) -> Floats:
        """(n, K) differences in units of their standard deviation; infinite if there is none."""
        difference = self.observed - self.expected
        variance = np.einsum("nkk->nk", self.covariance)
        return standardised(difference, variance, WHOLE)


def surprise(balance: Balance) -> tuple[Floats, Floats, Integers]:
    """(n,) probability of counts at least as far off, the chi-squared statistic, its freedom.

    Directions with a variance of at least 10 counts make the statistic. Arms whose count has less
    are judged one by one by binomial tails, and share a tenth of the error probability (all of
    it if there is nothing else): no sum of independent yes-or-no draws, such as draws without
    replacement are too, has heavier ones (Hoeffding 1956). A count that cannot vary and is off
    has probability 0.
    """
    difference = balance.observed - balance.expected
    variance = np.maximum(np.einsum("nkk->nk", balance.covariance), 0.0)
    values, vectors = np.linalg.eigh(balance.covariance)
    lengths = np.einsum("nkd,nk->nd", vectors, difference)
    usable = values >= NORMAL
    statistic = np.where(usable, lengths**2 / np.where(usable, values, 1.0), 0.0).sum(axis=1)
    freedom = usable.sum(axis=1)
    p_common = np.where(freedom > 0, scipy.stats.chi2.sf(statistic, np.maximum(freedom, 1)), 1.0)
    rare = (variance < NORMAL) & (variance > NEGLIGIBLE)
    tails = binomial_tails(np.abs(difference), balance.draws[:, None], balance.hits)
    bounds = np.where(rare, tails, 1.0)
    p_rare = bounds.min(axis=1) * rare.sum(axis=1)
    both = rare.any(axis=1) & (freedom > 0)
    p_value = np.where(rare.any(axis=1), np.minimum(p_rare, 1.0), p_common)
    p_value = np.where(both, np.minimum(p_common / (1 - RARE), p_rare / RARE), p_value)
    stuck = ((variance <= NEGLIGIBLE) & (np.abs(difference) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(p_value, 1.0)), statistic, freedom


def standardised(difference: Floats, variance: Floats, slack: float) -> Floats:
    """Differences in standard deviations; infinite where there is none but they exceed `slack`."""
    known = variance > NEGLIGIBLE
    off = np.abs(difference) > slack
    fixed = np.select([off & (difference > 0), off], [np.inf, -np.inf], 0.0)
    return np.where(known, difference / np.sqrt(np.where(known, variance, 1.0)), fixed)


def bennett(x: Floats, variance: Floats) -> Floats:
    """At most P(|sum| ≥ x), for differences of at most 1 with this summed variance."""
    v = np.maximum(variance, 1e-300)
    u = x / v
    return np.asarray(np.minimum(2 * np.exp(-v * ((1 + u) * np.log1p(u) - u)), 1.0))


def binomial_tails(x: Floats, draws: Floats, hits: Floats) -> Floats:
    """P(|count - hits| ≥ x) for `draws` draws of which `hits` are expected; 1 if x < 1."""
    p = np.clip(hits / np.maximum(draws, 1.0), 0.0, 1.0)
    above = scipy.stats.binom.sf(np.ceil(hits + x - WHOLE) - 1, draws, p)
    below = scipy.stats.binom.cdf(np.floor(hits - x + WHOLE), draws, p)
    return np.where(x < 1 - WHOLE, 1.0, np.minimum(above + below, 1.0))


# What luck can do to the counts of a log, for each order of draws.


STRATUM = 30  # rows in which missing rewards are compared
NO_REWARDS = (
    "a segment has no rewarded counts, which attrition needs; make its LoggedSegment with rewarded."
)


def assignment_balance(pieces: Iterable[LoggedSegment]) -> tuple[Balance, NDArray[np.bool_]]:
    """Rows per arm against the logged allocations, given the number of rows of every segment.

    Rows may have been lost. If arms lose alike, the rows of a segment are a random part of it, and
    the covariance is that of drawing without replacement.

    Returns
    -------
    the balance, and (n, J, K) where a count cannot be, whatever the luck
    """
    log = list(pieces)
    total: Balance | None = None
    impossible: list[NDArray[np.bool_]] = [np.empty(0, dtype=bool)] * len(log)
    for places, piece in _drawn_alike(log):
        weights = normalised(piece.segment)
        rows = piece.rows.astype(np.float64)
        spread, draws, hits = _row_luck(piece, weights, rows)
        mean = rows[:, None] * weights
        new = Balance(piece.assigned.astype(np.float64), mean, spread, draws, hits)
        cannot = impossible_counts(piece, weights)
        if len(places) > 1:
            new = Balance(*(part.sum(axis=0, keepdims=True) for part in new.parts))
        for row, j in enumerate(places):
            impossible[j] = cannot[row : row + 1] if len(places) > 1 else cannot
        total = new if total is None else total + new
    return _not_empty(total), np.stack(impossible, axis=1)


def _drawn_alike(log: list[LoggedSegment]) -> Iterator[tuple[list[int], LoggedSegment]]:
    """Pieces of a single test that were drawn in the same way, as the trials of one; else alone."""
    alike: dict[tuple[str, int], list[int]] = {}
    for j, piece in enumerate(log):
        if piece.segment.trials > 1:
            yield [j], piece
        else:
            alike.setdefault((piece.segment.order, piece.segment.block), []).append(j)
    for (order, block), places in alike.items():
        few = [log[j] for j in places]
        segment = Segment(
            np.concatenate([piece.segment.weights for piece in few]),
            np.concatenate([piece.segment.rounds for piece in few]),
            order,  # type: ignore[arg-type]  # one of theirs
            block,
        )
        assigned = np.concatenate([piece.assigned for piece in few])
        yield places, LoggedSegment(segment, assigned, np.concatenate([p.positions for p in few]))


def attrition_balance(pieces: Iterable[LoggedSegment]) -> Balance:
    """Rows without reward per arm, given how many each segment has and whom it assigned.

    Within a segment every row is as likely to miss its reward if arms do not matter (the
    generalised test of Cochran, Mantel and Haenszel), so rates may move with the allocation.
    Segments of fewer than 30 rows, which alone say little or nothing, are joined with the next.
    """
    total: Balance | None = None
    for assigned, missing in _strata(pieces):
        rows = assigned.sum(axis=1)
        share, gone = assigned / np.maximum(rows, 1)[:, None], missing.sum(axis=1)
        one = _multinomial(share)
        spread, draws, hits = _part(one, np.zeros_like(one), share, rows, gone)
        new = Balance(missing, gone[:, None] * share, spread, draws, hits)
        total = new if total is None else total + new
    return _not_empty(total)


def _strata(pieces: Iterable[LoggedSegment]) -> Iterator[tuple[Floats, Floats]]:
    """(n, K) rows, and rows without reward, of consecutive segments with enough rows together."""
    assigned: Floats | None = None
    missing: Floats | None = None
    for piece in pieces:
        if piece.rewarded is None:
            raise InvalidInputError(NO_REWARDS)
        rows = piece.assigned.astype(np.float64)
        gone = rows - piece.rewarded
        assigned = rows if assigned is None else assigned + rows
        missing = gone if missing is None else missing + gone
        if (assigned.sum(axis=1) >= STRATUM).all():
            yield assigned, missing
            assigned = missing = None
    if assigned is not None and missing is not None:
        yield assigned, missing


def _not_empty(total: Balance | None) -> Balance:
    if total is None:
        raise InvalidInputError("there is no segment in the log; give at least one.")
    return total


def normalised(segment: Segment) -> Floats:
    """Weights that sum to one; zero where nothing was played."""
    total = segment.weights.sum(axis=1)
    proper = (segment.weights >= 0).all(axis=1) & (np.abs(total - 1) < 1e-3)  # False for nan
    if not (proper | (segment.rounds == 0)).all():
        raise InvalidInputError(
            f"a segment's weights are negative, nan or do not sum to one (sums from "
            f"{total.min():g} to {total.max():g}); expected the probabilities of all arms."
        )
    weights = np.where(proper[:, None], segment.weights, 0.0)
    return np.asarray(weights / np.where(proper, total, 1.0)[:, None])


def _multinomial(weights: Floats) -> Floats:
    """(n, K, K) covariance of one draw."""
    out: Floats = -weights[:, :, None] * weights[:, None, :]
    k = np.arange(weights.shape[1])
    out[:, k, k] += weights
    return out


def _row_luck(piece: LoggedSegment, weights: Floats, rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Covariance, draws and hits of the rows per arm, given their number."""
    segment, one = piece.segment, _multinomial(weights)
    if segment.order == "iid":
        return rows[:, None, None] * one, rows, rows[:, None] * weights
    if segment.order == "shuffled":
        return _part(one, np.zeros_like(one), weights, segment.rounds.astype(np.float64), rows)
    b = float(segment.block)
    handed = piece.positions.astype(np.float64)
    start = _start_covariance(weights, segment.block)
    whole, cut = handed // b, handed % b
    cut_spread, cut_draws, cut_hits = _part(one, start, weights, np.full_like(cut, b), cut)
    full = whole[:, None, None] * start + cut_spread
    spread, draws, hits = _part(one, full, weights, handed, rows)
    # Rounding up or down is one more draw a block, unless there is nothing to round.
    uneven = np.where(start.any(axis=(1, 2)), np.ceil(handed / b), 0.0)
    exact = weights * b
    fraction = np.where(np.abs(exact - np.rint(exact)) < WHOLE, 0.0, exact % 1.0)
    return spread, draws + cut_draws + uneven, hits + cut_hits + uneven[:, None] * fraction


def _part(
    one: Floats, full: Floats, weights: Floats, size: Floats, rows: Floats
) -> tuple[Floats, Floats, Floats]:
    """Covariance, draws and hits of counts in a random part of `rows` out of `size` positions.

    one : covariance of a single draw; full : of the counts in all positions. What matters is the
    smaller of the part and the rest: if few are left out, it is who they are.
    """
    size = np.maximum(size, 1.0)
    rows = np.minimum(rows, size)
    luck = (rows * (size - rows) / np.maximum(size - 1, 1))[:, None, None]
    share = (rows / size)[:, None, None]
    spread = share**2 * full + luck * (one - full / size[:, None, None] ** 2)
    few = rows <= size / 2
    draws = np.where(few, rows, size - rows)
    return spread, draws, draws[:, None] * np.where(few[:, None], weights, 1 - weights)


def _start_covariance(weights: Floats, block: int) -> Floats:
    """(n, K, K) of the counts of a block by systematic sampling with a uniform start u.

    The first k arms get ⌊e⌋ + 1{u < e - ⌊e⌋} positions, e = block * their weight, so the
    covariance of these sums is min(f, g) - f g, with f and g their fractional parts.
    """
    ends = np.cumsum(weights, axis=1) * block
    near = np.rint(ends)
    f = np.where(np.abs(ends - near) < WHOLE, 0.0, ends - np.floor(ends))
    sums = np.minimum(f[:, :, None], f[:, None, :]) - f[:, :, None] * f[:, None, :]
    rows = np.diff(sums, axis=1, prepend=0.0)
    return np.diff(rows, axis=2, prepend=0.0)


def impossible_counts(piece: LoggedSegment, weights: Floats) -> NDArray[np.bool_]:
    """(n, K) counts that no luck of the draw can give."""
    segment, counts = piece.segment, piece.assigned
    handed, lost = piece.positions[:, None], piece.lost[:, None]
    too_many = (piece.rows > piece.positions)[:, None] & (counts > 0)
    if segment.order == "iid":
        return np.asarray(too_many | ((counts > 0) & (weights <= 0)))
    if segment.order == "shuffled":
        return np.asarray(too_many | (counts > segment.counts))
    b = segment.block
    least = np.floor(weights * b + WHOLE)
    most = np.ceil(weights * b - WHOLE)
    cut = handed % b
    low = handed // b * least + np.maximum(0, cut - (b - least)) - lost
    high = handed // b * most + np.minimum(cut, most)
    return np.asarray(too_many | (counts < low) | (counts > high))
